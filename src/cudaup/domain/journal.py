"""The controller's journal of one run, as values, and what a list of them amounts to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from cudaup.domain.errors import CudaupError
from cudaup.domain.facts import SmokeCase
from cudaup.domain.lifecycle import HostLife, State
from cudaup.domain.outcome import Outcome
from cudaup.domain.plan import Action, FleetPlan, Plan
from cudaup.domain.value import Value


class Phase(StrEnum):
    """`refused`: the host would not begin, and nothing was changed. `failed`: something was tried."""

    INTENT = "intent"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"


class HostStart(Value):
    host: str
    from_generation: str | None = None
    simulated: tuple[str, ...] = ()


class RunStarted(Value):
    """`stack_digest` is empty for a rollback, which goes to what each host has."""

    kind: Literal["run-started"] = "run-started"
    time: float
    run: str
    plan_id: str
    stack_digest: str
    hosts: tuple[HostStart, ...]


class StepRecord(Value):
    """Written before the effect (`intent`) and after it; `data` is the host program's answer."""

    kind: Literal["step"] = "step"
    time: float
    host: str
    action: Action
    phase: Phase
    text: str = ""
    data: dict[str, Any] = Field(default_factory=dict)


class HostSettled(Value):
    kind: Literal["host-settled"] = "host-settled"
    time: float
    host: str
    outcome: Outcome
    reason: str
    to_generation: str | None = None
    smoke: tuple[SmokeCase, ...] = ()


class RunInterrupted(Value):
    """The operator asked to stop; hosts settle after it."""

    kind: Literal["run-interrupted"] = "run-interrupted"
    time: float


class RunEnded(Value):
    kind: Literal["run-ended"] = "run-ended"
    time: float


Record = RunStarted | StepRecord | HostSettled | RunInterrupted | RunEnded
_RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])


class JournalBroken(CudaupError):
    """A journal says something that no run can have done."""


class HostRun(Value):
    """`open_step` is an intent whose outcome was never written; `before` is where its host was."""

    start: HostStart
    life: HostLife
    open_step: StepRecord | None = None
    before: HostLife | None = None
    settled: HostSettled | None = None


class RunState(Value):
    started: RunStarted | None = None
    hosts: dict[str, HostRun] = Field(default_factory=dict)
    is_interrupted: bool = False
    is_ended: bool = False


def run_started(plan: FleetPlan, *, run: str, time: float) -> RunStarted:
    hosts = tuple(
        HostStart(host=host.host, from_generation=host.from_generation, simulated=host.simulated) for host in plan.hosts
    )
    digest = plan.stack.digest() if isinstance(plan, Plan) else ""
    return RunStarted(time=time, run=run, plan_id=plan.id, stack_digest=digest, hosts=hosts)


def record_json(record: Record) -> dict[str, Any]:
    return record.model_dump(mode="json")


def replay(records: Iterable[Mapping[str, Any]]) -> RunState:
    """Raises JournalBroken, IllegalTransition. A torn last line is the store's to drop: here every record counts."""
    state = RunState()
    for number, raw in enumerate(records, 1):
        try:
            record = _RECORD.validate_python(dict(raw))
        except ValidationError as error:
            raise JournalBroken("not a journal record", where=f"record {number}", found=str(error)) from error
        state = advance(state, record)
    return state


def replay_leniently(records: Iterable[Mapping[str, Any]]) -> RunState:
    """What stands although the whole does not: the run's start and each host's last word. Raises JournalBroken."""
    hosts: dict[str, HostRun] = {}
    started: RunStarted | None = None
    for raw in records:
        if raw.get("kind") == "run-started":
            started = RunStarted.model_validate(raw)
            hosts = dict(_start(RunState(), started).hosts)
        elif raw.get("kind") == "host-settled":
            settled = HostSettled.model_validate(raw)
            life = HostLife(host=settled.host, state=State.SETTLED, outcome=settled.outcome)
            hosts[settled.host] = hosts[settled.host].model_copy(update={"life": life, "settled": settled})
    return RunState(started=started, hosts=hosts)


def advance(state: RunState, record: Record) -> RunState:
    """The state after one more record. Raises JournalBroken, IllegalTransition."""
    if state.is_ended:
        raise JournalBroken("a record after the run's end", found=record.kind)
    if isinstance(record, RunStarted):
        return _start(state, record)
    if state.started is None:
        raise JournalBroken("the run's start is missing", wanted="run-started", found=record.kind)
    if isinstance(record, RunInterrupted):
        return state.model_copy(update={"is_interrupted": True})
    if isinstance(record, RunEnded):
        return _end(state)
    if record.host not in state.hosts:
        raise JournalBroken("not a host of this run", host=record.host)
    host = state.hosts[record.host]
    moved = _step(host, record) if isinstance(record, StepRecord) else _settle(host, record)
    return state.model_copy(update={"hosts": {**state.hosts, record.host: moved}})


def _start(state: RunState, record: RunStarted) -> RunState:
    if state.started is not None:
        raise JournalBroken("a second run in one journal", found=record.run)
    hosts = {start.host: HostRun(start=start, life=HostLife(host=start.host)) for start in record.hosts}
    return RunState(started=record, hosts=hosts)


def _end(state: RunState) -> RunState:
    unsettled = [name for name, host in state.hosts.items() if host.settled is None]
    if unsettled:
        raise JournalBroken("the run ended with hosts unsettled", found=", ".join(unsettled))
    return state.model_copy(update={"is_ended": True})


def _settle(host: HostRun, record: HostSettled) -> HostRun:
    return host.model_copy(update={"life": host.life.settle(record.outcome), "settled": record})


def _step(host: HostRun, record: StepRecord) -> HostRun:
    if host.settled is not None:
        raise JournalBroken("a step of a settled host", host=record.host, found=record.action)
    if record.phase is Phase.INTENT:
        if host.open_step is not None:
            found = f"{record.action} while {host.open_step.action} is open"
            raise JournalBroken("two steps of one host at once", host=record.host, found=found)
        life = _life_at_intent(host.life, record.action)
        return host.model_copy(update={"open_step": record, "before": host.life, "life": life})
    if host.open_step is None or host.before is None or host.open_step.action is not record.action:
        raise JournalBroken("an outcome without its intent", host=record.host, found=record.action)
    life = _life_at_outcome(host.before, host.life, record)
    return host.model_copy(update={"open_step": None, "before": None, "life": life})


def _life_at_intent(life: HostLife, action: Action) -> HostLife:
    """From its intent on, a switch may have happened. A host already in one is only being put back."""
    if not action.is_disruptive or (action is Action.ROLLBACK and life.state.is_disrupted):
        return life
    if action is Action.ROLLBACK and life.state is State.LEASED:
        life = life.become(State.PREPARED)  # what it goes back to is there already
    return life.become(State.ACTIVATING)


_AFTER_DONE = {
    Action.LEASE: State.LEASED,
    Action.PREPARE: State.PREPARED,
    Action.ACTIVATE: State.AWAITING_CONFIRM,
    Action.ROLLBACK: State.REVERTED,
    Action.CONFIRM: State.CONFIRMED,
}


def _life_at_outcome(before: HostLife, life: HostLife, record: StepRecord) -> HostLife:
    if record.phase is Phase.DONE:
        return life.become(_AFTER_DONE[record.action]) if record.action in _AFTER_DONE else life
    if not record.action.is_disruptive:
        return life
    if record.phase is Phase.FAILED:
        return life.become(State.REVERTED)
    return before  # it refused to begin: nothing was changed by it
