"""Part of `make sweep` in every CI run: each write of an upgrade and of a lost one, each with the next fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.sweep.crew import Crew
from tests.lab.sweep.experiment import Case
from tests.lab.sweep.soak import Plan
from tests.lab.sweep.sweeping import every_case, experiment, rotating
from tests.lab.sweep.telling import tell

HOSTS = 6
# Each was a bug that a sweep found: told as applied, never settled, told as refused, refused for hours, called damaged,
# called in-transit, called rolled-back in quarantine, torn bytecode.
FOUND = (
    "upgrade:activate/done:disk-full",
    "boot:recover/intent:kill-program",
    "rollback:revert/done:readonly",
    "by-hand:lease-take/done:reboot",
    "first:adopt-exchange/done:kill-program",
    "upgrade:confirm/done:kill-program",
    "spoilt:quarantine/done:reboot",
    "upgrade:stop/done:disk-full",
)


@pytest.mark.lab
@pytest.mark.timeout(900)
def test_whatever_interrupts_a_write_the_host_settles_and_the_words_are_true(tmp_path: Path) -> None:
    cases = [*rotating(("upgrade", "lost")), *map(Case.parse, FOUND)]
    crew = Crew(HOSTS, tmp_path, tell)
    crew.work(map(experiment, cases))
    assert len(crew.results) == len(cases)
    assert [(each.name, each.bad) for each in crew.bad] == []
    assert crew.looks > 100 * len(cases)  # the reader did read


def test_a_case_is_named_so_that_it_can_be_run_again() -> None:
    cases = list(every_case())
    assert [Case.parse(str(case)) for case in cases] == cases
    assert len(set(map(str, cases))) == len(cases)


def test_a_case_of_a_soak_is_the_same_each_time_and_another_is_another() -> None:
    assert Plan.of("seed/7") == Plan.of("seed/7")
    assert len({Plan.of(f"seed/{number}") for number in range(50)}) == 50
