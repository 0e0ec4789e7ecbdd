from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudaup.host.command import run
from cudaup.host.contained import run_contained

ENV = {"PATH": "/usr/bin:/bin"}


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while not is_gone(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def pid_in(path: Path) -> int:
    deadline = time.monotonic() + 5
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.01)
    return int(path.read_text())


def test_streams_and_code_are_kept_apart() -> None:
    ran = run(["sh", "-c", "echo out; echo err >&2; exit 3"], 5)
    assert (ran.code, ran.out, ran.err, ran.stopped) == (3, "out\n", "err\n", "")
    assert ran.why() == "exit code 3"


def test_a_signal_is_told() -> None:
    assert run(["sh", "-c", "kill -SEGV $$"], 5).why() == "killed by signal 11"


def test_output_is_bounded_and_its_end_is_kept() -> None:
    ran = run(["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo end"], 20)
    assert len(ran.out) == 64 * 1024
    assert ran.out.endswith("xend\n")


def test_a_command_that_never_stops_talking_meets_its_limit() -> None:
    ran = run(["yes"], 0.2)
    assert (ran.code, ran.stopped) == (None, "no end after 0.2 s")
    assert ran.seconds < 2


def test_a_background_child_with_the_pipe_does_not_prolong_it() -> None:
    began = time.monotonic()
    ran = run(["sh", "-c", "sleep 3 & echo $!"], 10)
    os.kill(int(ran.out), signal.SIGKILL)
    assert ran.is_ok
    assert time.monotonic() - began < 2


def test_it_stops_on_request() -> None:
    ran = run(["sleep", "60"], 60, should_stop=lambda: True)
    assert ran.stopped == "stopped on request"


def test_contained_ends_as_the_command_ended() -> None:
    assert run_contained(["sh", "-c", "exit 5"], 5, ENV).code == 5
    assert run_contained(["sh", "-c", "kill -ABRT $$"], 5, ENV).code == -signal.SIGABRT


def test_contained_says_what_could_not_be_started() -> None:
    ran = run_contained(["no-such-program"], 5, ENV)
    assert (ran.code, ran.err) == (127, "no-such-program: No such file or directory\n")


def test_what_left_its_session_is_ended_with_the_command(tmp_path: Path) -> None:
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; sleep 60' & while ! test -s {tmp_path}/pid; do :; done"
    assert run_contained(["sh", "-c", script], 10, ENV).is_ok
    assert is_gone(pid_in(tmp_path / "pid"))


def test_what_left_its_session_is_ended_at_the_limit(tmp_path: Path) -> None:
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; sleep 60' & sleep 60"
    assert run_contained(["sh", "-c", script], 0.5, ENV).stopped == "no end after 0.5 s"
    assert is_gone(pid_in(tmp_path / "pid"))


@pytest.mark.parametrize("leaves", ["", "setsid "])
def test_nothing_outlives_a_killed_host_program(tmp_path: Path, leaves: str) -> None:
    script = f"{leaves}sh -c 'echo $$ > {tmp_path}/pid; sleep 60' & wait"
    program = f"from cudaup.host.contained import run_contained; run_contained(['sh', '-c', {script!r}], 60, {ENV!r})"
    caller = subprocess.Popen([sys.executable, "-c", program])
    victim = pid_in(tmp_path / "pid")
    caller.kill()
    caller.wait()
    assert wait_until_gone(victim)
