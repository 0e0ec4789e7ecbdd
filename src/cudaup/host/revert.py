"""Going back to a generation, by whoever does it: a failed activate, the timer, recovery, a rollback.

Every step may be done already; a revert cut short is simply done again.
"""

from contextlib import suppress
from dataclasses import replace
from typing import List, NamedTuple

from cudaup.host import (
    adoption,
    caches,
    ending,
    evidence,
    generations,
    guards,
    health,
    hooks,
    lease,
    live,
    proof,
    services,
    transit,
    units,
)
from cudaup.host.fence import Mutation
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.systemd import never
from cudaup.host.transit import Transit

PROVEN, UNPROVEN, FAILED = "proven", "unproven", "failed"


class Reverted(NamedTuple):
    """`verdict` is proven, unproven (it runs, but a proof is missing) or failed (its services do not run)."""

    verdict: str
    after: List[Json]
    problems: List[str]

    @property
    def state(self) -> str:
        """What whoever went back answers."""
        return "revert-failed" if self.verdict == FAILED else f"reverted-{self.verdict}"


def revert(ctx: Context, change: Mutation, pending: Transit, why: str) -> Reverted:
    """Back to `pending.origin`, services included, then the proof. Anything but proven ends in quarantine.

    Raises OSError when nothing can be recorded or the links cannot be changed: the transit stays (`keep_serving`).
    """
    ctx.channel.event("revert", "started", f"back to {pending.origin}: {why}")
    mark(ctx, transit.REVERTING)
    detail = {"from": pending.target, "to": pending.origin, "why": why}
    with change.step("revert", detail):
        problems = _vacated(ctx, pending) if _is_occupied(ctx, pending) else []
        _links_back(ctx, change, pending)
        outcome = _undrained(ctx, pending, _proven(ctx, pending, problems))
        _settle(ctx, change, pending, outcome, why)
    ctx.channel.event("revert", "done" if outcome.verdict == PROVEN else "failed", "; ".join(outcome.problems))
    return outcome


def keep_serving(ctx: Context, pending: Transit, why: str) -> str:
    """For a disk on which nothing can be recorded: so nothing is switched, but no service is left down for it.

    Returns what is true now. The services are only asked: `why` may pass any moment, and then the revert comes.
    """
    try:
        services.start(ctx, pending.order, wait=False)
        asked = f"asked to start: {', '.join(pending.order) or 'no service'}"
    except Failed as error:
        asked = error.text
    told = [asked, *hooks.problems_of(ctx, pending.hooks, hooks.START)]
    return f"{why}; the host stays on {generations.current_id(ctx.layout)}, {'; '.join(told)}; the timer tries again"


def at_boot(ctx: Context, change: Mutation, pending: Transit) -> None:
    """Before the services start: they shall start from where the host goes back to. The rest is the timer's."""
    mark(ctx, transit.REVERTING)
    _links_back(ctx, change, pending)
    services.start(ctx, pending.order, wait=False)


def mark(ctx: Context, phase: str) -> None:
    """How far the transit is. Under the lease lock: a renewal may be writing the deadline."""
    with lease.guarded(ctx):
        pending = transit.read(ctx.layout)
        if pending is not None and pending.phase != phase:
            transit.write(ctx.layout, replace(pending, phase=phase))


def _links_back(ctx: Context, change: Mutation, pending: Transit) -> None:
    if generations.current_id(ctx.layout) != pending.origin:
        with change.step("switch", {"from": pending.target, "to": pending.origin}):
            generations.switch(ctx.layout, pending.origin)
    generations.set_previous(ctx.layout, pending.previous)


def _is_occupied(ctx: Context, pending: Transit) -> bool:
    """The links may be back already, under what still runs: `at_boot` stops nothing."""
    layout = ctx.layout
    if generations.current_id(layout) != pending.origin:
        return True
    left = [layout.generation(pending.target), generations.tree(layout, pending.target)]
    return pending.target != pending.origin and bool(services.running_from(ctx, left).units)


def _vacated(ctx: Context, pending: Transit) -> List[str]:
    """Whoever stays on the generation we leave is a problem to report, not a reason to stay on it."""
    problems = hooks.problems_of(ctx, pending.hooks, hooks.STOP)
    places = services.places_of(ctx, pending.target)
    try:
        # Also a job that a timer has started from there meanwhile.
        began = [name for name in services.running_from(ctx, places).units if name not in pending.order]
        services.stop(ctx, (*pending.order, *began))
        services.require_vacant(ctx, places)
    except Failed as error:
        problems.append(error.text)
    return problems


def _proven(ctx: Context, pending: Transit, problems: List[str]) -> Reverted:
    problems = [*problems, *_edits(ctx, pending.origin)]
    with suppress(OSError):  # somebody tidied up, perhaps; if there is no room for it, the live proof will tell
        units.install_drop_ins(ctx, pending.units)
    down = []
    try:
        services.start(ctx, pending.order)
    except Failed as error:
        down = [error.text]
    problems = [*problems, *down, *hooks.problems_of(ctx, pending.hooks, hooks.START)]
    if down:
        return Reverted(FAILED, [], problems)
    problems += _live_problems(ctx, pending)
    suite = proof.suite_of(ctx, pending.origin, pending.suite)
    smoked = proof.again(ctx, pending.origin, suite, proof.remembered(ctx, pending.origin), never)
    if not smoked.is_proven:
        problems.append(f"the smoke of {pending.origin} does not pass")
    return Reverted(UNPROVEN if problems else PROVEN, smoked.cases, problems)


def _undrained(ctx: Context, pending: Transit, outcome: Reverted) -> Reverted:
    """Not where the services do not run: who is sent there again would find nobody."""
    if outcome.verdict == FAILED:
        return outcome
    problems = [*outcome.problems, *hooks.problems_of(ctx, pending.hooks, hooks.UNDRAIN)]
    return outcome._replace(verdict=UNPROVEN if problems else outcome.verdict, problems=problems)


def _edits(ctx: Context, generation_id: str) -> List[str]:
    """It was whole when the switch began; there is no other way back, but what was edited since is not proven."""
    try:
        guards.require_way_back(ctx, generation_id)
    except Refused as refusal:
        return [refusal.text]
    return []


def _live_problems(ctx: Context, pending: Transit) -> List[str]:
    try:
        health.require(ctx, pending.units, pending.health, never)
        live.require(ctx, pending, pending.origin)
    except Failed as error:
        return [error.text]
    return []


def _settle(ctx: Context, change: Mutation, pending: Transit, outcome: Reverted, why: str) -> None:
    """The records first, the transit's end last."""
    layout = ctx.layout
    now = ctx.clock.wall()
    if outcome.verdict == PROVEN:
        generations.update(layout, pending.origin, proven=now, confirmed=True)
    else:
        lease.quarantine(ctx, f"going back to {pending.origin}: {'; '.join(outcome.problems)}")
    left = generations.find(layout, pending.target)
    if left is not None and not left["confirmed"]:
        generations.update(layout, pending.target, failed=now)
        caches.drop_bytecode(layout, pending.target)
    evidence.keep(ctx, pending, {"why": why, **outcome._asdict()})
    adoption.remember_units(layout, pending.units)
    ending.end(ctx, change, pending, outcome.verdict)
