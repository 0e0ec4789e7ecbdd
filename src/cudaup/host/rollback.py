"""Going back on demand. In transit it is the revert; otherwise it is a transit that reverts from the start."""

from typing import Optional

from cudaup.host import deadman, ending, fence, generations, guards, revert, services, transit
from cudaup.host.fence import Mutation
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.transit import Transit


def rollback(ctx: Context) -> Json:
    """The verb `rollback`, with what the generations came with: the target's suite, the current one's health and hooks.

    By hand in transit it needs nobody's lease: it does what the timer would.
    """
    wanted: Optional[str] = ctx.options.get("to")
    if ctx.dry_run:
        to = wanted or _default_target(ctx)
        guards.require_in_place(ctx)
        guards.require_way_back(ctx, to)
        return {"would": "roll back", "to": to}
    own_right = ctx.epoch is None and ctx.layout.transit.exists()
    with fence.mutation(ctx, "rollback", {"to": wanted}, own_right=own_right) as change:
        pending = transit.read(ctx.layout)
        if pending is None:
            if own_right:
                raise Refused("busy", "the host left its transit just now", "see `cudaup-host status`")
            pending = _begin(ctx, change, wanted or _default_target(ctx))
        elif wanted not in {None, pending.origin}:
            text = f"in transit from {pending.origin} to {pending.target}: it can only go back to {pending.origin}"
            raise Refused("in-transit", text, "roll back without --to first")
        return _go(ctx, change, pending)


def _go(ctx: Context, change: Mutation, pending: Transit) -> Json:
    outcome = revert.revert(ctx, change, pending, "rollback")
    answer = {"from": pending.target, "to": pending.origin, "after": outcome.after, "problems": outcome.problems}
    if outcome.verdict == revert.FAILED:
        raise Failed("services", "; ".join(outcome.problems), {"state": "rollback-failed", **answer})
    return {"state": f"rolled-back-{outcome.verdict}", **answer}


def _begin(ctx: Context, change: Mutation, target: str) -> Transit:
    """Whatever is cut short from here on is finished, forwards to `target`, by the timer or by recovery."""
    current = generations.current_id(ctx.layout) or target  # a link somebody removed is made again
    guards.require_in_place(ctx)
    guards.require_way_back(ctx, target)
    here, there = generations.find(ctx.layout, current) or {}, generations.load(ctx.layout, target)
    came_with = here if "health" in here else there  # an adopted one came with nothing
    hooks = came_with.get("hooks", {})
    affected = services.affected(ctx, current, hooks)
    now = ctx.clock.monotonic()
    pending = Transit(
        origin=target,
        target=current,
        previous=current if here and current != target else _other_than(target, generations.previous_id(ctx.layout)),
        epoch=change.epoch,
        boot_id=ctx.clock.boot_id(),
        deadline=now,
        ceiling=now,
        phase=transit.REVERTING,
        units=affected.units,
        order=affected.order,
        ttl_s=0,
        suite={},
        health=came_with.get("health", {}),
        hooks=hooks,
    )
    with change.step(ending.ARM, transit.as_json(pending)):
        deadman.start_if_it_does(ctx, change.seq)
        deadman.begin(ctx, pending)
    return pending


def _other_than(target: str, previous: Optional[str]) -> Optional[str]:
    return previous if previous != target else None


def _default_target(ctx: Context) -> str:
    """The previous generation, if it is the older one: asked twice, a rollback must not go forwards again."""
    current, previous = generations.current_id(ctx.layout), generations.previous_id(ctx.layout)
    if current is None or previous is None:
        raise Refused("not-found", "there is no previous generation", "name one with --to")
    if generations.load(ctx.layout, previous)["number"] > generations.load(ctx.layout, current)["number"]:
        text = f"current {current} is older than previous {previous}: already rolled back"
        fix = f"to go forwards again: --to {previous}; to start its services: --to {current}"
        raise Refused("not-found", text, fix)
    return previous
