"""From facts and a stack to a plan. Pure: the same facts give the same plan, and nothing is fetched."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from cudaup.domain.audit import Missed
from cudaup.domain.facts import EnvironmentState, Facts, Unreachable
from cudaup.domain.fingerprint import Moved, compare, new_blockers, take_fingerprint
from cudaup.domain.plan import Action, HostPlan, HostVerdict, Plan, Step, name_waves
from cudaup.domain.rules import Finding, check
from cudaup.domain.rules.host import MIB, NO_INODES, NO_SPACE, SPACE_UNKNOWN
from cudaup.domain.stack import Stack


def build_plan(
    stack: Stack,
    observed: Mapping[str, Facts | Unreachable],
    *,
    now: float,
    plan_id: str,
    sources: tuple[str, ...],
    limit: str | None = None,
    program: str | None = None,
    missed: Mapping[str, tuple[Missed, ...]] | None = None,
) -> Plan:
    """`program` is the digest of the host program to be installed, `missed` what an audit of the wheels found."""
    by_host = missed or {}
    hosts = tuple(
        plan_host(name, facts, stack, now, program, by_host.get(name, ())) for name, facts in observed.items()
    )
    changing = tuple(host.host for host in hosts if host.verdict is HostVerdict.CHANGE)
    return Plan(
        id=plan_id,
        created=now,
        stack=stack,
        sources=sources,
        limit=limit,
        waves=name_waves(changing),
        hosts=hosts,
    )


def plan_host(
    name: str,
    facts: Facts | Unreachable,
    stack: Stack,
    now: float,
    program: str | None = None,
    missed: Sequence[Missed] = (),
) -> HostPlan:
    if isinstance(facts, Unreachable):
        return HostPlan(host=name, verdict=HostVerdict.UNREACHABLE, error=facts.reason)
    findings = check(facts, stack, now, missed)
    verdict = _verdict(facts, stack, findings)
    return HostPlan(
        host=name,
        verdict=verdict,
        from_generation=facts.current.id if facts.current else None,
        to_name=stack.name,
        to_digest=stack.digest(),
        steps=tuple(_steps(facts, stack, program)) if verdict is HostVerdict.CHANGE else (),
        findings=findings,
        left_alone=tuple(_left_alone(facts, stack)),
        fingerprint=take_fingerprint(facts, has_enough_disk=_has_enough_disk(findings)),
        simulated=facts.simulated,
    )


def drift(host_plan: HostPlan, facts: Facts, stack: Stack, now: float) -> tuple[Moved, ...]:
    """What moved since the plan was made. Ask before taking the lease: an epoch that moved counts."""
    findings = check(facts, stack, now)
    found = take_fingerprint(facts, has_enough_disk=_has_enough_disk(findings))
    moved = compare(host_plan.fingerprint, found) if host_plan.fingerprint else ()
    return (*moved, *new_blockers(host_plan.findings, findings))


def _verdict(facts: Facts, stack: Stack, findings: tuple[Finding, ...]) -> HostVerdict:
    if facts.is_on(stack.digest()) and not facts.services_down:
        return HostVerdict.UNCHANGED
    return HostVerdict.BLOCKED if any(finding.blocks for finding in findings) else HostVerdict.CHANGE


def _has_enough_disk(findings: tuple[Finding, ...]) -> bool:
    lacking = {NO_SPACE.id, NO_INODES.id, SPACE_UNKNOWN.id}
    return not any(finding.rule in lacking for finding in findings)


def _steps(facts: Facts, stack: Stack, program: str | None) -> Iterator[Step]:
    is_built = facts.cudaup is not None and facts.cudaup.with_digest(stack.digest()) is not None
    yield lease_step(f"upgrade to {stack.name}")
    if not is_built:
        yield _relay_step(stack)
    yield Step(
        action=Action.PREPARE,
        reason="everything is made ready beside the running service",
        parts=(*_program_part(facts, program), *_parts_of_prepare(facts, stack, is_built=is_built)),
        precondition="the lease is held",
        undo="`cudaup-host gc` removes the generation, `cudaup-host forget` everything",
    )
    yield from _switch_steps(facts, stack)


def _parts_of_prepare(facts: Facts, stack: Stack, *, is_built: bool) -> Iterator[str]:
    if stack.environment and _needs_adoption(facts):
        yield f"adopt {stack.environment.path}: it becomes a generation where it lies, so that it can be put back"
    if not is_built:
        yield f"build generation {stack.digest()[:6]} from the wheels"


def _program_part(facts: Facts, program: str | None) -> Iterator[str]:
    """It is compared by its hash, whatever version it calls itself."""
    installed = facts.cudaup.installed_sha256 if facts.cudaup else None
    if installed is None or program is None:
        yield "install the host program: it does the work, and puts the host back without an operator"
    elif installed != program:
        yield f"replace the host program {installed[:12]} by {program[:12]}: it is another one, or was changed"


def _relay_step(stack: Stack) -> Step:
    total = sum(wheel.size for wheel in stack.wheels) // MIB
    return Step(
        action=Action.RELAY,
        reason=f"{len(stack.wheels)} wheels ({total} MiB) go to the host over ssh; it needs no index",
        precondition="the disk holds them",
        undo="`cudaup-host gc` removes them",
    )


def _switch_steps(facts: Facts, stack: Stack) -> Iterator[Step]:
    current = facts.current
    back = f"`cudaup-host rollback --to {current.id}`" if current else "`cudaup-host rollback`"
    units = ", ".join(service.unit for service in facts.services if service.is_running) or "no service"
    yield Step(
        action=Action.ACTIVATE,
        reason=f"stop {units}, prove the old and the new generation, switch, start, prove the live process",
        parts=tuple(_parts_of_hooks(stack)),
        precondition="the lease is held and the host has verified both generations",
        undo=f"the host does it by itself on any failure, and {stack.timers.ttl_s:g} s after it lost its operator",
    )
    yield Step(
        action=Action.CONFIRM,
        reason="a new connection shows that the way in still works; the timer is disarmed",
        precondition="the host awaits its confirmation",
        undo=back,
    )
    yield release_step()


def _parts_of_hooks(stack: Stack) -> Iterator[str]:
    for name, hook in stack.hooks.by_name().items():
        yield f"hook {name}: {shlex.join(hook.command)} (at most {hook.timeout_s:g} s)"


def lease_step(reason: str) -> Step:
    return Step(
        action=Action.LEASE,
        reason=f"keep other runs away: {reason}",
        precondition="the lease is free and its epoch has not moved",
        undo="the lease is released, or expires",
    )


def release_step() -> Step:
    return Step(
        action=Action.RELEASE,
        reason="other runs may work here again",
        precondition="the host is settled",
    )


def _needs_adoption(facts: Facts) -> bool:
    return facts.environment is not None and facts.environment.state is EnvironmentState.DIRECTORY


def _left_alone(facts: Facts, stack: Stack) -> Iterator[str]:
    if facts.is_on(stack.digest()):
        yield f"runs {stack.name} already, confirmed"
        return
    if facts.driver.loaded is not None:
        yield f"driver {facts.driver.loaded} stays"
    if stack.environment is not None:
        yield f"the files of {stack.environment.path} stay as they are"
    if facts.toolkits:
        yield f"{', '.join(toolkit.path for toolkit in facts.toolkits)} stays"
    for service in facts.services:
        if service.stays_down:
            yield f"{service.unit} is {service.active} and stays so"
    known = facts.cudaup.with_digest(stack.digest()) if facts.cudaup else None
    if known is not None:
        yield f"generation {known.id} is built already"
