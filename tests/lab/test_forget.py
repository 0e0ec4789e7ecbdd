"""`forget` on real hosts: the whole filesystem is as it was, and what stands in its way is refused, never lost."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab.command import Cudaup, by_hand, service, small_stack
from tests.lab.conftest import take_down, unique_name
from tests.waiting import eventually

from cudaup.adapters.hostprogram import zipapp
from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab

HOST = "h1"
ENV = "/root/ml-env"
# Of every name. A folder has no size of its own.
_PICTURE = """
import hashlib, json, os, stat
found = {}
for top, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(top, name) not in ("/proc", "/sys", "/dev")]
    for name in folders + files:
        path = os.path.join(top, name)
        info = os.lstat(path)
        is_file, is_folder = stat.S_ISREG(info.st_mode), stat.S_ISDIR(info.st_mode)
        found[path] = {
            "mode": info.st_mode,
            "owner": [info.st_uid, info.st_gid],
            "size": None if is_folder else info.st_size,
            "mtime": info.st_mtime_ns,
            "link": os.readlink(path) if stat.S_ISLNK(info.st_mode) else None,
            "content": hashlib.sha256(open(path, "rb").read()).hexdigest() if is_file else None,
            "inode": info.st_ino,
            "names": None if is_folder else info.st_nlink,
        }
