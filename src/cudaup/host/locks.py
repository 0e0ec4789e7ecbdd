"""Advisory locks on files, with a time limit and the holder's name."""

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from cudaup.host.clock import Clock
from cudaup.host.files import open_own, read_own
from cudaup.host.protocol import Json, Refused

_POLL_S = 0.05


@contextmanager
def held(path: Path, purpose: str, clock: Clock, wait_s: float) -> Iterator[None]:
    """Hold the lock at `path`. Refused `busy`, naming who holds it, when that takes longer than `wait_s`."""
    fd = open_own(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(fd, path, clock, wait_s)
        _sign(fd, {"pid": os.getpid(), "op": purpose})
        yield
    finally:
        os.close(fd)


def is_held(path: Path) -> bool:
    """Whether some process has the lock just now, as far as this user can see."""
    try:
        fd = open_own(path, os.O_RDONLY)  # also on a filesystem gone read-only
    except (FileNotFoundError, PermissionError):
        return False  # never taken, or not for this user to know: facts are read without root too
    try:
        return not _try(fd, fcntl.LOCK_SH)  # two that only look are not in each other's way
    finally:
        os.close(fd)


def holder(path: Path) -> Json:
    """Who signed the lock last: `pid` and `op`; empty when unknown."""
    try:
        signed: Json = json.loads(read_own(path).decode())
    except (OSError, ValueError):
        return {}
    return signed


def _acquire(fd: int, path: Path, clock: Clock, wait_s: float) -> None:
    limit = clock.monotonic() + wait_s
    while not _try(fd):
        if clock.monotonic() >= limit:
            who = holder(path)
            text = f"`{path}` is held by pid {who.get('pid', 'unknown')}, doing `{who.get('op', 'unknown')}`"
            raise Refused("busy", text, "wait until it ends; `cudaup-host status` shows what it does")
        clock.sleep(_POLL_S)


def _try(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(fd: int, who: Json) -> None:
    """Best effort: on a full disk the lock still holds, only nameless."""
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(who).encode() + b"\n", 0)
    except OSError:
        return
