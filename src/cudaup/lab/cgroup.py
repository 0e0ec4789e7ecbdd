"""The lab's cgroups (v2): what makes every process of a lab findable, also when its warden is gone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from cudaup.domain.errors import CudaupError

_EMPTY_S = 10.0
WARDEN, GUESTS = "warden", "guests"


def make(top: Path) -> None:
    """Leaves for the warden and for guests (`lab exec`, ssh proxies); every host gets one more at its boot."""
    for leaf in (top / WARDEN, top / GUESTS):
        leaf.mkdir(parents=True, exist_ok=True)
    controllers = (top / "cgroup.controllers").read_text().split()
    if controllers:  # none where v1 has them: then MemoryMax= and its like have no effect on the hosts
        (top / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))


def processes(top: Path) -> list[int]:
    """Every process in the tree; also right when it vanishes meanwhile."""
    found: list[int] = []
    for folder, _, _ in os.walk(top):
        try:
            found += map(int, (Path(folder) / "cgroup.procs").read_text().split())
        except OSError:
            continue
    return found


def kill(top: Path) -> None:
    """End every process of the tree and remove it. Raises CudaupError naming the processes that stay."""
    deadline = time.monotonic() + _EMPTY_S
    while pids := processes(top):
        if time.monotonic() > deadline:
            raise CudaupError(
                f"processes {pids} did not end in {_EMPTY_S:.0f} s", where=str(top), fix="look at their state"
            )
        for pid in pids:
            _kill(pid)
        time.sleep(0.01)
    empty(top)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def empty(top: Path) -> None:
    """Remove the tree, whose processes have ended; the kernel needs a moment to agree. Raises CudaupError."""
    deadline = time.monotonic() + _EMPTY_S
    for folder, _, _ in os.walk(top, topdown=False):
        while not _removed(Path(folder)):
            if time.monotonic() > deadline:
                raise CudaupError(f"still in use after {_EMPTY_S:.0f} s", where=folder)
            time.sleep(0.01)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
