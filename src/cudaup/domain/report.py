"""What a run came to: a fold over its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cudaup.domain.errors import CudaupError
from cudaup.domain.facts import SmokeCase
from cudaup.domain.journal import HostRun, RunState, replay, replay_leniently
from cudaup.domain.outcome import Outcome, exit_code
from cudaup.domain.value import Value

_BROKE_OFF = "the run broke off before this host was settled"


class HostReport(Value):
    """`simulated` names facts that a lab made up; a proof that rests on them proves the tool, not the hardware."""

    host: str
    outcome: Outcome
    reason: str
    from_generation: str | None
    to_generation: str | None
    smoke: tuple[SmokeCase, ...]
    simulated: tuple[str, ...]


class Report(Value):
    """`is_complete` is false for a run that broke off: its outcomes are then the worst that may be true.

    `warning` is there when the journal contradicts itself, a bug: hosts are then told by their last word alone.
    """

    run: str
    plan_id: str
    stack_digest: str
    hosts: tuple[HostReport, ...]
    counts: dict[Outcome, int]
    is_interrupted: bool
    is_complete: bool
    exit_code: int
    warning: str = ""

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def report_of(records: Iterable[Mapping[str, Any]]) -> Report:
    """Never hides what a host came to behind a journal that cannot be replayed."""
    kept = list(records)
    try:
        return fold(replay(kept))
    except CudaupError as error:
        return fold(replay_leniently(kept)).model_copy(update={"warning": str(error), "is_complete": False})


def fold(state: RunState) -> Report:
    hosts = tuple(_host_report(name, host) for name, host in state.hosts.items())
    outcomes = [host.outcome for host in hosts]
    started = state.started
    return Report(
        run=started.run if started else "",
        plan_id=started.plan_id if started else "",
        stack_digest=started.stack_digest if started else "",
        hosts=hosts,
        counts=dict(Counter(outcomes)),
        is_interrupted=state.is_interrupted,
        is_complete=state.is_ended,
        exit_code=exit_code(outcomes, interrupted=state.is_interrupted),
    )


def _host_report(name: str, host: HostRun) -> HostReport:
    settled = host.settled
    return HostReport(
        host=name,
        outcome=host.life.presumed_outcome,
        reason=settled.reason if settled else _broke_off(host),
        from_generation=host.start.from_generation,
        to_generation=settled.to_generation if settled else None,
        smoke=settled.smoke if settled else (),
        simulated=host.start.simulated,
    )


def _broke_off(host: HostRun) -> str:
    last = f" during {host.open_step.action}" if host.open_step else ""
    return f"{_BROKE_OFF}{last}; `cudaup status` reads it from the host"
