"""What cannot be adopted, and what is said. What this machine lacks is shown as another host's files."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.host_state.machine import Machine

from cudaup.host import adopt, adoptable, adoption, facts, generations, mounts, surroundings
from cudaup.host.protocol import Refused

DISK = "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"


@pytest.fixture
def idle(machine: Machine) -> Machine:
    machine.systemd.stop("ml.service")
    return machine


def is_a_link(machine: Machine) -> Path:
    (machine.folder / "linked").symlink_to(machine.path)
    return machine.folder / "linked"


def has_a_link_above_it(machine: Machine) -> Path:
    (machine.folder / "alias").symlink_to(machine.folder)
    return machine.folder / "alias" / "ml-env"


def is_a_file(machine: Machine) -> Path:
    return machine.path / "pyvenv.cfg"


def is_no_environment(machine: Machine) -> Path:
    (machine.path / "pyvenv.cfg").unlink()
    return machine.path


def is_a_generation(machine: Machine) -> Path:
    machine.stage("0002-abcdef")
    return machine.ctx.layout.generation("0002-abcdef") / "venv"


def holds_the_root(machine: Machine) -> Path:
    (machine.folder / "opt" / "pyvenv.cfg").touch()
    return machine.folder / "opt"


def holds_another_environment(machine: Machine) -> Path:
    (machine.path / "envs" / "llm" / "conda-meta").mkdir(parents=True)
    return machine.path


def has_lost_its_interpreter(machine: Machine) -> Path:
    (machine.path / "bin" / "python").unlink()
    (machine.path / "bin" / "python").symlink_to("/gone/python3.9")
    return machine.path


def has_lost_its_home(machine: Machine) -> Path:
    """As one made with --copies: its own python is there, and cannot start."""
    (machine.path / "pyvenv.cfg").write_text("home = /gone/bin\nversion = 3.9.2\n")
    return machine.path


def can_be_written_by_anybody(machine: Machine) -> Path:
    (machine.path / "bin" / "extra").touch()
    (machine.path / "bin" / "extra").chmod(0o666)
    return machine.path


def lies_in_a_group_writable_directory(machine: Machine) -> Path:
    machine.folder.chmod(0o770)
    return machine.path


def lies_in_a_sticky_directory(machine: Machine) -> Path:
    """Others could make the names there that an adopt needs."""
    machine.folder.chmod(0o1777)
    return machine.path


def lies_below_a_writable_directory(machine: Machine) -> Path:
    deep = machine.folder / "deep"
    deep.mkdir()
    machine.path.rename(deep / "ml-env")
    machine.folder.chmod(0o757)
    return deep / "ml-env"


CASES = [
    (is_a_link, r"it is a link to", "adopt the directory itself"),
    (has_a_link_above_it, r"one of its parents is a link", "by its real name, `{path}`"),
    (is_a_file, r"it is not a directory", ""),
    (is_no_environment, r"no Python environment \(no pyvenv.cfg, no conda-meta\)", ""),
    (is_a_generation, r"lie in one another", ""),
    (holds_the_root, r"lie in one another", ""),
    (holds_another_environment, r"envs/llm` lies in it", ""),
    (has_lost_its_interpreter, r"its interpreter is gone: .* leads to `/gone/python3.9`", ""),
    (has_lost_its_home, r"the Python it was made with is gone: `home = /gone/bin`", ""),
    (
        can_be_written_by_anybody,
        r"extra` \(uid \d+, gid \d+, mode 0666\) can be written by others",
        "chmod -R go-w {path}",
    ),
    (lies_in_a_group_writable_directory, r"mode 0770\) can be written by others, and so", "chmod go-w {folder}"),
    (lies_in_a_sticky_directory, r"mode 1777\) can be written by others, and so", "chmod go-w {folder}"),
    (lies_below_a_writable_directory, r"mode 0757\) can be written by others, and so", "chmod go-w {folder}"),
]


@pytest.mark.parametrize(("prepare", "reason", "fix"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_what_cannot_be_adopted_is_refused_with_the_reason(
    idle: Machine, prepare: Callable[[Machine], Path], reason: str, fix: str
) -> None:
    path = prepare(idle)
    with pytest.raises(Refused, match=reason) as refusal:
        adopt.adopt(idle.call(path=str(path)))
    assert refusal.value.code == "unsafe"
    assert fix.format(path=idle.path, folder=idle.folder) in refusal.value.fix
    assert (adoption.read(idle.ctx.layout), generations.current_id(idle.ctx.layout)) == (None, None)
    assert os.path.lexists(path)


def test_what_is_not_there_is_not_found(idle: Machine) -> None:
    with pytest.raises(Refused, match="does not exist") as refusal:
        adopt.adopt(idle.call(path=str(idle.folder / "nothing")))
    assert refusal.value.code == "not-found"


def test_a_plan_is_told_before_anything_is_tried(idle: Machine) -> None:
    def unfit() -> str | None:
        found: str | None = facts.collect(idle.call(env=idle.path))["environment"]["unfit"]
        return found

    assert unfit() is None
    (idle.path / "envs" / "llm" / "conda-meta").mkdir(parents=True)
    assert (unfit() or "").startswith(f"`{idle.path}/envs/llm` lies in it and would be moved with it (fix: ")
    (idle.path / "pyvenv.cfg").unlink()
    assert unfit() is None  # not an environment at all: that is said already


def test_group_root_may_write_in_it_as_conda_leaves_it(idle: Machine) -> None:
    (idle.path / "bin" / "extra").touch()
    (idle.path / "bin" / "extra").chmod(0o664)
    assert adoptable.fault_of(idle.path, idle.ctx.layout) is None


def test_an_immutable_directory_or_parent(idle: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root could make one, and not everywhere: so what the filesystem says about it is made up."""
    monkeypatch.setattr(adoptable, "_flags", lambda path: 0x10 if path == idle.folder else 0)
    with pytest.raises(Refused, match=f"`{idle.folder}` has the immutable") as refusal:
        adoptable.require(idle.path, idle.ctx.layout)
    assert refusal.value.fix == f"chattr -i -a {idle.folder}"


