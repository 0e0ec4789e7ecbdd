"""Random faults at random times on hosts side by side; a case is `SEED/NUMBER` and always the same."""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.sweep.crew import Crew, Make
from tests.lab.sweep.experiment import Result, Trial
from tests.lab.sweep.faults import Fault
from tests.lab.sweep.scenarios import SCENARIOS, Command
from tests.lab.sweep.station import HOST, Station
from tests.lab.sweep.telling import cost, tell, tell_bad

# The one an operator has most to do with comes most often.
_COMMANDS = ("upgrade", "upgrade", "upgrade", "rollback", "by-hand", "sick", "first")
_LONGEST_S = {"first": 9.0, "sick": 7.0}
_MOST_FAULTS = 3


@dataclass(frozen=True, kw_only=True)
class Blow:
    """`after_s` the one before it; what can be undone is, `holds_s` later."""

    after_s: float
    fault: Fault
    holds_s: float

    def __str__(self) -> str:
        held = f" for {self.holds_s:.1f} s" if self.fault.undo else ""
        return f"after {self.after_s:.2f} s {self.fault}{held}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    scenario: str
    blows: tuple[Blow, ...]

    @classmethod
    def of(cls, case: str) -> Plan:
        """The same for the same case."""
        dice = random.Random(case)  # noqa: S311 - no secret, and repeatable
        scenario = dice.choice(_COMMANDS)
        count = dice.randint(1, _MOST_FAULTS)
        within_s = _LONGEST_S.get(scenario, 4.0)
        moments = sorted(dice.uniform(0, within_s) for _ in range(count))
        gaps = [later - sooner for sooner, later in itertools.pairwise([0.0, *moments])]
        blows = [Blow(after_s=gap, fault=dice.choice(list(Fault)), holds_s=dice.uniform(0.2, 8.0)) for gap in gaps]
        return cls(scenario=scenario, blows=tuple(blows))


class Ordeal(Trial):
    def __init__(self, station: Station, case: str) -> None:
        self.plan = Plan.of(case)
        super().__init__(station, SCENARIOS[self.plan.scenario], case)
        self.result.told = f"{self.plan.scenario}: {', '.join(map(str, self.plan.blows))}"

    def suffer(self, command: Command) -> None:
        for blow in self.plan.blows:
            time.sleep(blow.after_s)
            self.inflict(blow.fault, command)
            if blow.fault.undo:
                time.sleep(blow.holds_s)
                self.station.lab.fault(HOST, blow.fault.undo)
        begin = time.monotonic()
        self.end(command)
        self.settle()
        self.result.settled_s = time.monotonic() - begin


def cases(seed: str, until: float) -> Iterator[str]:
    for number in itertools.count():
        if time.monotonic() >= until:
            return
        yield f"{seed}/{number}"


def ordeal(case: str) -> Make:
    return lambda station: Ordeal(station, case)


def figures(results: list[Result]) -> str:
    plans = [Plan.of(each.name) for each in results]
    faults = Counter(str(blow.fault) for plan in plans for blow in plan.blows)
    ended = Counter(f"{each.words}, {each.state}" for each in results)
    rows = [f"{count:>6} {what}" for counted in (faults, ended) for what, count in counted.most_common()]
    return "\n".join(rows)


def soak(wanted: Sequence[str], hosts: int, seed: str, minutes: float) -> int:
    """The exit code."""
    print(f"seed {seed}", flush=True)
    begin, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="cudaup-soak-"))
    crew = Crew(min(hosts, len(wanted) or hosts), folder, tell)
    crew.work(map(ordeal, wanted or cases(seed, begin + minutes * 60)))
    faults = sum(len(Plan.of(each.name).blows) for each in crew.results)
    print(figures(crew.results))
    told = f"{len(crew.results)} commands, {faults} faults, {len(crew.bad)} bad"
    print(f"{told}, {cost(crew, begin, hosts)}; seed {seed}")
    return tell_bad(crew, "soak")
