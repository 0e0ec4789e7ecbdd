"""Apply a plan: re-read facts, lease, relay, prepare through Ansible, then wave by wave switch and confirm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudaup.app import gate
from cudaup.app.collect import collect
from cudaup.app.fleet import on_each
from cudaup.app.ports import Auditor, PlayResult, Plays, WheelStore
from cudaup.app.run import (
    Member,
    Notes,
    Run,
    close_step,
    end,
    open_step,
    refuse_on_error,
    settle,
    settle_if_nothing_to_do,
    step,
    still_going,
    take_lease,
)
from cudaup.app.switch import switch
from cudaup.domain.errors import ConnectionFailed, CudaupError, PlayFailed, StalePlan
from cudaup.domain.events import Kind
from cudaup.domain.facts import Facts, Unreachable
from cudaup.domain.inventory import Host
from cudaup.domain.journal import Phase, RunEnded, RunInterrupted, run_started
from cudaup.domain.outcome import Outcome
from cudaup.domain.plan import Action, HostPlan, Plan
from cudaup.domain.planner import drift
from cudaup.domain.policy import may_proceed
from cudaup.domain.stack import Stack, generation_spec

PREPARE_LIMIT_S = 3600.0
_CHUNK = 1 << 20
_STOPPED = "stopped by the operator before anything was disrupted"


@dataclass(frozen=True, kw_only=True)
class Preparing:
    """What an upgrade needs beyond a run: Ansible and the wheels."""

    plays: Plays
    wheels: WheelStore
    auditor: Auditor


def apply_plan(run: Run, plan: Plan, hosts: Mapping[str, Host], preparing: Preparing) -> None:
    """Every host ends settled, whatever happens to the others. The journal has the whole story."""
    run.record(run_started(plan, run=run.id, time=run.clock.now()))
    members = [Member(host=hosts[host_plan.host], plan=host_plan) for host_plan in plan.hosts]
    for member in members:
        settle_if_nothing_to_do(run, member)
    _refuse_moved(run, plan.stack, still_going(members))
    _prepare(run, plan.stack, still_going(members), preparing)
    for wave in plan.waves:
        _switch_wave(run, plan.stack, [member for member in still_going(members) if member.name in wave], members)
    if run.is_stopping():
        run.record(RunInterrupted(time=run.clock.now()))
    run.record(RunEnded(time=run.clock.now()))


def _refuse_moved(run: Run, stack: Stack, members: Sequence[Member]) -> None:
    """P7: a plan is applied to a host as reviewed, or not at all."""
    path = stack.environment.path if stack.environment else None
    observed = collect(run.links, [member.host for member in members], path)
    for member in members:
        refuse_on_error(run, member, lambda member: _check_drift(member.plan, observed[member.name], stack, run))


def _check_drift(host_plan: HostPlan, facts: Facts | Unreachable, stack: Stack, run: Run) -> None:
    if isinstance(facts, Unreachable):
        raise ConnectionFailed(facts.reason)
    moved = drift(host_plan, facts, stack, run.clock.now())
    if moved:
        raise StalePlan(
            "the host moved since the plan was made",
            found="; ".join(str(each) for each in moved),
            fix="make a new plan with `cudaup plan` and review it",
        )


def _prepare(run: Run, stack: Stack, members: Sequence[Member], preparing: Preparing) -> None:
    """All hosts at once; their services run on."""
    paths = _fetch(run, stack, members, preparing)

    def lease_and_relay(member: Member) -> None:
        take_lease(run, member, reason=f"upgrade to {stack.name}", ttl_s=stack.timers.lease_s)
        if _needs_wheels(member):
            _relay(run, stack, member, preparing.wheels, paths)

    on_each(still_going(members), lambda member: refuse_on_error(run, member, lease_and_relay))
    _play(run, stack, still_going(members), preparing.plays)

    def audit(member: Member) -> None:
        gate.require_code(preparing.auditor, run.links, member.host, str(member.target), stack)

    on_each(still_going(members), lambda member: refuse_on_error(run, member, audit))


def _needs_wheels(member: Member) -> bool:
    return any(planned.action is Action.RELAY for planned in member.plan.steps)


def _fetch(run: Run, stack: Stack, members: Sequence[Member], preparing: Preparing) -> Mapping[str, Path]:
    """Once for the whole fleet. Without the wheels nothing can begin anywhere, so an error ends the run's hosts."""
    if not any(_needs_wheels(member) for member in members):
        return {}
    store = preparing.wheels
    try:
        paths = store.fetch((*stack.wheels, stack.uv), lambda text: run.tell("", "fetch", Kind.NOTE, text))
        gate.refuse(gate.missed_in(preparing.auditor, store, stack), stack)
    except CudaupError as error:
        for member in members:
            settle(run, member, Outcome.REFUSED, error.told)
        return {}
    return paths


