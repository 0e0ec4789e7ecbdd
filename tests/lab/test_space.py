"""A disk without a free block or inode, one gone read-only, and what `gc`, evidence and caches leave on a disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.lab.command import Cudaup, by_hand, service, small_stack
from tests.lab.conftest import take_down, unique_name

from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab

HOST = "h1"
OLD = {"msgpack": "1.0.8", "packaging": "23.2"}
NEW = {"msgpack": "1.2.4", "packaging": "26.4"}
ROOT = "/opt/cudaup"
# Whoever filled a disk goes on: it takes what becomes free, until it is killed. Memory is not part of that disk.
GREEDY = """
import os, sys, time
os.mkdir("/greedy")
count, blocks = 0, os.open("/greedy/blocks", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
def takes_inode():
    global count
    try:
        os.close(os.open(f"/greedy/{count}", os.O_CREAT | os.O_WRONLY))
    except OSError:
        return False
    count += 1
    return True
def takes(size):
    try:
        return os.write(blocks, b"x" * size) > 0
    except OSError:
        return False
while (sys.argv[1] == "inodes too" and takes_inode()) or takes(1 << 20) or takes(512):
    pass
pid = os.fork()
if pid:
    print(pid)
    sys.exit()
os.setsid()
for fd in (0, 1, 2):
    os.dup2(os.open("/dev/null", os.O_RDWR), fd)
while True:
    if not ((sys.argv[1] == "inodes too" and takes_inode()) or takes(512)):
        time.sleep(0.0005)
"""
# A journal as it is where the filesystem can allocate nothing beforehand, just as its last block is full.
WITHOUT_ROOM = """
import os
path = "/opt/cudaup/journal.jsonl"
content = open(path, "rb").read()
with open(path + ".copy", "wb") as copy:
    copy.write(content + b"\\n" * (-len(content) % 4096))
os.rename(path + ".copy", path)
"""
DIES = "import os, sys\nif os.environ.get('CUDAUP_TEST') == 'broken': sys.exit('no kernel image is available')\n"


@pytest.fixture(scope="module")
def cudaup(tmp_path_factory: pytest.TempPathFactory) -> Cudaup:
    return Cudaup(tmp_path_factory.mktemp("space") / "state")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, cudaup: Cudaup) -> Iterator[Lab]:
    """One host with a real filesystem, on its new generation; its service dies on the stack `broken`."""
    name, folder = unique_name(), tmp_path_factory.mktemp("stacks")
    try:
        lab = Lab.up(name, hosts=1, disk="ext4:1g")
        lab.run(HOST, ["sh", "-c", "cat - /opt/ml/serve.py >/tmp/s && cp /tmp/s /opt/ml/serve.py"], input=DIES)
        cudaup.run("apply", "-i", lab.inventory, "-s", small_stack(folder, "new"), "--yes")
        assert service(lab, HOST)["versions"] == NEW
        yield lab
    finally:
        take_down(name)


@contextmanager
def full(lab: Lab, what: str, *, goes_on: bool = True) -> Iterator[None]:
    pid = lab.run(HOST, ["python3", "-", what], input=GREEDY).stdout.strip()
    try:
        if not goes_on:
            lab.run(HOST, ["kill", "-9", pid])
        assert room(lab, "f_bavail") == 0
        assert what != "inodes too" or room(lab, "f_favail") == 0
        yield
        assert not goes_on or room(lab, "f_bavail") == 0
    finally:
        lab.run(HOST, ["kill", "-9", pid], check=goes_on)
        lab.run(HOST, ["rm", "-r", "/greedy"])


def room(lab: Lab, field: str) -> int:
    return int(lab.run(HOST, ["python3", "-c", f"import os; print(os.statvfs('/').{field})"]).stdout)


def told(lab: Lab, *arguments: str) -> dict[str, Any]:
    answer = by_hand(lab, HOST, *arguments)
    assert answer["kind"] == "result", answer
    data: dict[str, Any] = answer["data"]
    return data


def evidence(lab: Lab, generation: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.run(HOST, ["cat", f"{ROOT}/failed/{generation}.json"]).stdout)
    return found


def ballast(lab: Lab) -> int:
    return len(lab.run(HOST, ["ls", f"{ROOT}/ballast"]).stdout.split())


def pid_of_service(lab: Lab) -> str:
    return lab.run(HOST, ["systemctl", "show", "-P", "MainPID", "ml.service"]).stdout.strip()


def test_a_rollback_needs_no_free_block_and_no_free_inode(lab: Lab, cudaup: Cudaup) -> None:
    new = told(lab, "status")["current"]["id"]
    with full(lab, "inodes too"):
        assert told(lab, "rollback")["state"] == "rolled-back-proven"
        assert service(lab, HOST)["versions"] == OLD
        assert evidence(lab, new)["verdict"] == "proven"
        assert cudaup.outcomes("rollback", "-i", lab.inventory, "--to", new, expect=4) == {HOST: "rolled-back"}
        assert service(lab, HOST)["versions"] == NEW
        assert told(lab, "recover") == {"state": "clean", "actions": []}
    assert told(lab, "verify")["ok"]


def test_a_rollback_needs_no_free_block_on_a_tmpfs(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(disk="tmpfs:700m")
    cudaup.run("apply", "-i", lab.inventory, "-s", small_stack(tmp_path, "new"), "--yes")
    with full(lab, "blocks"):
        assert cudaup.outcomes("rollback", "-i", lab.inventory, expect=4) == {HOST: "rolled-back"}
        assert service(lab, HOST)["versions"] == OLD
    lab.run(HOST, ["python3", "-"], input=WITHOUT_ROOM)
    with full(lab, "blocks", goes_on=False):
        assert told(lab, "rollback", "--to", told(lab, "status")["previous"]["id"])["state"] == "rolled-back-proven"
        assert service(lab, HOST)["versions"] == NEW


def test_a_rollback_on_a_read_only_disk_says_what_it_could_not_do_and_stops_nothing(lab: Lab, cudaup: Cudaup) -> None:
    current, pid = told(lab, "status")["current"]["id"], pid_of_service(lab)
    lab.fault(HOST, "readonly")
    try:
        refused = by_hand(lab, HOST, "rollback")
        words = f"`rollback` was not begun: Read-only file system: `{ROOT}/lock`; nothing was stopped or changed"
        assert (refused["kind"], refused["code"]) == ("refused", "unsupported")
        assert refused["text"] == f"{words}, the host stays on {current}"
        said = cudaup.run("rollback", "-i", lab.inventory, expect=3)
        assert f"nothing was stopped or changed, the host stays on {current}" in said
        assert "1 refused; exit code 3" in said
        assert told(lab, "verify")["ok"]
        assert pid_of_service(lab) == pid
    finally:
        lab.fault(HOST, "restore")
    assert told(lab, "rollback")["state"] == "rolled-back-proven"
    assert told(lab, "rollback", "--to", current)["state"] == "rolled-back-proven"


def test_evidence_outlives_its_generation_and_gc_works_on_a_full_disk(lab: Lab, cudaup: Cudaup, tmp_path: Path) -> None:
    outcome = cudaup.outcomes("apply", "-i", lab.inventory, "-s", small_stack(tmp_path, "broken"), "--yes", expect=4)
    assert outcome == {HOST: "rolled-back"}
    (failed,) = [each["id"] for each in told(lab, "status")["generations"] if each["name"] == "small-broken"]
    found = evidence(lab, failed)
    assert "no kernel image is available" in found["log"]
    assert found["record"]["packages"] == NEW
    assert [case["case"] for case in found["record"]["smoke"]["cases"]] == ["imports", "record"]

    with full(lab, "inodes too"):
        answer = told(lab, "gc")
    assert answer["removed"] == [failed]
    assert {each["why"] for each in answer["kept"]} == {"current", "previous"}
    assert evidence(lab, failed) == found
    assert told(lab, "verify")["ok"]
    before = ballast(lab)
    told(lab, "gc")  # there is room again
    assert (before < 64, ballast(lab)) == (True, 64)


def test_gc_leaves_what_a_process_in_another_mount_namespace_uses(lab: Lab, tmp_path: Path, cudaup: Cudaup) -> None:
    stack = small_stack(tmp_path, "broken")
    cudaup.run("apply", "-i", lab.inventory, "-s", stack, "--yes", expect=4)
    (failed,) = [each["id"] for each in told(lab, "status")["generations"] if each["name"] == "small-broken"]
    sandbox = [
        f"--property=BindReadOnlyPaths={ROOT}/generations/{failed}:/mnt",
        "--property=WorkingDirectory=/mnt/venv",
    ]
    lab.run(HOST, ["systemd-run", "--unit=peek", *sandbox, "sleep", "600"])
    pid = lab.run(HOST, ["systemctl", "show", "-P", "MainPID", "peek.service"]).stdout.strip()
    answer = told(lab, "gc")
    assert {each["id"]: each["why"] for each in answer["kept"]}[failed] == f"used by pid {pid} (cwd)"
    lab.run(HOST, ["systemctl", "stop", "peek.service"])
    assert told(lab, "gc")["removed"] == [failed]


def test_a_service_writes_no_bytecode_into_its_generation_and_the_old_ones_own_may_change(lab: Lab) -> None:
    status = told(lab, "status")
    new, old = status["current"]["id"], status["previous"]["id"]
    assert service(lab, HOST)["versions"] == NEW
    assert lab.run(HOST, ["find", f"{ROOT}/generations/{new}/venv/", "-name", "__pycache__"]).stdout == ""
    cached = lab.run(HOST, ["find", f"{ROOT}/generations/{new}/cache/pycache/", "-name", "__init__*.pyc"]).stdout
    assert "/site-packages/msgpack/" in cached

    aside = f"{ROOT}/generations/{old}/venv/"
    own = lab.run(HOST, ["find", aside, "-path", "*/msgpack/__pycache__/__init__*"]).stdout.strip()
    assert own
    lab.run(HOST, ["sh", "-c", f"echo >>{own}; rm -r {aside}/lib/python3*/site-packages/packaging/__pycache__"])
    assert told(lab, "verify", old, "--full") == told(lab, "verify", old) | {"mode": "full"}
    assert told(lab, "verify", old)["ok"]
