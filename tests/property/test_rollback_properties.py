from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.strategies import GENERATIONS
from tests.unit.domain.builders import make_facts, make_status

from cudaup.domain.facts import Facts, GenerationSummary
from cudaup.domain.plan import HostVerdict
from cudaup.domain.rollback import plan_host_rollback

pairs = st.permutations(GENERATIONS).map(lambda order: order[:2])


def host_on(current: dict[str, Any], previous: dict[str, Any]) -> Facts:
    return make_facts(cudaup=make_status(current=current, previous=previous, generations=GENERATIONS))


def after_rollback(facts: Facts, to: str | None) -> Facts:
    """What the host program's exchange of the two links does."""
    plan = plan_host_rollback("a", facts, to)
    assert facts.cudaup is not None
    if plan.verdict is HostVerdict.UNCHANGED:
        return facts
    target = next(known for known in facts.cudaup.generations if known.id == plan.to_name)
    moved = facts.cudaup.model_copy(update={"current": target, "previous": facts.cudaup.current})
    return facts.model_copy(update={"cudaup": moved})


def current(facts: Facts) -> GenerationSummary:
    assert facts.current is not None
    return facts.current


@given(pairs)
def test_asked_twice_a_rollback_goes_back_once_and_never_forwards(pair: list[dict[str, Any]]) -> None:
    newer, older = sorted(pair, key=lambda known: str(known["id"]), reverse=True)
    once = after_rollback(host_on(newer, older), None)
    assert current(once).id == older["id"]
    assert after_rollback(once, None) == once
    assert plan_host_rollback("a", once, None).left_alone == (
        f"rolled back already, from {newer['id']} to {older['id']}; --to names another one",
    )


@given(pairs)
def test_a_rollback_of_a_rollback_gets_back(pair: list[dict[str, Any]]) -> None:
    newer, older = sorted(pair, key=lambda known: str(known["id"]), reverse=True)
    start = host_on(newer, older)
    assert after_rollback(after_rollback(start, None), newer["id"]).cudaup == start.cudaup


@given(pairs, st.sampled_from(GENERATIONS))
def test_going_anywhere_and_back_gets_back(pair: list[dict[str, Any]], goal: dict[str, Any]) -> None:
    start = host_on(*pair)
    there = after_rollback(start, goal["id"])
    assert current(there).id == goal["id"]
    assert current(after_rollback(there, pair[0]["id"])).id == pair[0]["id"]


@given(pairs, st.sampled_from(GENERATIONS))
def test_going_to_a_named_generation_twice_is_going_once(pair: list[dict[str, Any]], goal: dict[str, Any]) -> None:
    there = after_rollback(host_on(*pair), goal["id"])
    assert plan_host_rollback("a", there, goal["id"]).verdict is HostVerdict.UNCHANGED
    assert after_rollback(there, goal["id"]) == there


@given(pairs, st.text(max_size=8))
def test_no_name_breaks_the_search(pair: list[dict[str, Any]], name: str) -> None:
    plan = plan_host_rollback("a", host_on(*pair), name)
    assert plan.verdict in {HostVerdict.BLOCKED, HostVerdict.CHANGE, HostVerdict.UNCHANGED}