print(json.dumps(found))
"""
# What systemd and its journal write at every start of a unit and every daemon-reload.
_SYSTEMS_OWN = (
    "/run/log/journal/",
    "/run/systemd/journal/",
    "/run/systemd/generator",
    "/run/systemd/units",
    "/run/systemd/transient",
    "/run/systemd/systemd-units-load",
)
# A folder's own time tells when a name in it last came or went, and in these one did.
_TOUCHED = {
    "/etc/systemd/system",
    "/etc/systemd/system/multi-user.target.wants",
    "/opt",
    "/root",
    "/run",
    "/run/systemd",
    "/tmp",  # noqa: S108 - the host's
}
# The lab's overlay copies a folder up, as a new inode, before anything below it changes.
_COPIED_UP = {"/etc", "/etc/systemd", *_TOUCHED}
# What `systemctl show` tells of a unit's last start, not of the unit.
_OF_A_START = (
    "PID",
    "Timestamp",
    "InvocationID",
    "CPUUsage",
    "Memory",
    "ControlGroupId",
    "ExecStart",
    "TasksCurrent",
    "IP",
    "IO",
)

Picture = dict[str, dict[str, Any]]


@pytest.fixture
def cudaup(tmp_path: Path) -> Cudaup:
    return Cudaup(tmp_path / "state")


def picture(lab: Lab) -> Picture:
    found: Picture = json.loads(lab.run(HOST, ["python3", "-B", "-c", _PICTURE]).stdout)
    for path in _TOUCHED:
        found[path]["mtime"] = None
    for path in _COPIED_UP:
        found[path]["inode"] = None
    return {path: entry for path, entry in found.items() if not path.startswith(_SYSTEMS_OWN)}


def assert_same(before: Picture, after: Picture) -> None:
    assert sorted(after.keys() ^ before.keys()) == []
    changed = {path: (before[path], after[path]) for path in before if before[path] != after[path]}
    assert changed == {}


def units(lab: Lab) -> dict[str, object]:
    """What systemd knows of the service, and of every unit: which are there, in which state, enabled or not."""
    shown = lab.run(HOST, ["systemctl", "show", "ml.service"]).stdout
    pairs = (line.split("=", 1) for line in shown.splitlines())
    # Systemd tells sets in any order.
    settings = {key: sorted(value.split()) for key, value in pairs if not any(word in key for word in _OF_A_START)}
    listed = lab.run(HOST, ["systemctl", "list-units", "--all", "--plain", "--no-legend"]).stdout
    files = lab.run(HOST, ["systemctl", "list-unit-files", "--no-legend"]).stdout
    return {"ml.service": settings, "units": sorted(listed.splitlines()), "files": sorted(files.splitlines())}


def shell(lab: Lab, script: str) -> str:
    return lab.run(HOST, ["sh", "-ec", script]).stdout


def test_after_two_upgrades_and_a_rollback_the_whole_host_is_as_before(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory()
    files, services = picture(lab), units(lab)
    assert files[f"{ENV}/bin/tabulate"]["content"]
    for variant in ("one", "two"):
        stack = small_stack(tmp_path, variant)
        assert cudaup.outcomes("apply", "-i", lab.inventory, "-s", stack, "--yes") == {HOST: "applied"}
    theirs = "-not -path '/opt/cudaup/uv-cache/*' \\( -not -user root -or -not -type l -perm /022 \\)"
    assert shell(lab, f"find /opt/cudaup /etc/systemd/system {theirs}") == ""
    assert shell(lab, "stat -c '%a %U' /opt/cudaup/uv-cache") == "700 root\n"
    # The old console script names the path, and the path leads to the new stack; its own Python still is the old one.
    aside = shell(lab, "ls -d /root/.ml-env.*").strip()
    reached = f"$(head -1 {aside}/bin/tabulate | cut -c3-) -c 'import msgpack; print(msgpack.version)'"
    assert shell(lab, reached) == "(1, 2, 4)\n"
    assert shell(lab, f"{aside}/bin/python -B -c 'import msgpack; print(msgpack.version)'") == "(1, 0, 8)\n"

    assert cudaup.outcomes("rollback", "-i", lab.inventory, "--to", "1", expect=4) == {HOST: "rolled-back"}
    assert by_hand(lab, HOST, "forget")["kind"] == "result"
    assert_same(files, picture(lab))
    assert units(lab) == services
    assert service(lab, HOST)["versions"]["msgpack"] == "1.0.8"


def test_what_failed_on_the_way_goes_too(lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path) -> None:
    """A generation that failed its health, a host in quarantine, a unit that failed, a root that was tried beside."""
    lab = lab_factory()
    files, services = picture(lab), units(lab)
    # Well before the switch, and never again: so neither the new stack nor the way back can be proven.
    once = ["sh", "-c", "test ! -e /run/asked && touch /run/asked"]
    sick = small_stack(tmp_path, "sick", health={"command": once, "timeout_s": 1})
    assert cudaup.outcomes("apply", "-i", lab.inventory, "-s", sick, "--yes", expect=5) == {HOST: "rollback-unproven"}
    refused = by_hand(lab, HOST, "forget")
    assert (refused["kind"], refused["code"]) == ("refused", "quarantined")
    assert "lease clear" in refused["fix"]
    assert shell(lab, "ls /opt/cudaup/failed") != ""

    second = by_hand(lab, HOST, "host", "install", "--root", "/srv/cudaup")
    assert (second["code"], "belongs to another root" in second["text"]) == ("unsupported", True)
    program = "/opt/cudaup/bin/cudaup-host"
    shell(lab, f"systemctl stop cudaup-recover; mv {program} {program}-; systemctl start cudaup-recover || true")
    assert "failed" in shell(lab, f"mv {program}- {program}; systemctl show -p ActiveState cudaup-recover")

    shell(lab, "rm /run/asked")
    assert by_hand(lab, HOST, "lease", "clear")["kind"] == "result"
    assert by_hand(lab, HOST, "forget")["kind"] == "result"
    assert_same(files, picture(lab))
    assert units(lab) == services


# One host that cudaup has never seen; each refusal is prepared, asked for and undone on it.


@pytest.fixture(scope="module")
def untouched() -> Iterator[Lab]:
    name = unique_name()
    try:
        lab = Lab.up(name, hosts=1)
        program = base64.b64encode(zipapp()).decode()
        lab.run(HOST, ["sh", "-c", "base64 -d >/usr/local/bin/cudaup-host.pyz"], input=program)
        shell(lab, "useradd -u 1000 ann")
        yield lab
    finally:
        take_down(name)


def asked(lab: Lab, *arguments: str) -> dict[str, Any]:
    done = lab.run(HOST, ["python3", "/usr/local/bin/cudaup-host.pyz", *arguments], check=False)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


_FLAG = """python3 -c '
import array, fcntl, os
fd = os.open("/root/ml-env", os.O_RDONLY)
fcntl.ioctl(fd, 0x40086602, array.array("l", [{flag}]))'"""
_CONTAINER = (
    "mkdir -p /srv/box/bin; cp /bin/busybox /srv/box/bin; systemd-run --quiet --unit=box "
    "--property=RootDirectory=/srv/box --property=BindPaths={bind} /bin/busybox sleep 600"
)
_NO_CONTAINER = "systemctl stop box; rm -r /srv/box"

