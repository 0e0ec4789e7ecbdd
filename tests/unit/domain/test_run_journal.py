"""The controller's journal and the report that is folded from it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.domain.builders import NOW, as_json, facts_on, make_stack, plan_for, replayed, start_for

from cudaup.domain.errors import CudaupError, IllegalTransition
from cudaup.domain.facts import SmokeCase, Verdict
from cudaup.domain.journal import (
    HostSettled,
    JournalBroken,
    Phase,
    Record,
    RunEnded,
    RunInterrupted,
    StepRecord,
    replay,
    run_started,
)
from cudaup.domain.lifecycle import State
from cudaup.domain.outcome import Outcome
from cudaup.domain.plan import Action
from cudaup.domain.report import fold, report_of
from cudaup.domain.rollback import inverse_plan

END = RunEnded(time=NOW)


def step(action: Action, phase: Phase, host: str = "a", **data: Any) -> StepRecord:
    return StepRecord(time=NOW, host=host, action=action, phase=phase, data=data)


def did(*actions: Action, host: str = "a") -> tuple[Record, ...]:
    return tuple(step(action, phase, host) for action in actions for phase in (Phase.INTENT, Phase.DONE))


def settled(outcome: Outcome, host: str = "a", reason: str = "because", **more: Any) -> HostSettled:
    return HostSettled(time=NOW, host=host, outcome=outcome, reason=reason, **more)


PREPARED = (start_for("a"), *did(Action.LEASE, Action.RELAY, Action.PREPARE))
SWITCHED = (*PREPARED, *did(Action.ACTIVATE))
APPLIED = (*SWITCHED, *did(Action.CONFIRM, Action.RELEASE), settled(Outcome.APPLIED), END)


def state_after(*records: Record) -> State:
    return replay(as_json(records)).hosts["a"].life.state


def test_states_follow_the_steps() -> None:
    assert state_after(start_for("a")) is State.PLANNED
    assert state_after(*PREPARED[:3]) is State.LEASED
    assert state_after(*PREPARED) is State.PREPARED
    assert state_after(*SWITCHED) is State.AWAITING_CONFIRM
    assert state_after(*APPLIED) is State.SETTLED


def test_from_its_intent_on_a_switch_may_have_happened() -> None:
    run = replayed(*PREPARED, step(Action.ACTIVATE, Phase.INTENT))
    host = run.hosts["a"]
    assert host.life.state is State.ACTIVATING
    assert host.open_step is not None
    assert host.open_step.action is Action.ACTIVATE


def test_a_failed_switch_was_reverted_and_a_refused_one_never_began() -> None:
    begun = (*PREPARED, step(Action.ACTIVATE, Phase.INTENT))
    assert state_after(*begun, step(Action.ACTIVATE, Phase.FAILED)) is State.REVERTED
    assert state_after(*begun, step(Action.ACTIVATE, Phase.REFUSED)) is State.PREPARED


def test_a_failed_preparation_moves_nothing() -> None:
    assert state_after(*PREPARED[:3], step(Action.PREPARE, Phase.INTENT), step(Action.PREPARE, Phase.FAILED)) is (
        State.LEASED
    )


def test_a_confirmation_that_fails_says_nothing_about_the_host() -> None:
    asked = (*SWITCHED, step(Action.CONFIRM, Phase.INTENT))
    assert state_after(*asked, step(Action.CONFIRM, Phase.FAILED)) is State.AWAITING_CONFIRM
    assert state_after(*asked, step(Action.CONFIRM, Phase.FAILED), *did(Action.ROLLBACK)) is State.REVERTED


def test_a_host_that_awaits_confirmation_can_be_put_back() -> None:
    assert state_after(*SWITCHED, *did(Action.ROLLBACK)) is State.REVERTED
    refused = (step(Action.ROLLBACK, Phase.INTENT), step(Action.ROLLBACK, Phase.REFUSED))
    assert state_after(*SWITCHED, *refused) is State.AWAITING_CONFIRM


def test_a_rollback_run_ends_reverted() -> None:
    way_back = (start_for("a"), *did(Action.LEASE, Action.ROLLBACK))
    assert state_after(*way_back) is State.REVERTED
    assert fold(replayed(*way_back, settled(Outcome.ROLLED_BACK), END)).exit_code == 4


def test_hosts_do_not_mix() -> None:
    run = replayed(start_for("a", "b"), *did(Action.LEASE, host="b"))
    assert [run.hosts[name].life.state for name in ("a", "b")] == [State.PLANNED, State.LEASED]


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ((END,), "the run's start is missing"),
        ((*did(Action.LEASE),), "the run's start is missing"),
        ((start_for("a"), start_for("a")), "a second run in one journal"),
        ((start_for("a"), END), "the run ended with hosts unsettled"),
        ((*APPLIED, END), "a record after the run's end"),
        ((start_for("a"), *did(Action.LEASE, host="z")), "z: not a host of this run"),
        ((start_for("a"), step(Action.LEASE, Phase.DONE)), "a: an outcome without its intent"),
        (
            (start_for("a"), step(Action.LEASE, Phase.INTENT), step(Action.PREPARE, Phase.DONE)),
            "a: an outcome without its intent",
        ),
        (
            (start_for("a"), step(Action.LEASE, Phase.INTENT), step(Action.LEASE, Phase.INTENT)),
            "a: two steps of one host at once",
        ),
        ((*APPLIED[:-1], *did(Action.RELEASE)), "a: a step of a settled host"),
    ],
)
def test_what_no_run_can_have_done_is_refused(records: tuple[Record, ...], words: str) -> None:
    with pytest.raises(JournalBroken) as caught:
        replay(as_json(records))
    assert str(caught.value).splitlines()[0] == words


@pytest.mark.parametrize(
    "records",
    [
        (start_for("a"), *did(Action.LEASE, Action.ACTIVATE)),
        (*PREPARED, *did(Action.CONFIRM)),
        (*PREPARED, settled(Outcome.APPLIED)),
        (*SWITCHED, settled(Outcome.ROLLED_BACK)),
        (*PREPARED, *did(Action.ROLLBACK, Action.ACTIVATE)),
    ],
)
def test_a_life_that_breaks_the_table_is_refused(records: tuple[Record, ...]) -> None:
    with pytest.raises(IllegalTransition):
        replay(as_json(records))


@pytest.mark.parametrize("raw", [{}, {"kind": "news"}, {"kind": "run-ended"}, {"kind": "run-ended", "time": 1, "x": 2}])
def test_what_is_no_record_is_refused_with_its_number(raw: dict[str, Any]) -> None:
    with pytest.raises(CudaupError, match=r"^record 2: not a journal record"):
        replay([*as_json((start_for("a"),)), raw])


def test_an_empty_journal_is_a_run_that_never_began() -> None:
    assert replay([]).started is None
    assert report_of([]).is_complete is False


def test_start_says_what_the_plan_knew() -> None:
    upgrade = run_started(plan_for(a=facts_on(make_stack(env={"A": "old"}))), run="r-1", time=NOW)
    assert upgrade.stack_digest == make_stack().digest()
    assert upgrade.hosts[0].from_generation == f"0002-{make_stack(env={'A': 'old'}).digest()[:6]}"
    assert upgrade.hosts[0].simulated == ("gpus", "driver")
    back = inverse_plan({"a": facts_on(make_stack())}, now=NOW, plan_id="p-2", sources=())
    assert run_started(back, run="r-2", time=NOW).stack_digest == ""


def test_the_report_of_a_mixed_run() -> None:
    case = SmokeCase(case="nvcc", verdict=Verdict.NOOP, reason="launched nothing", simulated=True)
    records = (
        start_for("a", "b", "c"),
        *did(Action.LEASE, Action.PREPARE, Action.ACTIVATE, Action.CONFIRM),
        settled(Outcome.APPLIED, to_generation="0002-beef22"),
        *did(Action.LEASE, Action.PREPARE, host="b"),
        step(Action.ACTIVATE, Phase.INTENT, "b"),
        step(Action.ACTIVATE, Phase.FAILED, "b"),
        settled(Outcome.ROLLED_BACK, "b", "smoke nvcc: noop", smoke=(case,)),
        settled(Outcome.UNREACHABLE, "c", "no route to host"),
        END,
    )
    report = report_of(as_json(records))
    assert report.counts == {Outcome.APPLIED: 1, Outcome.ROLLED_BACK: 1, Outcome.UNREACHABLE: 1}
    assert (report.exit_code, report.is_complete, report.run, report.plan_id) == (5, True, "r-1", "p-1")
    assert report.to_json()["hosts"][1] == {
        "host": "b",
        "outcome": "rolled-back",
        "reason": "smoke nvcc: noop",
        "from_generation": None,
        "to_generation": None,
        "smoke": [
            {
                "case": "nvcc",
                "verdict": "noop",
                "reason": "launched nothing",
                "seconds": 0.0,
                "evidence": {},
                "simulated": True,
            }
        ],
        "simulated": ["gpus", "driver"],
    }


def test_a_run_that_broke_off_is_not_reported_better_than_it_is() -> None:
    report = fold(replayed(*PREPARED, step(Action.ACTIVATE, Phase.INTENT)))
    assert (report.hosts[0].outcome, report.exit_code, report.is_complete) == (Outcome.IN_TRANSIT, 5, False)
    assert report.hosts[0].reason == (
        "the run broke off before this host was settled during activate; `cudaup status` reads it from the host"
    )


def test_an_interrupted_run_with_all_settled() -> None:
    records = (start_for("a"), RunInterrupted(time=NOW), settled(Outcome.REFUSED), END)
    report = fold(replayed(*records))
    assert (report.is_interrupted, report.exit_code) == (True, 130)


def test_a_journal_that_contradicts_itself_still_tells_each_hosts_last_word() -> None:
    """An `applied` without its confirmation is a bug of ours; what became of the fleet must be told all the same."""
    records = (start_for("a", "b"), settled(Outcome.APPLIED, "a"), settled(Outcome.REFUSED, "b"), END)
    report = report_of(as_json(records))
    assert [host.outcome for host in report.hosts] == [Outcome.APPLIED, Outcome.REFUSED]
    assert "cannot end as applied when planned" in report.warning
    assert (report.exit_code, report.is_complete) == (3, False)
