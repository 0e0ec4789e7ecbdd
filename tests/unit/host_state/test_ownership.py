"""Nobody else can write to what cudaup keeps, nor put something else in its place."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.host_state.machine import TIMES, HandClock, Machine

from cudaup.adapters.hostprogram import zipapp
from cudaup.host import activate, adopt, confirm, deadman, files, generations, locks, ownership
from cudaup.host.journal import Journal
from cudaup.host.layout import Layout
from cudaup.host.mounts import prepare_root
from cudaup.host.protocol import Refused

OTHER = os.geteuid() + 4711


def info(mode: int, uid: int = 0, nlink: int = 1) -> os.stat_result:
    return os.stat_result((mode, 1, 1, nlink, uid, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "uid", "text", "fix"),
    [
        (stat.S_IFDIR | 0o755, 0, None, None),
        (stat.S_IFDIR | 0o755, os.geteuid(), None, None),
        (stat.S_IFLNK | 0o777, 0, None, None),
        (stat.S_IFDIR | 0o755, OTHER, f"`/srv` (uid {OTHER}, gid 0, mode 0755) belongs to another user", "chown"),
        (stat.S_IFLNK | 0o777, OTHER, f"`/srv` (uid {OTHER}, gid 0, mode 0777) belongs to another user", "chown"),
        (stat.S_IFDIR | 0o775, 0, "`/srv` (uid 0, gid 0, mode 0775) can be written by others", "chmod go-w /srv"),
        (stat.S_IFREG | 0o646, 0, "`/srv` (uid 0, gid 0, mode 0646) can be written by others", "chmod go-w /srv"),
        (stat.S_IFDIR | 0o1777, 0, "`/srv` (uid 0, gid 0, mode 1777) can be written by others", "chmod go-w /srv"),
    ],
)
def test_whose_a_thing_is(mode: int, uid: int, text: str | None, fix: str | None) -> None:
    fault = ownership.fault_of(Path("/srv"), info(mode, uid))
    assert (fault and fault.text) == text
    assert fault is None or fault.fix.startswith(str(fix))


def test_a_file_of_ours_is_plain_and_has_one_name() -> None:
    path = Path("/opt/cudaup/lock")
    assert ownership.fault_of_file(path, info(stat.S_IFREG | 0o600)) is None
    linked = ownership.fault_of_file(path, info(stat.S_IFREG | 0o600, nlink=2))
    assert linked is not None
    assert linked.text == "`/opt/cudaup/lock` has 2 names (hard links)"
    assert ownership.fault_of_file(path, info(stat.S_IFREG | 0o600, nlink=2), may_have_names=True) is None
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR, stat.S_IFSOCK, stat.S_IFCHR):
        assert "not a plain file" in str(ownership.fault_of_file(path, info(kind | 0o600)))


def test_the_way_to_a_path_is_looked_at_through_its_links(tmp_path: Path) -> None:
    """a/b -> ../c/d, c/d -> /tmp/.../e: whoever may write to any of the three decides where the path leads."""
    for name in ("a", "c", "e"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "b").symlink_to("../c/d")
    (tmp_path / "c" / "d").symlink_to(tmp_path / "e")
    path = tmp_path / "a" / "b" / "cudaup"
    assert ownership.fault_on_the_way(path) is None
    for name in ("a", "c", "e"):
        (tmp_path / name).chmod(0o777)
        fault = ownership.fault_on_the_way(path)
        assert fault is not None
        assert fault.text.startswith(f"`{tmp_path / name}` (")
        (tmp_path / name).chmod(0o755)


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(Refused, match="too many links"):
        ownership.fault_on_the_way(tmp_path / "a" / "cudaup")


def test_a_sticky_directory_keeps_what_is_ours(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert ownership.fault_on_the_way(tmp_path / "not there yet") is None
    (tmp_path / "ours").mkdir()
    assert ownership.fault_on_the_way(tmp_path / "ours" / "cudaup") is None


def test_a_sticky_directory_does_not_keep_what_is_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "theirs").mkdir()
    monkeypatch.setattr(ownership, "_is_ours", lambda entry: entry.name != "theirs")  # only root could make one
    assert ownership.fault_on_the_way(tmp_path / "theirs" / "cudaup") is not None


def is_writable(layout: Layout) -> Path:
    layout.root.chmod(0o775)
    return layout.root


def is_a_link(layout: Layout) -> Path:
    layout.root.rename(layout.root.with_name("elsewhere"))
    layout.root.symlink_to("elsewhere")
    return layout.root


def is_a_file(layout: Layout) -> Path:
    layout.root.rename(layout.root.with_name("elsewhere"))
    layout.root.touch()
    return layout.root


def lies_in_a_writable_directory(layout: Layout) -> Path:
    layout.root.parent.chmod(0o777)
    return layout.root.parent


def has_a_writable_lease(layout: Layout) -> Path:
    layout.lease.touch()
    layout.lease.chmod(0o666)
    return layout.lease


def has_a_writable_program(layout: Layout) -> Path:
    layout.program.chmod(0o775)
    return layout.program


def has_a_link_for_a_program(layout: Layout) -> Path:
    layout.program.unlink()
    layout.program.symlink_to("/bin/true")
    return layout.program


def has_a_link_for_a_lock(layout: Layout) -> Path:
    layout.lock.symlink_to("/etc/hostname")
    return layout.lock


def has_a_link_for_its_generations(layout: Layout) -> Path:
    layout.generations.rename(layout.root.with_name("elsewhere"))
    layout.generations.symlink_to(layout.root.with_name("elsewhere"))
    return layout.generations


def has_a_hard_link_for_a_journal(layout: Layout) -> Path:
    layout.root.with_name("shadow").write_text("root:*:1\n")
    os.link(layout.root.with_name("shadow"), layout.journal)
    return layout.journal


def has_a_pipe_for_a_transit(layout: Layout) -> Path:
    os.mkfifo(layout.transit)
    return layout.transit


ROOTS = [
    is_writable,
    is_a_link,
    is_a_file,
    lies_in_a_writable_directory,
    has_a_writable_lease,
    has_a_writable_program,
    has_a_link_for_a_program,
    has_a_link_for_a_lock,
    has_a_link_for_its_generations,
    has_a_hard_link_for_a_journal,
    has_a_pipe_for_a_transit,
]


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_nlink, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("spoil", ROOTS, ids=lambda each: each.__name__)
def test_a_root_that_others_could_change_is_refused_and_not_touched(
    machine: Machine, spoil: Callable[[Layout], Path]
) -> None:
    place = spoil(machine.ctx.layout)
    before = tree(machine.folder / "opt")
    for change in (machine.take_lease, lambda: adopt.adopt(machine.call(path=str(machine.path)))):
        with pytest.raises(Refused, match=f"`{place}`") as refusal:
            change()
        assert refusal.value.code == "unsafe"
        assert refusal.value.fix
    assert tree(machine.folder / "opt") == before


def test_a_mode_that_somebody_changed_meanwhile_does_not_keep_the_timer_from_reverting(
    machine: Machine, adopted: str
) -> None:
    epoch = machine.take_lease()
    activate.activate(machine.call(epoch, generation=machine.stage("0002-abcdef"), **TIMES))
    machine.ctx.root.chmod(0o777)
    with pytest.raises(Refused, match="can be written by others"):
        confirm.confirm(machine.call(epoch))
    machine.clock.now += 601
    assert deadman.fire(machine.ctx)["state"] == "reverted-proven"
    assert generations.current_id(machine.ctx.layout) == adopted


def test_a_new_root_is_not_made_where_others_could_move_it_away(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(Refused, match="can be written by others"):
        prepare_root(Layout(tmp_path / "shared" / "opt" / "cudaup"))
    assert list((tmp_path / "shared").iterdir()) == []


def test_a_root_whose_name_would_mean_something_else_in_a_unit_file(tmp_path: Path) -> None:
    for name in ("my root", "50%", "a'b", "a\nb", "a$b"):
        with pytest.raises(Refused, match="unit files"):
            prepare_root(Layout(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_a_renewal_that_replaces_the_lease_meanwhile_is_no_fault(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.ctx.root / ".lease.json.new").touch()
    real = os.lstat

    def lstat(path: str) -> os.stat_result:
        if path.endswith(".new"):
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr("cudaup.host.mounts.os.lstat", lstat)
    prepare_root(machine.ctx.layout)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_APPEND])
def test_a_file_of_ours_is_never_opened_through_a_link_or_a_pipe(tmp_path: Path, flags: int) -> None:
    target = tmp_path / "shadow"
    target.write_text("root:*:1\n")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "pipe"):
        with pytest.raises(Refused, match=f"`{tmp_path / name}` is"):
            files.open_own(tmp_path / name, flags)
    assert (target.read_text(), (tmp_path / "nothing").exists()) == ("root:*:1\n", False)


def test_another_name_of_a_file_hinders_writing_only(tmp_path: Path) -> None:
    """A backup may hold one; but what is changed in place could be anything's."""
    (tmp_path / "file").write_text("content")
    os.link(tmp_path / "file", tmp_path / "backup")
    assert files.read_own(tmp_path / "file") == b"content"
    with pytest.raises(Refused, match="2 names"):
        files.open_own(tmp_path / "file", os.O_RDWR)
    with pytest.raises(Refused, match="2 names"), locks.held(tmp_path / "file", "x", HandClock(), 0):
        pass
    (tmp_path / "backup").rename(tmp_path / "journal.jsonl")
    with pytest.raises(Refused, match="2 names"):
        Journal(Layout(tmp_path)).intent("x", 0, {})
    assert (tmp_path / "file").read_text() == "content"


