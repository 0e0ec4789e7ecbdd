"""The operator's word that the new generation stays. It and the timer exclude each other by the lock."""

from cudaup.host import ending, fence, generations, hooks, live, transit
from cudaup.host.fence import Mutation
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.transit import Transit


def confirm(ctx: Context) -> Json:
    """The verb `confirm`. Refused `not-found` when the timer already fired.

    The drain is undone before the end is recorded: whatever dies in between, a host is never left drained.
    """
    layout = ctx.layout
    if ctx.dry_run:
        pending = transit.read(layout)
        return {"would": f"confirm {pending.target}" if pending else "nothing: not in transit"}
    with fence.mutation(ctx, "confirm", {}) as change:
        pending = transit.read(layout)
        if pending is None:
            return _confirmed_before(ctx, change)
        _require_confirmable(ctx, pending)
        generations.update(layout, pending.target, confirmed=True, proven=ctx.clock.wall(), failed=None)
        ending.end(ctx, change, pending, ending.CONFIRMED)
    return {"state": "confirmed", "generation": pending.target}


def _require_confirmable(ctx: Context, pending: Transit) -> None:
    if pending.phase != transit.AWAITING_CONFIRM:
        raise Refused("in-transit", f"the host is not ready to be confirmed: {pending.phase}")
    _require_time(ctx)
    try:
        live.require(ctx, pending, pending.target)
        hooks.run(ctx, pending.hooks, hooks.UNDRAIN, lambda: _is_too_late(ctx))
    except Failed as error:
        raise Refused("not-verified", f"not confirmed: {error.text}", "roll back") from error
    _require_time(ctx)


def _is_too_late(ctx: Context) -> bool:
    """Read from disk: renewals come from other processes."""
    pending = transit.read(ctx.layout)
    return pending is None or pending.is_abandoned(ctx.clock)


def _require_time(ctx: Context) -> None:
    if _is_too_late(ctx):
        raise Refused("not-found", "too late: the timer's deadline has passed and it puts the host back")


def _confirmed_before(ctx: Context, change: Mutation) -> Json:
    """A repeated confirm whose first answer was lost is told the same; any other is too late."""
    last = ending.last(ctx.layout)
    if last is not None and (last["end"], last["epoch"]) == (ending.CONFIRMED, change.epoch):
        return {"state": "confirmed", "generation": last["generation"]}
    current = generations.current_id(ctx.layout)
    raise Refused("not-found", f"nothing waits for a confirmation; current is {current}", "see `cudaup-host status`")
