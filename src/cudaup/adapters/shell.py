"""Running one command on one host, whatever carries it; ssh, the local machine and sudo satisfy `Shell`."""

from __future__ import annotations

import base64
import re
import shlex
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from cudaup.domain.errors import DeadlineExceeded

KILLED = -1  # exit status of a command that a signal ended; sshd does not tell paramiko which
MAY_HAVE_GONE_ON = "the command may have gone on there: read the host's state before trying again"
_TAIL_BYTES = 64 * 1024
# Inside single quotes a backslash is special to fish, a newline and `!` to csh; everything else is plain everywhere.
_SHELL_DEPENDENT = re.compile(r"[\\\n!]")


class CommandStreams:
    """One command's conversation, and the least of it: nothing is sent, everything said is thrown away.

    `stdin` is read in a thread of its own, `stdout` and `stderr` are called from the thread that called `run`.
    `ended` is called last, whatever happened, so that a `stdin` that waits for something can give up.
    """

    def stdin(self) -> Iterable[bytes]:
        return ()

    def stdout(self, data: bytes) -> None: ...

    def stderr(self, data: bytes) -> None: ...

    def is_cancelled(self) -> bool:
        return False

    def ended(self) -> None: ...


class Shell(Protocol):
    """One host. `run` may be called from several threads."""

    @property
    def host(self) -> str: ...

    def run(self, argv: Sequence[str], streams: CommandStreams, *, timeout_s: float) -> int:
        """The exit status, or KILLED. Both streams are drained together.

        Raises ConnectionFailed and its kinds; DeadlineExceeded when `timeout_s` in all has passed.
        """
        ...

    def close(self) -> None: ...


def too_late(host: str, seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"no end within {seconds:g} s", host=host, fix=MAY_HAVE_GONE_ON)


class Deadline:
    """A total time limit, handed down so that the parts of a call share it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def is_over(self) -> bool:
        return self.remaining() == 0.0


class Tail:
    """Keeps only the end of a stream, so that a chatty command costs no memory."""

    def __init__(self, limit: int = _TAIL_BYTES) -> None:
        self._limit = limit
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data
        del self._kept[: -self._limit]

    def text(self) -> str:
        return self._kept.decode(errors="replace").strip()


def command_line(argv: Sequence[str]) -> str:
    """`argv` as one line that sh, bash, zsh, csh and fish all read the same way."""
    line = shlex.join(argv)
    if not _SHELL_DEPENDENT.search(line):
        return line
    packed = base64.b64encode(line.encode()).decode()
    return f"/bin/sh -c 'eval \"$(echo {packed} | base64 -d)\"'"
