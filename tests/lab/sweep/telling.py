"""What is printed: a line for each experiment as it ends, and what was bad."""

from __future__ import annotations

import sys
import time

from tests.lab.sweep.crew import Crew
from tests.lab.sweep.experiment import Result


def tell(result: Result) -> None:
    ended = f"{result.name:<44} {result.words:<12} {result.state:<14} settled {result.settled_s:5.1f} s"
    told = f"  {result.told}" if result.told else ""
    bad = f"  BAD: {'; '.join(result.bad)}" if result.bad else ""
    print(f"{ended}, in all {result.wall_s:5.1f} s{told}{bad}", file=sys.stderr, flush=True)


def cost(crew: Crew, begin: float, hosts: int) -> str:
    took = f"{time.monotonic() - begin:.0f} s on {hosts} hosts, {crew.cpu_s + time.process_time():.0f} s of CPU"
    return f"{took}; the path was read {crew.looks} times"


def tell_bad(crew: Crew, again: str) -> int:
    """The exit code. `again` is the command that runs cases by name."""
    for result in crew.bad:
        print(f"BAD {result.name}: {'; '.join(result.bad)}")
    if not crew.bad:
        return 0
    print(f"evidence: {crew.evidence}")
    print(f"again: python -m tests.lab.sweep {again} {' '.join(each.name for each in crew.bad)}")
    return 1