def seen_by(proc: Path, pid: str, mountinfo: str, root: Path | None = None) -> None:
    """A process of a mount namespace of its own; `root` is what it has as `/`."""
    (proc / pid / "ns").mkdir(parents=True)
    (proc / pid / "mountinfo").write_text(mountinfo)
    (proc / pid / "ns" / "mnt").symlink_to(f"mnt:[{pid}]")
    if root is not None:
        (proc / pid / "root").symlink_to(root)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mounts, "_PROC", tmp_path / "proc")
    return tmp_path / "proc"


@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        ("40 21 0:44 / {parent} rw - nfs4 server:/x rw,vers=4.2", "it lies on nfs4"),
        ("40 21 0:44 / {parent} rw - fuse.sshfs x rw", "it lies on fuse.sshfs"),
        ("40 21 8:2 / {parent} ro,relatime - ext4 /dev/sdb rw", "`{parent}` is mounted read-only"),
        ("40 21 8:2 / {parent} rw,relatime - ext4 /dev/sdb ro,errors=remount-ro", "`{parent}` is mounted read-only"),
        ("40 21 8:2 / {path} rw - ext4 /dev/sdb rw", "it is a mount point"),
        ("40 21 8:2 / {path}/lib rw - ext4 /dev/sdb rw", "`{path}/lib` is mounted inside it"),
        ("40 21 8:1 {path} /srv/ml rw - ext4 /dev/sda1 rw", "mounted elsewhere.*: `/srv/ml` of pid 1"),
    ],
)
def test_by_its_mount(idle: Machine, proc: Path, mount: str, reason: str) -> None:
    names = {"path": str(idle.path), "parent": str(idle.folder)}
    seen_by(proc, "self", DISK)
    seen_by(proc, "1", DISK)
    assert adoptable.fault_of(idle.path, idle.ctx.layout) is None
    for pid in ("self", "1"):
        (proc / pid / "mountinfo").write_text(DISK + mount.format(**names) + "\n")
    with pytest.raises(Refused, match=reason.format(**names)):
        adoptable.require(idle.path, idle.ctx.layout)


CONTAINER = "90 80 0:99 / / rw - overlay overlay rw,lowerdir=/l\n91 90 8:1 {root} {point} rw - ext4 /dev/sda1 rw\n"


@pytest.mark.parametrize(
    ("root", "point", "seen"),
    [("{path}", "/env", "/env"), ("{path}/lib", "/lib", "/lib"), ("{parent}", "/data", "/data/ml-env")],
    ids=["the directory", "a part of it", "the one it is in"],
)
def test_bind_mounted_into_a_container(idle: Machine, proc: Path, root: str, point: str, seen: str) -> None:
    names = {"path": str(idle.path), "parent": str(idle.folder)}
    seen_by(proc, "self", DISK)
    inside = idle.folder / "container"
    inside.mkdir()
    (inside / "data").symlink_to(idle.folder)
    seen_by(proc, "4711", CONTAINER.format(root=root.format(**names), point=point), inside)
    with pytest.raises(Refused, match=f"perhaps in a container: `{seen}` of pid 4711"):
        adoptable.require(idle.path, idle.ctx.layout)


def test_a_sandboxed_service_and_an_agent_that_see_the_whole_host_are_no_hindrance(idle: Machine, proc: Path) -> None:
    seen_by(proc, "self", DISK)
    once_more = f"91 90 8:1 {idle.folder} {idle.folder} ro - ext4 /dev/sda1 rw\n"
    elsewhere = f"92 90 8:1 {idle.folder} {idle.folder}/alias rw - ext4 /dev/sda1 rw\n"
    (idle.folder / "alias").symlink_to(idle.folder)
    seen_by(proc, "10", DISK + once_more + elsewhere, Path("/"))
    agent = "90 80 0:99 / / rw - overlay overlay rw,lowerdir=/l\n91 90 8:1 / /host ro - ext4 /dev/sda1 rw\n"
    inside = idle.folder / "container"
    inside.mkdir()
    (inside / "host").symlink_to("/")
    seen_by(proc, "11", agent, inside)
    assert adoptable.fault_of(idle.path, idle.ctx.layout) is None