REFUSALS = {
    "its parent is somebody else's": (
        "mkdir -p /srv/ann; cp -a /root/ml-env /srv/ann/; chown 1000 /srv/ann",
        "/srv/ann/ml-env",
        "`/srv/ann` (uid 1000, gid 0, mode 0755) belongs to another user, and so the environment could be replaced",
        "chown 0 /srv/ann",
        "rm -r /srv/ann",
    ),
    "above it is somebody else's": (
        "mkdir -p /srv/ann/deep; cp -a /root/ml-env /srv/ann/deep/; chown ann /srv/ann",
        "/srv/ann/deep/ml-env",
        "`/srv/ann` (uid 1000",
        "chown 0 /srv/ann",
        "rm -r /srv/ann",
    ),
    "somebody else's in a sticky directory": (
        "mkdir /srv/t; chmod 1777 /srv/t; mkdir /srv/t/ann; cp -a /root/ml-env /srv/t/ann; chown ann /srv/t/ann",
        "/srv/t/ann/ml-env",
        "`/srv/t` (uid 0, gid 0, mode 1777) can be written by others",
        "chmod go-w /srv/t",
        "rm -r /srv/t",
    ),
    "one file in it is": (
        "touch /root/ml-env/bin/x; chown ann /root/ml-env/bin/x",
        ENV,
        "`/root/ml-env/bin/x` (uid 1000, gid 0, mode 0644) belongs to another user",
        "chown -R 0 /root/ml-env; chmod -R go-w /root/ml-env",
        "rm /root/ml-env/bin/x",
    ),
    "a group of others may write in it": (
        "touch /root/ml-env/bin/x; chgrp ann /root/ml-env/bin/x; chmod 664 /root/ml-env/bin/x",
        ENV,
        "`/root/ml-env/bin/x` (uid 0, gid 1000, mode 0664) can be written by others",
        "chmod -R go-w /root/ml-env",
        "rm /root/ml-env/bin/x",
    ),
    "a mount point": ("mount --bind /root/ml-env /root/ml-env", ENV, "it is a mount point", "", "umount /root/ml-env"),
    "something mounted in it": (
        "mount -t tmpfs x /root/ml-env/include",
        ENV,
        "`/root/ml-env/include` is mounted inside it",
        "unmount it",
        "umount /root/ml-env/include",
    ),
    "read-only": (
        "mount --bind /root /root; mount -o remount,bind,ro /root",
        ENV,
        "`/root` is mounted read-only",
        "",
        "umount /root",
    ),
    "mounted elsewhere": (
        "mkdir /srv/env; mount --bind /root/ml-env /srv/env",
        ENV,
        "it is mounted elsewhere, perhaps in a container: `/srv/env` of pid 1",
        "end what mounts it",
        "umount /srv/env; rmdir /srv/env",
    ),
    "mounted into a container": (
        _CONTAINER.format(bind="/root/ml-env:/env"),
        ENV,
        "perhaps in a container: `/env` of pid ",
        "end what mounts it",
        _NO_CONTAINER,
    ),
    "its parent mounted into a container": (
        _CONTAINER.format(bind="/root:/data"),
        ENV,
        "perhaps in a container: `/data/ml-env` of pid ",
        "end what mounts it",
        _NO_CONTAINER,
    ),
    "immutable": (
        _FLAG.format(flag="0x10"),
        ENV,
        "`/root/ml-env` has the immutable or append-only flag",
        "chattr -i -a /root/ml-env",
        _FLAG.format(flag="0"),
    ),
    "fapolicyd": (
        "cp /bin/sleep /usr/local/bin/fapolicyd; systemd-run --quiet --unit=fapolicyd /usr/local/bin/fapolicyd 600",
        ENV,
        "fapolicyd runs (pid ",
        "",
        "systemctl stop fapolicyd; rm /usr/local/bin/fapolicyd",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_adopted_is_told_and_left_as_it_is(untouched: Lab, name: str) -> None:
    prepare, path, reason, fix, undo = REFUSALS[name]
    shell(untouched, prepare)
    try:
        before = picture(untouched)
        eventually(
            lambda: reason in str(asked(untouched, "facts", "--env", path)["data"]["environment"]["unfit"]), reason
        )
        refused = asked(untouched, "adopt", path)
        assert (refused["kind"], refused["code"]) == ("refused", "unsafe")
        assert reason in refused["text"]
        assert fix in refused["fix"]
        assert_same(before, picture(untouched))  # not even cudaup's own directory was made
    finally:
        shell(untouched, undo)
    assert asked(untouched, "facts", "--env", ENV)["data"]["environment"]["unfit"] is None


def test_a_sandboxed_service_is_no_hindrance(untouched: Lab) -> None:
    """It has a mount namespace of its own, with the home of root mounted once more."""
    sandbox = "--property=ProtectSystem=strict --property=ReadWritePaths=/root"
    shell(untouched, f"systemd-run --quiet --unit=box {sandbox} /bin/busybox sleep 600")
    try:
        main = shell(untouched, "systemctl show -P MainPID box").strip()
        eventually(lambda: " /root /root rw" in shell(untouched, f"cat /proc/{main}/mountinfo"), "it is in its sandbox")
        assert asked(untouched, "facts", "--env", ENV)["data"]["environment"]["unfit"] is None
    finally:
        shell(untouched, "systemctl stop box")


def test_a_plan_names_it(untouched: Lab, cudaup: Cudaup, tmp_path: Path) -> None:
    shell(untouched, "chmod g+w /root")
    try:
        plan = ("plan", "-i", untouched.inventory, "-s", small_stack(tmp_path, "unfit"))
        told = cudaup.run(*plan, expect=3)
    finally:
        shell(untouched, "chmod g-w /root")
    assert "E007" in told
    assert "`/root` (uid 0, gid 0, mode 0720) can be written by others" in told
    assert "chmod go-w /root" in told


def test_a_root_of_somebody_else_is_refused_by_every_change(untouched: Lab) -> None:
    shell(untouched, "mkdir /opt/cudaup; chown ann /opt/cudaup")
    try:
        before = picture(untouched)
        take = ("lease", "take", "--holder", "a", "--run", "r", "--reason", "x", "--ttl", "9")
        for change in (take, ("host", "install"), ("adopt", ENV), ("gc",), ("forget",)):
            refused = asked(untouched, *change)
            assert (refused["code"], refused["fix"]) == ("unsafe", "chown 0 /opt/cudaup")
            assert "`/opt/cudaup` (uid 1000, gid 0, mode 0755) belongs to another user" in refused["text"]
        assert_same(before, picture(untouched))
    finally:
        shell(untouched, "rmdir /opt/cudaup")


def test_what_another_user_called_forgotten_is_not_swept_away(untouched: Lab) -> None:
    shell(
        untouched, "mkdir -p /srv/t/cudaup.forgotten-7 /srv/t/cudaup.forgotten-8; chown ann /srv/t/cudaup.forgotten-7"
    )
    try:
        assert asked(untouched, "forget", "--root", "/srv/t/cudaup")["kind"] == "result"
        assert shell(untouched, "ls /srv/t") == "cudaup.forgotten-7\n"
    finally:
        shell(untouched, "rm -r /srv/t")
