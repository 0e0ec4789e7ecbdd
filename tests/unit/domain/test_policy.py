from __future__ import annotations

import pytest

from cudaup.domain.outcome import Outcome
from cudaup.domain.policy import may_proceed


@pytest.mark.parametrize(
    ("fleet", "failures", "is_granted"),
    [(3, 0, True), (3, 1, True), (3, 2, False), (20, 2, True), (20, 3, False), (29, 2, True), (29, 3, False)],
)
def test_a_tenth_of_the_fleet_may_fail_and_always_one(fleet: int, failures: int, *, is_granted: bool) -> None:
    outcomes = {f"h{number}": Outcome.ROLLED_BACK for number in range(failures)} | {"good": Outcome.APPLIED}
    assert may_proceed(fleet, outcomes).granted is is_granted


def test_unreachable_hosts_count_and_refused_ones_do_not() -> None:
    refused = dict.fromkeys("abc", Outcome.REFUSED)
    assert may_proceed(3, refused).granted
    assert not may_proceed(3, dict.fromkeys("abc", Outcome.UNREACHABLE)).granted


def test_it_says_who_used_the_budget() -> None:
    permission = may_proceed(3, {"b": Outcome.UNREACHABLE, "a": Outcome.ROLLED_BACK, "c": Outcome.APPLIED})
    assert permission.why == "2 of 1 allowed failures used by a (rolled-back), b (unreachable)"


@pytest.mark.parametrize("bad", [Outcome.ROLLBACK_UNPROVEN, Outcome.ROLLBACK_FAILED])
def test_a_host_that_could_not_be_proven_back_stops_the_fleet_at_once(bad: Outcome) -> None:
    permission = may_proceed(200, {"a": Outcome.APPLIED, "b": bad})
    assert (permission.granted, permission.why.split(";")[0]) == (False, "a host could not be proven back")


def test_a_stack_that_has_worked_nowhere_yet_may_not_fail_even_once() -> None:
    permission = may_proceed(200, {"a": Outcome.ROLLED_BACK})
    assert (permission.granted, permission.why.split(";")[0]) == (False, "it has worked nowhere yet")
    assert may_proceed(200, {"a": Outcome.ROLLED_BACK, "b": Outcome.APPLIED}).granted
    assert may_proceed(200, {"a": Outcome.UNREACHABLE}).granted  # says nothing about the stack
