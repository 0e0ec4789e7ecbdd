"""Every write of both journals, each with every fault."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.lab.sweep.crew import Crew, Make
from tests.lab.sweep.experiment import Case, Experiment, Result
from tests.lab.sweep.scenarios import SCENARIOS
from tests.lab.sweep.telling import cost, tell, tell_bad


def every_case() -> Iterator[Case]:
    for name, scenario in SCENARIOS.items():
        for point in scenario.points:
            for fault in scenario.faults:
                yield Case(scenario=name, point=point, fault=fault)


def rotating(names: Iterable[str] = SCENARIOS) -> Iterator[Case]:
    """Each point once, with the next fault."""
    numbers = itertools.count()
    for name in names:
        faults = SCENARIOS[name].faults
        for point in SCENARIOS[name].points:
            yield Case(scenario=name, point=point, fault=faults[next(numbers) % len(faults)])


def experiment(case: Case) -> Make:
    return lambda station: Experiment(station, case)


def table(results: Sequence[Result]) -> str:
    rows = [f"{'scenario':<10} {'points':>6} {'cases':>6} {'bad':>4}  longest to settle  ended"]
    for name in SCENARIOS:
        of_it = [each for each in results if each.name.startswith(f"{name}:")]
        if of_it:
            ended = Counter(f"{each.words}, {each.state}" for each in of_it)
            told = "; ".join(f"{count} {what}" for what, count in ended.most_common())
            points = len({each.name.split(":")[1] for each in of_it})
            bad = sum(bool(each.bad) for each in of_it)
            longest = max(each.settled_s for each in of_it)
            rows.append(f"{name:<10} {points:>6} {len(of_it):>6} {bad:>4}  {longest:15.1f} s  {told}")
    return "\n".join(rows)


def sweep(cases: Sequence[Case], hosts: int) -> int:
    """The exit code."""
    begin, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="cudaup-sweep-"))
    crew = Crew(min(hosts, len(cases)), folder, tell)
    crew.work(map(experiment, cases))
    print(table(crew.results))
    print(f"{len(crew.results)} experiments, {len(crew.bad)} bad, {cost(crew, begin, hosts)}")
    return tell_bad(crew, "run")
