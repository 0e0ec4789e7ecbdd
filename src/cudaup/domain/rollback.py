"""The way back as a plan of its own: each host to a generation that it has. Needs nothing from any index (P2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cudaup.domain.facts import Facts, GenerationSummary, HostStatus, LeaseState, Unreachable
from cudaup.domain.fingerprint import take_fingerprint
from cudaup.domain.plan import Action, HostPlan, HostVerdict, RollbackPlan, Step
from cudaup.domain.planner import lease_step, release_step
from cudaup.domain.rules import Finding
from cudaup.domain.rules.finding import Rule, Severity
from cudaup.domain.rules.lease import check_lease

SHORTEST_DIGEST = 4

ABSENT = Rule(
    id="R001",
    severity=Severity.BLOCKER,
    title="the generation to go back to is not on the host",
    consequence="there is nothing to switch to",
    fix="`cudaup status` lists the generations of each host",
)
AMBIGUOUS = Rule(
    id="R002",
    severity=Severity.BLOCKER,
    title="several generations go by that name",
    consequence="cudaup does not guess which one",
    fix="give the whole id",
)
OTHER_WAY = Rule(
    id="R003",
    severity=Severity.BLOCKER,
    title="the host is between two generations, and neither way out is the one asked for",
    consequence="a host in transit can only go back to where it came from",
    fix="roll back without `--to` first",
)
RULES = (ABSENT, AMBIGUOUS, OTHER_WAY)


def inverse_plan(
    observed: Mapping[str, Facts | Unreachable],
    to: str | None = None,
    *,
    now: float,
    plan_id: str,
    sources: tuple[str, ...],
    limit: str | None = None,
) -> RollbackPlan:
    """To the previous generation, or to `to`: an id, its number or the start of a digest. All hosts in one wave."""
    hosts = tuple(plan_host_rollback(name, facts, to) for name, facts in observed.items())
    changing = tuple(host.host for host in hosts if host.verdict is HostVerdict.CHANGE)
    return RollbackPlan(
        id=plan_id,
        created=now,
        to=to,
        sources=sources,
        limit=limit,
        waves=(changing,) if changing else (),
        hosts=hosts,
    )


def plan_host_rollback(name: str, facts: Facts | Unreachable, to: str | None) -> HostPlan:
    if isinstance(facts, Unreachable):
        return HostPlan(host=name, verdict=HostVerdict.UNREACHABLE, error=facts.reason)
    status = facts.cudaup
    if status is None or not (status.current or status.transit or status.adopted):
        return _unchanged(name, facts, "cudaup never switched this host")
    target = find_target(status, to, is_serving=not facts.services_down)
    if status.lease.state is not LeaseState.QUARANTINED:  # that is never "nothing to do"
        if target is None:
            return _unchanged(name, facts, _no_way_back(status))
        if isinstance(target, GenerationSummary) and _is_there(facts, status, target):
            return _unchanged(name, facts, f"runs {target.id} already")
    findings = (*check_lease(facts), *((target,) if isinstance(target, Finding) else ()))
    return _plan(name, facts, target, findings)


def find_target(status: HostStatus, to: str | None, *, is_serving: bool = True) -> GenerationSummary | Finding | None:
    """None when there is no earlier generation, or the host was rolled back already, and none was named."""
    if status.transit is not None:
        origin = status.transit.from_
        candidates = tuple(known for known in status.generations if known.id == origin)
        named = _named(status.generations, to) if to is not None else candidates
        if to is not None and named != candidates:
            return OTHER_WAY.found(f"wanted {to}, the host came from {origin}")
        return candidates[0] if candidates else ABSENT.found(f"the host came from {origin or 'no generation'}")
    if to is None:
        return _earlier(status) or (status.current if not is_serving else None)
    found = _named(status.generations, to)
    if not found:
        there = ", ".join(known.id for known in status.generations)
        return ABSENT.found(f"wanted {to}, the host has {there or 'none'}")
    if len(found) > 1:
        return AMBIGUOUS.found(f"{to} may be {' or '.join(known.id for known in found)}")
    return found[0]


def _named(generations: tuple[GenerationSummary, ...], to: str) -> tuple[GenerationSummary, ...]:
    """The strictest reading that finds anything: an id, then a number, then a digest."""
    by_id = tuple(known for known in generations if known.id == to)
    by_number = tuple(known for known in generations if to.isdecimal() and known.number == int(to))
    long_enough = len(to) >= SHORTEST_DIGEST
    by_digest = tuple(known for known in generations if long_enough and known.digest.startswith(to.lower()))
    return by_id or by_number or by_digest


def _earlier(status: HostStatus) -> GenerationSummary | None:
    """The previous one; the newest older one where that link is damaged.

    A previous one that is newer was left by a rollback: asked twice in an incident, it must not go forwards again.
    """
    here, previous = status.current, status.previous
    if previous is not None:
        return previous if here is None or previous.number < here.number else None
    older = (known for known in status.generations if known.confirmed and (here is None or known.number < here.number))
    return max(older, key=lambda known: known.number, default=None)


def _no_way_back(status: HostStatus) -> str:
    if status.previous is not None and status.current is not None:
        here, newer = status.current.id, status.previous.id
        return f"rolled back already, from {newer} to {here}; --to names another one"
    return "there is no earlier generation"


def _is_there(facts: Facts, status: HostStatus, target: GenerationSummary) -> bool:
    """On it, in no transit, and its services run: a rollback to where a host is starts what is down."""
    is_current = status.current is not None and status.current.id == target.id
    return is_current and status.transit is None and not facts.services_down and not status.damage


def _unchanged(name: str, facts: Facts, why: str) -> HostPlan:
    return HostPlan(
        host=name,
        verdict=HostVerdict.UNCHANGED,
        from_generation=facts.current.id if facts.current else None,
        left_alone=(why,),
        simulated=facts.simulated,
    )


def _plan(
    name: str, facts: Facts, target: GenerationSummary | Finding | None, findings: tuple[Finding, ...]
) -> HostPlan:
    blocked = any(finding.blocks for finding in findings)
    goal = target if isinstance(target, GenerationSummary) else None
    return HostPlan(
        host=name,
        verdict=HostVerdict.BLOCKED if blocked else HostVerdict.CHANGE,
        from_generation=facts.current.id if facts.current else None,
        to_name=goal.id if goal else "",
        to_digest=goal.digest if goal else "",
        steps=() if blocked or goal is None else tuple(_steps(facts, goal)),
        findings=findings,
        left_alone=(f"driver {facts.driver.loaded} stays",) if facts.driver.loaded else (),
        fingerprint=take_fingerprint(facts, has_enough_disk=True),
        simulated=facts.simulated,
    )


def _steps(facts: Facts, target: GenerationSummary) -> Iterator[Step]:
    status = facts.cudaup
    in_transit = status is not None and status.transit is not None
    yield lease_step(f"back to {target.id}")
    here = facts.current.id if facts.current else "nothing"
    yield Step(
        action=Action.ROLLBACK,
        reason=f"put back {target.id}"
        + (" now instead of waiting for the timer" if in_transit else f" in place of {here}"),
        precondition=f"{target.id} is verified",
        undo=f"`cudaup-host rollback --to {here}`",
    )
    yield release_step()
