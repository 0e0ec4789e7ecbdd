from __future__ import annotations

import pytest

from cudaup.domain.errors import IllegalTransition
from cudaup.domain.lifecycle import HostLife, State
from cudaup.domain.outcome import Outcome, exit_code

TO_CONFIRMED = (State.LEASED, State.PREPARED, State.ACTIVATING, State.AWAITING_CONFIRM, State.CONFIRMED)


def life_at(state: State) -> HostLife:
    life = HostLife(host="gpu-1")
    path = (*TO_CONFIRMED[:3], State.REVERTED) if state is State.REVERTED else TO_CONFIRMED
    for step in path:
        if life.state is state:
            break
        life = life.become(step)
    return life


def test_the_way_to_applied() -> None:
    settled = life_at(State.CONFIRMED).settle(Outcome.APPLIED)
    assert (settled.state, settled.outcome) == (State.SETTLED, Outcome.APPLIED)


@pytest.mark.parametrize("state", [state for state in State if state not in {State.CONFIRMED, State.SETTLED}])
def test_nobody_is_applied_who_was_not_confirmed(state: State) -> None:
    with pytest.raises(IllegalTransition, match=f"gpu-1: cannot end as applied when {state}"):
        life_at(state).settle(Outcome.APPLIED)


def test_no_switch_without_lease_and_verified_target() -> None:
    for state in (State.PLANNED, State.LEASED):
        assert not life_at(state).may_become(State.ACTIVATING)


def test_a_host_that_reverted_itself_is_not_activated_again() -> None:
    with pytest.raises(IllegalTransition) as caught:
        life_at(State.REVERTED).become(State.ACTIVATING)
    assert str(caught.value) == (
        "gpu-1: cannot go from reverted to activating\n  wanted: to be settled\n  found:  activating"
    )


def test_a_host_in_the_switch_cannot_be_called_refused_or_unchanged() -> None:
    for state in (State.ACTIVATING, State.AWAITING_CONFIRM):
        for outcome in (Outcome.REFUSED, Outcome.UNCHANGED, Outcome.ROLLED_BACK):
            assert not life_at(state).may_settle(outcome)


def test_a_settled_life_is_over() -> None:
    settled = life_at(State.PLANNED).settle(Outcome.UNREACHABLE)
    assert not any(settled.may_become(state) for state in State)
    with pytest.raises(IllegalTransition, match="wanted: nothing: it is settled"):
        settled.settle(Outcome.UNREACHABLE)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (State.PLANNED, Outcome.REFUSED),
        (State.PREPARED, Outcome.REFUSED),
        (State.ACTIVATING, Outcome.IN_TRANSIT),
        (State.AWAITING_CONFIRM, Outcome.IN_TRANSIT),
        (State.REVERTED, Outcome.ROLLBACK_UNPROVEN),
        (State.CONFIRMED, Outcome.APPLIED),
    ],
)
def test_what_is_presumed_when_a_run_broke_off(state: State, outcome: Outcome) -> None:
    assert life_at(state).presumed_outcome is outcome


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("applied", 0),
        ("unchanged", 0),
        ("refused", 3),
        ("rolled-back", 4),
        ("rollback-unproven", 5),
        ("quarantined", 5),
        ("unreachable", 5),
        ("in-transit", 5),
        ("rollback-failed", 6),
    ],
)
def test_exit_code_of_one_host(outcome: str, code: int) -> None:
    assert exit_code([Outcome(outcome)]) == code


def test_worst_wins_and_an_interruption_is_worse_than_a_refusal() -> None:
    assert exit_code([Outcome.APPLIED, Outcome.ROLLED_BACK, Outcome.REFUSED]) == 4
    assert exit_code([Outcome.UNREACHABLE, Outcome.ROLLBACK_FAILED]) == 6
    assert exit_code([Outcome.REFUSED], interrupted=True) == 130
    assert exit_code([Outcome.ROLLED_BACK], interrupted=True) == 4
    assert exit_code([], interrupted=True) == 130
    assert exit_code([]) == 0


def test_only_applied_and_unchanged_are_good() -> None:
    assert [outcome.value for outcome in Outcome if outcome.is_good] == ["applied", "unchanged"]
