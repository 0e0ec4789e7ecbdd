"""Runs a command that must leave nothing behind: when it ends, at its limit, or when the host program itself dies."""

import os
import pkgutil
import signal
import subprocess
import sys
from typing import Callable, Mapping, Sequence

from cudaup.host.command import Process, Ran, kill_group, run

_SWEEP_S = 5.0


def run_contained(
    argv: Sequence[str],
    limit_s: float,
    env: Mapping[str, str],
    cwd: str = "/",
    should_stop: Callable[[], bool] = lambda: False,
) -> Ran:
    """Like `run`, but descendants that left the process group are ended too. Code 127: could not be started."""
    source = pkgutil.get_data("cudaup.host", "supervise.py")  # also from inside a zip in memory
    supervisor = [sys.executable, "-S", "-E", "-c", (source or b"").decode(), str(os.getpid())]
    return run([*supervisor, *argv], limit_s, env=env, cwd=cwd, should_stop=should_stop, kill=_ask_to_sweep)


def _ask_to_sweep(process: "Process[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_SWEEP_S)
    except subprocess.TimeoutExpired:
        kill_group(process)
