"""Part of the host program's archive in a sweep only: counts the journal's writes, and waits after one of them.

It knows the driver by files: what happened in this boot is in `RUN`, what to do in the next one in `NEXT_BOOT`.
"""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from cudaup.host.journal import Journal

RUN, NEXT_BOOT = Path("/run/cudaup-sweep"), Path("/etc/cudaup-sweep")
LOG, STOP, REACHED, GO = (RUN / name for name in ("log", "stop", "reached", "go"))
_LIMIT_S = 60  # a driver that is gone must not leave the host waiting
_POLL_S = 0.01


def _written(op: str, phase: str) -> None:
    """One more write is on the disk."""
    if not RUN.is_dir():
        if not NEXT_BOOT.exists():
            return
        RUN.mkdir(exist_ok=True)
    point = _point(f"{op} {phase}")
    if point == _stop():
        _wait({"point": point, "pid": os.getpid()})


def _point(line: str) -> str:
    """Its name and how often it has come. Under a lock: several processes of the program write at once."""
    with LOG.open("a+") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.write(f"{line}\n")
        log.flush()
        log.seek(0)
        count = log.read().splitlines().count(line)
    return line if count == 1 else f"{line}#{count}"


def _stop() -> str:
    for path in (STOP, NEXT_BOOT):
        try:
            return path.read_text()
        except FileNotFoundError:
            continue
    return ""


def _wait(here: dict[str, Any]) -> None:
    aside = REACHED.with_suffix(".new")
    aside.write_text(json.dumps(here))
    aside.rename(REACHED)
    limit = time.monotonic() + _LIMIT_S
    while not GO.exists() and time.monotonic() < limit:
        time.sleep(_POLL_S)
    for path in (REACHED, GO):
        path.unlink(missing_ok=True)


_append, _intent, _outcome = Journal._append, Journal.intent, Journal._outcome  # noqa: SLF001 - no hook in the product


def _append_and_remember(self: Journal, fd: int, entry: dict[str, Any]) -> None:
    _append(self, fd, entry)
    self.__dict__["last_written"] = (entry["op"], entry["phase"])


def _intent_and_wait(self: Journal, op: str, epoch: int, detail: dict[str, Any]) -> int:
    seq = _intent(self, op, epoch, detail)
    _written(*self.__dict__["last_written"])
    return seq


def _outcome_and_wait(self: Journal, seq: int, phase: str, detail: dict[str, Any] | None) -> None:
    _outcome(self, seq, phase, detail)
    _written(*self.__dict__["last_written"])


# Waiting is done outside the journal's own lock, which a dead process would not hold either.
setattr(Journal, "_append", _append_and_remember)  # noqa: B010 - mypy forbids the plain assignment
setattr(Journal, "intent", _intent_and_wait)  # noqa: B010
setattr(Journal, "_outcome", _outcome_and_wait)  # noqa: B010
