"""The program as it lies on a host: one file, its own processes, real time. Without systemd, as in a container."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.host_state.machine import Machine

from cudaup.adapters.hostprogram import digest, zipapp
from cudaup.host import generations, transit
from cudaup.host.protocol import Json

NEW = "0002-abcdef"
LIMIT_S = 90

# The file is used as its own archive; whatever runs the tests, this host has no systemd.
_START = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from cudaup.host import systemd
systemd.Systemd.is_running = lambda self: False
from cudaup.host.__main__ import main
sys.exit(main())
"""


class Program:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.archive = machine.folder / "program.zip"
        self.archive.write_bytes(zipapp())

    def start(self, *argv: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", _START, str(self.archive), *argv, "--root", str(self.machine.ctx.root)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def __call__(self, *argv: str) -> Json:
        out, _ = self.start(*argv).communicate(timeout=LIMIT_S)
        answer: Json = json.loads(out.splitlines()[-1])
        return answer

    def activate(self) -> "subprocess.Popen[bytes]":
        taken = self("lease", "take", "--holder", "ann", "--run", "r-1", "--reason", "test", "--ttl", "60")
        epoch = str(taken["data"]["lease"]["epoch"])
        times = ("--ttl", "6", "--ceiling", "60", "--suite", '{"cases": ["record"]}')
        return self.start("activate", NEW, "--epoch", epoch, *times)


@pytest.fixture
def program(machine: Machine) -> Program:
    """Installed, the environment adopted, a new generation staged."""
    machine.systemd.stop("ml.service")
    ready = Program(machine)
    assert ready("host", "install")["data"] == {"changed": True, "sha256": digest()}
    assert ready("adopt", str(machine.path))["data"]["units"] == []
    machine.stage(NEW)
    return ready


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "not within the limit"
        time.sleep(0.02)


def phase(machine: Machine) -> str:
    pending = transit.read(machine.ctx.layout)
    return pending.phase if pending else ""


def test_it_installs_itself_once_and_runs_by_hand(program: Program) -> None:
    assert program("host", "install")["data"] == {"changed": False, "sha256": digest()}
    installed = program.machine.ctx.layout.program
    assert installed.read_bytes() == b"#!/usr/bin/env python3\n" + zipapp()
    done = subprocess.run([installed, "status", "--root", program.machine.ctx.root], capture_output=True, check=True)
    assert json.loads(done.stdout)["data"]["installed_sha256"] == digest()
    forgotten = subprocess.run(
        [installed, "forget", "--root", program.machine.ctx.root], capture_output=True, check=True
    )
    assert json.loads(forgotten.stdout)["data"]["changed"] is True
    assert (installed.exists(), program.machine.path.is_symlink()) == (False, False)


def change_a_byte(installed: Path) -> None:
    content = bytearray(installed.read_bytes())
    content[len(content) // 2] ^= 1
    installed.write_bytes(content)


def change_its_interpreter(installed: Path) -> None:
    installed.write_bytes(installed.read_bytes().replace(b"env python3", b"env pythonX", 1))


def make_it_another_mode(installed: Path) -> None:
    installed.chmod(0o700)


@pytest.mark.parametrize("spoil", [change_a_byte, change_its_interpreter, make_it_another_mode])
def test_nothing_is_armed_when_the_timer_would_run_something_else(
    program: Program, spoil: Callable[[Path], None]
) -> None:
    installed = program.machine.ctx.layout.program
    spoil(installed)
    answer = json.loads(program.activate().communicate(timeout=LIMIT_S)[0].splitlines()[-1])
    assert (answer["kind"], answer["code"]) == ("refused", "unsafe")
    assert str(installed) in answer["text"]
    assert not program.machine.ctx.layout.transit.exists()
    assert generations.current_id(program.machine.ctx.layout) != NEW


def test_a_changed_program_is_told_and_replaced(program: Program) -> None:
    installed = program.machine.ctx.layout.program
    change_a_byte(installed)
    assert program("status")["data"]["installed_sha256"] not in {None, digest()}
    assert program("host", "install", "--dry-run")["data"]["would"] == f"install `{installed}`"
    assert program("host", "install")["data"] == {"changed": True, "sha256": digest()}
    assert program("status")["data"]["installed_sha256"] == digest()
    assert program("host", "install")["data"]["changed"] is False


def test_what_may_not_be_run_has_no_digest(program: Program) -> None:
    installed = program.machine.ctx.layout.program
    installed.chmod(0o777)
    assert program("status")["data"]["installed_sha256"] is None
    refused = program("host", "install")
    assert (refused["code"], refused["fix"]) == ("unsafe", f"chmod go-w {installed}")


def test_a_real_timer_puts_the_host_back_when_nobody_confirms(program: Program) -> None:
    out, _ = program.activate().communicate(timeout=LIMIT_S)
    assert json.loads(out.splitlines()[-1])["data"]["state"] == "awaiting-confirm"
    assert generations.current_id(program.machine.ctx.layout) == NEW
    _assert_put_back(program, NEW)


@pytest.mark.parametrize("moment", [transit.STOPPED, transit.SWITCHED])
def test_a_killed_activate_is_put_back_by_the_real_timer(program: Program, moment: str) -> None:
    process = program.activate()
    until(lambda: phase(program.machine) in {moment, transit.AWAITING_CONFIRM})
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _assert_put_back(program, NEW)


def _assert_put_back(program: Program, new: str) -> None:
    layout = program.machine.ctx.layout
    until(lambda: not layout.transit.exists())
    current = generations.current_id(layout)
    assert current not in {None, new}
    evidence = json.loads((layout.failed / f"{new}.json").read_text())
    assert (evidence["verdict"], evidence["problems"]) == ("proven", [])
    until(lambda: bool(program("recover")["data"]["state"]))
    assert program("recover")["data"] == {"state": "clean", "actions": []}
    assert Path(os.path.realpath(program.machine.path)).name == f".ml-env.{current}"