def _relay(run: Run, stack: Stack, member: Member, store: WheelStore, paths: Mapping[str, Path]) -> None:
    wheels = {wheel.sha256: wheel for wheel in (*stack.wheels, stack.uv)}
    wanted = [wheel.model_dump(mode="json", include={"sha256", "name", "size"}) for wheel in wheels.values()]
    link = run.links.link(member.host)
    with step(run, member, Action.RELAY) as notes:
        reply = link.call(["blob", "missing"], timeout_s=60, data=[json.dumps(wanted).encode()])
        missing = [wheels[sha256] for sha256 in reply.data["missing"]]
        for wheel in missing:
            argv = ["blob", "put", "--sha256", wheel.sha256, "--name", wheel.filename, "--size", str(wheel.size)]
            with store.open(paths[wheel.sha256]) as stream:
                chunks = iter(lambda: stream.read(_CHUNK), b"")
                link.call([*argv, "--epoch", str(member.epoch)], timeout_s=PREPARE_LIMIT_S, data=chunks)
        total = sum(wheel.size for wheel in missing)
        notes.text = f"{len(missing)} of {len(wheels)} wheels, {total / 1e6:.0f} MB"
        notes.changed = bool(missing)


def _play(run: Run, stack: Stack, members: Sequence[Member], plays: Plays) -> None:
    """One play brings every host to: host program installed, environment adopted, generation staged."""
    if not members:
        return
    wanted: dict[str, Any] = {"prepare_spec": generation_spec(stack)}
    if stack.environment is not None:
        wanted["prepare_adopt"] = stack.environment.path
    variables = {member.name: {**wanted, "prepare_epoch": member.epoch} for member in members}
    for member in members:
        open_step(run, member, Action.PREPARE)
    hosts = [member.host for member in members]
    results = plays.run("prepare", hosts, variables, timeout_s=PREPARE_LIMIT_S, on_event=run.emit)
    for member in members:
        refuse_on_error(run, member, lambda member: _take_result(run, member, results[member.name]))


def _take_result(run: Run, member: Member, result: PlayResult) -> None:
    if not result.ok:
        close_step(run, member, Action.PREPARE, Phase.FAILED, Notes(text=result.text))
        error = ConnectionFailed if result.is_unreachable else PlayFailed
        raise error("it could not be prepared; its service runs on as before", found=result.text)
    member.target = str(result.data["staged"]["generation"])
    notes = Notes(text=f"{member.target} is ready", changed=result.changed, data=dict(result.data))
    close_step(run, member, Action.PREPARE, Phase.DONE, notes)


def _switch_wave(run: Run, stack: Stack, wave: Sequence[Member], members: Sequence[Member]) -> None:
    outcomes = {member.name: member.settled.outcome for member in members if member.settled is not None}
    permission = may_proceed(len(members), outcomes)

    def one(member: Member) -> None:
        if run.is_stopping():
            end(run, member, Outcome.REFUSED, _STOPPED, to=member.plan.from_generation)
        elif not permission.granted:
            end(run, member, Outcome.REFUSED, f"not begun: {permission.why}", to=member.plan.from_generation)
        else:
            switch(run, stack, member)

    on_each(wave, one)
