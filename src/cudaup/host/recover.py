"""Settles whatever a crash or a reboot left: a transit nobody finished, half-made generations, open intents."""

import shutil
from typing import List, Optional

from cudaup.host import adopt, deadman, fence, generations, lease, locks, revert, transit
from cudaup.host.fence import Mutation
from cudaup.host.protocol import Context, Json, Refused
from cudaup.host.transit import Transit

_LEASE_OPS = ("lease-take", "lease-release", "lease-clear", "quarantine")


def recover(ctx: Context) -> Json:
    """The verb `recover`. Refused `in-transit` while a controller is within its deadline."""
    is_boot = bool(ctx.options.get("boot")) and ctx.systemd.is_running()  # elsewhere nothing waits for this to end
    if not ctx.layout.root.is_dir():
        return {"state": "clean", "actions": []}
    if _is_live(ctx, transit.read(ctx.layout)):
        if is_boot:  # pulled in by a service that an activate starts: nothing to do, and nothing to wait for
            return {"state": "in-transit", "actions": []}
        raise Refused("in-transit", "a switch is under way and within its deadline", "confirm or roll back, or wait")
    if is_boot and locks.is_held(
        ctx.layout.lock
    ):  # pulled in by somebody's start; whoever works here, it is not a boot
        return {"state": "busy", "actions": []}
    if ctx.dry_run:
        return {"would": _pending_work(ctx)}
    if is_boot and ctx.layout.transit.exists():
        deadman.begin_at_boot(ctx)  # first: it also finishes what this very program does not
    with fence.mutation(ctx, "recover", {"boot": is_boot}, own_right=True) as change:
        return _settle(ctx, change, is_boot=is_boot)


def _settle(ctx: Context, change: Mutation, *, is_boot: bool) -> Json:
    state, actions = "clean", []
    pending = transit.read(ctx.layout)
    if _is_live(ctx, pending):
        raise Refused("in-transit", "a switch has begun meanwhile")
    if pending is not None and is_boot:
        revert.at_boot(ctx, change, pending)
        state = "in-transit"
        actions.append(f"goes back from {pending.target} to {pending.origin}; the timer proves it")
    elif pending is not None:
        deadman.start_if_it_does(ctx, change.seq)  # the one before may be gone, and this may be killed too
        outcome = revert.revert(ctx, change, pending, f"found in phase {pending.phase}")
        state = outcome.state
        actions += [f"went back from {pending.target} to {pending.origin}", *outcome.problems]
    actions += _settle_half_done(ctx)
    _close_intents(ctx, change, actions)
    return {"state": state if pending or not actions else "settled", "actions": actions}


def _is_live(ctx: Context, pending: Optional[Transit]) -> bool:
    if pending is None:
        return False
    return not pending.is_abandoned(ctx.clock) and pending.phase != transit.REVERTING


def _settle_half_done(ctx: Context) -> List[str]:
    actions = adopt.settle(ctx)
    for leftover in generations.incomplete(ctx.layout):
        shutil.rmtree(str(leftover))
        actions.append(f"removed half-made `{leftover.name}`")
    return actions


def _close_intents(ctx: Context, change: Mutation, actions: List[str]) -> None:
    """Nobody else is at work: the lock is ours, and the lease's own for the moment of looking."""
    with lease.guarded(ctx):
        for entry in change.journal.open_intents():
            if entry["seq"] < change.seq:
                change.journal.failed(entry["seq"], {"settled": "recover"})
                if entry["op"] not in _LEASE_OPS:
                    actions.append(f"settled `{entry['op']}` (journal {entry['seq']})")


def _pending_work(ctx: Context) -> List[str]:
    pending = transit.read(ctx.layout)
    work = [f"go back from {pending.target} to {pending.origin}"] if pending else []
    return work + [f"remove half-made `{path.name}`" for path in generations.incomplete(ctx.layout)]