def plant_link(shadow: Path, folder: Path) -> None:
    (folder / ".lease.json.new").symlink_to(shadow)


def plant_hard_link(shadow: Path, folder: Path) -> None:
    os.link(shadow, folder / ".lease.json.new")


def plant_link_as_the_old_one(shadow: Path, folder: Path) -> None:
    (folder / "lease.json").symlink_to(shadow)


@pytest.mark.parametrize("plant", [plant_link, plant_hard_link, plant_link_as_the_old_one])
def test_a_new_version_of_a_file_never_goes_through_what_lies_at_its_name(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    shadow = tmp_path / "shadow"
    shadow.write_text("root:*:1\n")
    plant(shadow, tmp_path)
    files.write_json(tmp_path / "lease.json", {"epoch": 7})
    assert json.loads((tmp_path / "lease.json").read_text()) == {"epoch": 7}
    assert (shadow.read_text(), shadow.stat().st_nlink) == ("root:*:1\n", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lease.json", "shadow"]


def test_a_name_that_is_taken_again_at_once_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is fast enough to plant it between two of our calls."""
    (tmp_path / "shadow").write_text("root:*:1\n")
    plant_link(tmp_path / "shadow", tmp_path)
    unlink = os.unlink

    def replanted(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        plant_link(tmp_path / "shadow", tmp_path)
        monkeypatch.undo()

    monkeypatch.setattr("cudaup.host.files.os.unlink", replanted)
    with pytest.raises(FileExistsError):
        files.write_atomic(tmp_path / "lease.json", b"new")
    assert sorted((path.name, path.read_text()) for path in tmp_path.iterdir()) == [("shadow", "root:*:1\n")]


def test_a_write_that_fails_leaves_the_old_file_and_no_half_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lease.json").write_text("old")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cudaup.host.files.os.write", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomic(tmp_path / "lease.json", b"new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("lease.json", "old")]


_UNDER = """
import os, sys
os.umask(int(sys.argv.pop(1), 8))
sys.path.insert(0, sys.argv.pop(1))
from cudaup.host.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("umask", ["000", "077"])
def test_modes_do_not_depend_on_the_umask(machine: Machine, umask: str) -> None:
    """Nobody else may write, and services of other users may read."""
    machine.systemd.stop("ml.service")
    archive = machine.folder / "program.zip"
    archive.write_bytes(zipapp())
    root = machine.folder / "srv" / "cudaup"
    for argv in (["host", "install"], ["adopt", str(machine.path)], ["gc"], ["lease", "show"]):
        command = [sys.executable, "-c", _UNDER, umask, str(archive), *argv, "--root", str(root)]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout
    places = [root.parent, root, *root.rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in places if not path.is_symlink()}
    folders = {path for path in modes if path.is_dir()}
    assert {modes.pop(path) for path in folders} == {0o755}
    assert {modes.pop(root / name) for name in ("lock", "lease.lock")} == {0o600}
    assert {modes.pop(path) for path in list(modes) if path.parent.name == "ballast"} == {0o600}
    assert modes.pop(root / "bin" / "cudaup-host") == 0o755
    assert set(modes.values()) == {0o644}
    assert {root / "journal.jsonl", root / "lease.json", root / "adopted.json"} <= set(modes)
