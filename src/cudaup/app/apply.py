"""Apply a plan: re-read facts, lease, relay, prepare through Ansible, then wave by wave switch and confirm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cudaup.app.collect import collect
from cudaup.app.fleet import on_each
from cudaup.app.ports import PlayResult
from cudaup.app.renewals import Renewals
from cudaup.app.run import (
    Member,
    Notes,
    Run,
    close_step,
    open_step,
    refuse_on_error,
    release_lease,
    settle,
    settle_if_nothing_to_do,
    step,
    still_going,
    take_lease,
)
from cudaup.app.switch import switch, verify_both
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


def apply_plan(run: Run, plan: Plan, hosts: Mapping[str, Host]) -> None:
    """Every host ends settled, whatever happens to the others. The journal has the whole story."""
    run.record(run_started(plan, run=run.id, time=run.clock.now()))
    members = [Member(host=hosts[host_plan.host], plan=host_plan) for host_plan in plan.hosts]
    for member in members:
        settle_if_nothing_to_do(run, member)
    _refuse_moved(run, plan.stack, still_going(members))
    timers = plan.stack.timers
    with Renewals(run.links, period_s=timers.ttl_s / 3, timeout_s=timers.ttl_s / 3) as renewals:
        _prepare(run, plan.stack, still_going(members), renewals)
        for wave in plan.waves:
            waiting = [member for member in still_going(members) if member.name in wave]
            _switch_wave(run, plan.stack, waiting, members, renewals)
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


def _prepare(run: Run, stack: Stack, members: Sequence[Member], renewals: Renewals) -> None:
    """All hosts at once; their services run on."""
    paths = _fetch(run, stack, members)
    waiting = {member.name: member for member in still_going(members)}

    def lease_and_relay(member: Member) -> None:
        take_lease(run, member, reason=f"upgrade to {stack.name}", ttl_s=stack.timers.lease_s)
        renewals.add(member.host, member.epoch or 0)
        if _needs_wheels(member):
            _relay(run, stack, member, paths)

    def one(host: Host) -> None:
        refuse_on_error(run, waiting[host.name], lease_and_relay)

    on_each([member.host for member in waiting.values()], one)
    _play(run, stack, still_going(members))


def _needs_wheels(member: Member) -> bool:
    return any(planned.action is Action.RELAY for planned in member.plan.steps)


def _fetch(run: Run, stack: Stack, members: Sequence[Member]) -> Mapping[str, Path]:
    """Once for the whole fleet. Without the wheels nothing can begin anywhere, so an error ends the run's hosts."""
    if not any(_needs_wheels(member) for member in members):
        return {}
    try:
        return run.wheels.fetch((*stack.wheels, stack.uv), lambda text: run.tell("", "fetch", Kind.NOTE, text))
    except CudaupError as error:
        for member in members:
            settle(run, member, Outcome.REFUSED, error.told)
        return {}


def _relay(run: Run, stack: Stack, member: Member, paths: Mapping[str, Path]) -> None:
    wheels = {wheel.sha256: wheel for wheel in (*stack.wheels, stack.uv)}
    wanted = [wheel.model_dump(mode="json", include={"sha256", "name", "size"}) for wheel in wheels.values()]
    link = run.links.link(member.host)
    with step(run, member, Action.RELAY) as notes:
        reply = link.call(["blob", "missing"], timeout_s=60, data=[json.dumps(wanted).encode()])
        missing = [wheels[sha256] for sha256 in reply.data["missing"]]
        for wheel in missing:
            argv = ["blob", "put", "--sha256", wheel.sha256, "--name", wheel.filename, "--size", str(wheel.size)]
            with run.wheels.open(paths[wheel.sha256]) as stream:
                chunks = iter(lambda: stream.read(_CHUNK), b"")
                link.call([*argv, "--epoch", str(member.epoch)], timeout_s=PREPARE_LIMIT_S, data=chunks)
        total = sum(wheel.size for wheel in missing)
        notes.text = f"{len(missing)} of {len(wheels)} wheels, {total / 1e6:.0f} MB"
        notes.changed = bool(missing)


def _play(run: Run, stack: Stack, members: Sequence[Member]) -> None:
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
    results = run.plays.run("prepare", hosts, variables, timeout_s=PREPARE_LIMIT_S, on_event=run.emit)
    for member in members:
        refuse_on_error(run, member, lambda member: _take_result(run, member, results[member.name]))


def _take_result(run: Run, member: Member, result: PlayResult) -> None:
    if not result.ok:
        close_step(run, member, Action.PREPARE, Phase.FAILED, Notes(text=result.text))
        raise PlayFailed("it could not be prepared; its service runs on as before", found=result.text)
    member.target = str(result.data["staged"]["generation"])
    notes = Notes(text=f"{member.target} is ready", changed=result.changed, data=dict(result.data))
    close_step(run, member, Action.PREPARE, Phase.DONE, notes)


def _switch_wave(run: Run, stack: Stack, wave: Sequence[Member], members: Sequence[Member], renewals: Renewals) -> None:
    outcomes = {member.name: member.settled.outcome for member in members if member.settled is not None}
    permission = may_proceed(len(members), outcomes)

    by_name = {member.name: member for member in wave}

    def one(member: Member) -> None:
        if run.is_stopping():
            _leave(run, member, renewals, _STOPPED)
        elif not permission.granted:
            _leave(run, member, renewals, f"not begun: {permission.why}")
        else:
            refuse_on_error(run, member, lambda member: verify_both(run, member))
            if member.settled is None:
                switch(run, stack, member)
            renewals.remove(member.host)

    on_each([member.host for member in wave], lambda host: one(by_name[host.name]))


def _leave(run: Run, member: Member, renewals: Renewals, reason: str) -> None:
    renewals.remove(member.host)
    release_lease(run, member)
    settle(run, member, Outcome.REFUSED, reason, to=member.plan.from_generation)