def test_the_inside_of_a_container(idle: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "inside"
    (root / "proc" / "self" / "ns").mkdir(parents=True)
    (root / ".dockerenv").touch()
    monkeypatch.setattr(surroundings, "_ROOT", root)
    with pytest.raises(Refused, match=r"the inside of a container \(`/.dockerenv`\)"):
        adoptable.require(idle.path, idle.ctx.layout)
    # A machine whose disk was made from an image has the file too.
    (root / "proc" / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    assert adoptable.fault_of(idle.path, idle.ctx.layout) is None


@pytest.mark.parametrize(
    "path",
    [
        "/var/lib/docker/overlay2/0f3a/merged/root/ml-env",
        "/data/engine/overlay2/0f3a/diff/root/ml-env",
        "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs/root/ml-env",
        "/run/containerd/io.containerd.runtime.v2.task/k8s.io/5d/rootfs/root/ml-env",
        "/home/ann/.local/share/containers/storage/overlay/9c/diff/env",
        "/var/lib/machines/debian/root/ml-env",
    ],
)
def test_files_of_a_container(path: str) -> None:
    fault = surroundings.fault_by_container(Path(path))
    assert fault is not None
    assert fault.text == f"it lies in a container's image or files ({path})"


def test_a_directory_that_is_only_called_docker_is_none_of_a_container() -> None:
    assert surroundings.fault_by_container(Path("/data/docker/ml-env")) is None


def test_an_overlay_of_image_layers(idle: Machine, proc: Path) -> None:
    layers = (
        "lowerdir=/var/lib/docker/overlay2/l/A:/var/lib/docker/overlay2/l/B,upperdir=/var/lib/docker/overlay2/x/diff"
    )
    seen_by(proc, "self", f"90 80 0:99 / / rw - overlay overlay rw,{layers}\n")
    with pytest.raises(Refused, match=r"a container's image or files \(lowerdir=/var/lib/docker"):
        adoptable.require(idle.path, idle.ctx.layout)


def test_fapolicyd(idle: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, name in (("1", "systemd"), ("812", "fapolicyd")):
        (tmp_path / "rhel" / "proc" / pid).mkdir(parents=True)
        (tmp_path / "rhel" / "proc" / pid / "comm").write_text(f"{name}\n")
    monkeypatch.setattr(surroundings, "_ROOT", tmp_path / "rhel")
    with pytest.raises(Refused, match=r"fapolicyd runs \(pid 812\)"):
        adoptable.require(idle.path, idle.ctx.layout)


@pytest.mark.parametrize(
    ("enforce", "labels", "reason"),
    [
        ("1", {"ml-env": "bin_t", "": "admin_home_t"}, "`{path}` is labelled bin_t within admin_home_t"),
        ("1", {"bin": "bin_t", "": "usr_t"}, "`{path}/bin` is labelled bin_t within usr_t"),
        ("1", {"": "admin_home_t"}, None),
        ("0", {"ml-env": "bin_t", "": "admin_home_t"}, None),
    ],
    ids=["a rule for the path", "a rule for its programs", "as its parent", "permissive"],
)
def test_selinux(
    idle: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    enforce: str,
    labels: dict[str, str],
    reason: str | None,
) -> None:
    """Who may set labels is the kernel's to say; the lab sets real ones."""
    (tmp_path / "rhel" / "sys" / "fs" / "selinux").mkdir(parents=True)
    (tmp_path / "rhel" / "sys" / "fs" / "selinux" / "enforce").write_text(enforce)
    monkeypatch.setattr(surroundings, "_ROOT", tmp_path / "rhel")
    monkeypatch.setattr(
        os, "getxattr", lambda path, *_, **__: f"u:r:{labels.get(Path(path).name, labels[''])}:s0\0".encode()
    )
    fault = adoptable.fault_of(idle.path, idle.ctx.layout)
    assert (fault and fault.text) == (
        reason and f"SELinux enforces, and {reason.format(path=idle.path)}: that label is lost"
    )


def test_a_path_with_a_blank_is_adopted_as_any_other(idle: Machine) -> None:
    spaced = idle.folder / "my env"
    idle.path.rename(spaced)
    answer = adopt.adopt(idle.call(path=str(spaced)))
    assert answer["aside"] == f"{idle.folder}/.my env.{answer['generation']}"
    assert spaced.readlink() == idle.ctx.layout.current / "venv"


def test_an_environment_with_its_own_copy_of_the_interpreter(idle: Machine) -> None:
    """venv --copies: its Python lies in it, and what that needs is where `home` says."""
    python = idle.path / "bin" / "python"
    python.unlink()
    python.write_bytes(Path(sys.executable).resolve().read_bytes())
    python.chmod(0o755)
    assert adopt.adopt(idle.call(path=str(idle.path)))["changed"]
