"""Lives, journals and exit codes under random walks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.strategies import runs
from tests.unit.domain.builders import as_json

from cudaup.domain.errors import CudaupError, IllegalTransition
from cudaup.domain.journal import HostSettled, Phase, Record, RunEnded, RunStarted, StepRecord, replay
from cudaup.domain.lifecycle import ALLOWED, HostLife, State
from cudaup.domain.outcome import INTERRUPTED, WORST_FIRST, Outcome, exit_code
from cudaup.domain.report import fold

many = settings(max_examples=60, deadline=None)
outcome_lists = st.lists(st.sampled_from(Outcome), max_size=12)


@given(st.lists(st.sampled_from(State), max_size=40))
def test_random_walks_stay_on_the_table(wishes: Sequence[State]) -> None:
    life, visited = HostLife(host="a"), [State.PLANNED]
    for wish in wishes:
        try:
            life = life.become(wish)
        except IllegalTransition:
            assert wish not in ALLOWED[visited[-1]]
        else:
            visited.append(wish)
    assert all(after in ALLOWED[before] for before, after in pairwise(visited))
    assert visited.count(State.ACTIVATING) <= 1
    assert life.state is visited[-1]


@given(st.data())
def test_guided_walks_end_as_what_they_went_through(data: st.DataObject) -> None:
    life, visited = HostLife(host="a"), {State.PLANNED}
    while choices := [state for state in State if life.may_become(state)]:
        if data.draw(st.integers(0, 7)) == 0:
            break
        life = life.become(data.draw(st.sampled_from(choices)))
        visited.add(life.state)
    outcome = data.draw(st.sampled_from([each for each in Outcome if life.may_settle(each)]))
    settled = life.settle(outcome)
    assert settled.outcome is outcome
    if outcome is Outcome.APPLIED:
        assert {State.LEASED, State.PREPARED, State.CONFIRMED} <= visited
    if outcome in {Outcome.REFUSED, Outcome.UNCHANGED}:
        assert State.AWAITING_CONFIRM not in visited
    if State.REVERTED in visited:
        assert exit_code([outcome]) >= 4


@many
@given(runs())
def test_every_prefix_of_a_run_replays(records: tuple[Record, ...]) -> None:
    for length in range(len(records) + 1):
        report = fold(replay(as_json(records[:length])))
        assert report.is_complete is (length == len(records))


@many
@given(runs())
def test_a_prefix_is_never_reported_better_than_the_switch_it_is_in(records: tuple[Record, ...]) -> None:
    for length in range(1, len(records)):
        state = replay(as_json(records[:length]))
        if any(host.life.state.is_disrupted for host in state.hosts.values()):
            assert fold(state).exit_code in {5, 6}


@many
@given(runs())
def test_how_hosts_interleave_does_not_matter(records: tuple[Record, ...]) -> None:
    def by_host(record: Record) -> str:
        return record.host if isinstance(record, StepRecord | HostSettled) else ""

    one_after_another = (records[0], *sorted(records[1:-1], key=by_host), records[-1])
    assert replay(as_json(one_after_another)).hosts == replay(as_json(records)).hosts


@many
@given(runs(), st.data())
def test_outcomes_before_their_intents_are_refused(records: tuple[Record, ...], data: st.DataObject) -> None:
    """Dropping one intent, as a store that loses lines would, never goes unnoticed."""
    intents = [
        number
        for number, record in enumerate(records)
        if isinstance(record, StepRecord) and record.phase is Phase.INTENT and _has_outcome(records, number)
    ]
    if intents:
        lost = data.draw(st.sampled_from(intents))
        with pytest.raises(CudaupError):
            replay(as_json((*records[:lost], *records[lost + 1 :])))


def _has_outcome(records: tuple[Record, ...], number: int) -> bool:
    intent = records[number]
    assert isinstance(intent, StepRecord)
    later = (record for record in records[number + 1 :] if isinstance(record, StepRecord))
    return any((record.host, record.action) == (intent.host, intent.action) for record in later)


@many
@given(runs())
def test_the_report_says_what_was_settled(records: tuple[Record, ...]) -> None:
    assert isinstance(records[0], RunStarted)
    assert isinstance(records[-1], RunEnded)
    settled = {record.host: record.outcome for record in records if isinstance(record, HostSettled)}
    report = fold(replay(as_json(records)))
    assert {host.host: host.outcome for host in report.hosts} == settled
    assert sum(report.counts.values()) == len(settled)


@given(outcome_lists, st.booleans())
def test_exit_code_is_the_worst_of_all(outcomes: list[Outcome], interrupted: bool) -> None:  # noqa: FBT001 - given passes by position
    code = exit_code(outcomes, interrupted=interrupted)
    codes = [outcome.exit_code for outcome in outcomes] + [INTERRUPTED] * interrupted
    assert code == min(codes, key=[6, 5, 4, 130, 3, 0].index, default=0)


@given(outcome_lists, st.sampled_from(Outcome))
def test_one_more_host_never_improves_the_exit_code(outcomes: list[Outcome], one_more: Outcome) -> None:
    before, after = exit_code(outcomes), exit_code([one_more, *outcomes])
    assert WORST_FIRST.index(after) <= WORST_FIRST.index(before)
