"""Going back to a generation, by whoever does it: a failed activate, the timer, recovery, a rollback.

Every step may be done already; a revert cut short is simply done again.
"""

from contextlib import suppress
from dataclasses import replace
from typing import List, NamedTuple

from cudaup.host import (
    adoption,
    ballast,
    ending,
    generations,
    guards,
    health,
    lease,
    live,
    proof,
    services,
    transit,
    units,
)
from cudaup.host.fence import Mutation
from cudaup.host.files import write_json
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


def revert(ctx: Context, change: Mutation, pending: Transit, why: str, *, at_boot: bool = False) -> Reverted:
    """Back to `pending.origin`, services included, then the proof. Anything but proven ends in quarantine.

    Raises OSError when nothing can be recorded or the links cannot be changed: the transit stays (`keep_serving`).
    """
    ctx.channel.event("revert", "started", f"back to {pending.origin}: {why}")
    ballast.give_up_if_tight(ctx.layout)
    mark(ctx, transit.REVERTING)
    detail = {"from": pending.target, "to": pending.origin, "why": why}
    with change.step("revert", detail):
        problems = _links_back(ctx, change, pending, at_boot=at_boot)
        outcome = _proven(ctx, pending, problems, at_boot=at_boot)
        _settle(ctx, change, pending, outcome, why)
    ctx.channel.event("revert", "done" if outcome.verdict == PROVEN else "failed", "; ".join(outcome.problems))
    return outcome


def keep_serving(ctx: Context, pending: Transit, why: str) -> str:
    """For a disk on which nothing can be recorded: so nothing is switched, but no service is left down for it.

    Returns what is true now. The services are only asked: `why` may pass any moment, and then the revert comes.
    """
    try:
        services.start(ctx, pending.units, wait=False)
        asked = f"asked to start: {', '.join(pending.units) or 'no service'}"
    except Failed as error:
        asked = error.text
    return f"{why}; the host stays on {generations.current_id(ctx.layout)}, {asked}; the timer tries again"


def mark(ctx: Context, phase: str) -> None:
    """How far the transit is. Under the lease lock: a renewal may be writing the deadline."""
    with lease.guarded(ctx):
        pending = transit.read(ctx.layout)
        if pending is not None and pending.phase != phase:
            transit.write(ctx.layout, replace(pending, phase=phase))


def _links_back(ctx: Context, change: Mutation, pending: Transit, *, at_boot: bool) -> List[str]:
    problems = []
    if generations.current_id(ctx.layout) != pending.origin:
        problems = _vacated(ctx, pending, at_boot=at_boot)
        with change.step("switch", {"from": pending.target, "to": pending.origin}):
            generations.switch(ctx.layout, pending.origin)
    generations.set_previous(ctx.layout, pending.previous)
    return problems


def _vacated(ctx: Context, pending: Transit, *, at_boot: bool) -> List[str]:
    """Whoever stays on the generation we leave is a problem to report, not a reason to stay on it.

    Units that have yet to come up at boot wait for us and must not be stopped: they would not come up at all.
    """
    try:
        services.stop(ctx, [unit for unit in pending.units if not at_boot or ctx.systemd.show(unit).pid])
        services.require_vacant(ctx, services.places_of(ctx, pending.target))
    except Failed as error:
        return [error.text]
    return []


def _proven(ctx: Context, pending: Transit, problems: List[str], *, at_boot: bool) -> Reverted:
    problems = [*problems, *_edits(ctx, pending.origin)]
    with suppress(OSError):  # somebody tidied up, perhaps; if there is no room for it, the live proof will tell
        units.install_drop_ins(ctx, pending.units)
    try:
        services.start(ctx, pending.units, wait=not at_boot)
    except Failed as error:
        return Reverted(FAILED, [], [*problems, error.text])
    if not at_boot:  # at boot they start behind this very program
        problems = [*problems, *_live_problems(ctx, pending)]
    suite = proof.suite_of(ctx, pending.origin, pending.suite)
    smoked = proof.again(ctx, pending.origin, suite, proof.remembered(ctx, pending.origin), never)
    if not smoked.is_proven:
        problems = [*problems, f"the smoke of {pending.origin} does not pass"]
    return Reverted(UNPROVEN if problems else PROVEN, smoked.cases, problems)


def _edits(ctx: Context, generation_id: str) -> List[str]:
    """It was whole when the switch began; there is no other way back, but what was edited since is not proven."""
    try:
        guards.require_verified(ctx, generation_id)
    except Refused as refusal:
        return [refusal.text]
    return []


def _live_problems(ctx: Context, pending: Transit) -> List[str]:
    try:
        health.require(ctx, pending.units, pending.health, never)
        live.require(ctx, pending.units, pending.origin)
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
    if not generations.load(layout, pending.target)["confirmed"]:
        generations.update(layout, pending.target, failed=now)
    layout.failed.mkdir(exist_ok=True)
    evidence = {"generation": pending.target, "why": why, "time": now, **outcome._asdict()}
    write_json(layout.failed / f"{pending.target}.json", evidence)
    adoption.remember_units(layout, pending.units)
    ending.end(layout, change, pending, outcome.verdict)
