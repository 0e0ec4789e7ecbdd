"""Runs one command and leaves no descendant of it alive: not on its own end, not on ours, not on our parent's.

Started as its own small process (`python3 -c`), because it collects every orphan below it: in the host program itself
that would catch processes that have to live on, such as the dead-man's timer. Ends as the command ended.
"""

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path
from typing import List

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(parent: int, argv: List[str]) -> int:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if os.getppid() != parent:  # it died before we could ask to be told
        return 128 + signal.SIGTERM
    status = 0
    try:
        status = _run(argv, libc)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill_all()
    if os.WIFSIGNALED(status):
        _die_of(os.WTERMSIG(status))
    return os.WEXITSTATUS(status)


def _run(argv: List[str], libc: ctypes.CDLL) -> int:
    pid = os.fork()
    if pid == 0:
        _become(argv, libc)
    while True:  # also reaps what its descendants leave
        ended, status = os.wait()
        if ended == pid:
            return status


def _become(argv: List[str], libc: ctypes.CDLL) -> None:
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execvp(argv[0], argv)  # noqa: S606 - the whole point, and there is no shell
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def _kill_all() -> None:
    """Orphans come to us one generation after the other, so go on until nobody is left."""
    while True:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)  # a child stays a valid target until we reap it
        try:
            os.wait()
        except ChildProcessError:
            return


def _children() -> List[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _parent_of(pid) == os.getpid()]


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:  # ended meanwhile
        return 0


def _die_of(number: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
