"""The dead-man's timer: a process of its own that puts the host back when nobody renews any more.

It takes no orders; it reads transit.json again and again and acts under the same lock as everyone else.
"""

import os
import signal
import subprocess
from dataclasses import dataclass
from typing import List, Sequence

from cudaup.host import fence, install, lease, locks, revert, transit
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json, Refused
from cudaup.host.transit import Transit
from cudaup.host.units import RECOVER_UNIT

_POLL_S = 0.5
_APPEARS_WITHIN_S = 10
_LOCK_WAIT_S = 2
_TROUBLE_S = 5  # between two attempts on a disk that cannot be written
# What a start hook leaves running outlives the timer that ran it.
_SETTINGS = ("Restart=on-failure", "RestartSec=5", "StartLimitIntervalSec=0", "KillMode=process")
# A holder of the lock that should have stopped long ago hangs: killed, so that the host is not stuck with it.
_HANGS_AFTER_S = 150
_REVERT_HANGS_AFTER_S = 900


def begin(ctx: Context, pending: Transit) -> None:
    """The transit, for a timer that lives already: it ends when it finds neither a transit nor anybody at work."""
    with lease.guarded(ctx):
        transit.write(ctx.layout, pending)


def start_if_it_does(ctx: Context, number: int) -> None:
    """For going back: that must not fail for want of a timer. Of a crash without one `recover` takes care."""
    try:
        start(ctx, number)
    except Refused as error:
        ctx.channel.event("arm", "note", f"no timer: {error.text}")


def start(ctx: Context, number: int) -> None:
    """Start the timer and wait until it lives. Refused `unsupported` when it does not; nothing is changed before."""
    argv = _argv(ctx)
    install.require_same(ctx.layout)
    if ctx.systemd.is_running():
        _run_transient(ctx, str(number), _SETTINGS, argv)
    else:
        null = subprocess.DEVNULL
        subprocess.run(["setsid", "--fork", *argv], stdin=null, stdout=null, stderr=null, check=True)
    limit = ctx.clock.monotonic() + _APPEARS_WITHIN_S
    while not locks.is_held(ctx.layout.timer_lock):
        if ctx.clock.monotonic() >= limit:
            raise Refused("unsupported", f"the timer did not come up within {_APPEARS_WITHIN_S} s")
        ctx.clock.sleep(_POLL_S / 10)


def begin_at_boot(ctx: Context) -> None:
    """The rest of a revert needs what boots behind `recover`: the services, and for the hooks a network."""
    network = "network-online.target"
    try:
        _run_transient(ctx, "boot", [*_SETTINGS, f"Wants={network}", f"After={network} {RECOVER_UNIT}"], _argv(ctx))
    except Refused as error:
        ctx.channel.event("arm", "note", error.text)


def _run_transient(ctx: Context, name: str, settings: Sequence[str], argv: Sequence[str]) -> None:
    outcome = ctx.systemd.run_transient(f"cudaup-deadman-{name}", settings, argv)
    if not outcome.ok:
        raise Refused("unsupported", f"the timer does not start: {outcome.text}")


def _argv(ctx: Context) -> List[str]:
    return [str(ctx.layout.program), "deadman", "--root", str(ctx.layout.root)]


def run(ctx: Context) -> Json:
    """The verb `deadman`. Ends when the transit has."""
    while not _is_over(ctx.layout):
        if locks.is_held(ctx.layout.timer_lock):
            ctx.clock.sleep(_POLL_S)  # an older timer serves; stand by for it
            continue
        with locks.held(ctx.layout.timer_lock, "deadman", ctx.clock, _LOCK_WAIT_S):
            return _watch(ctx)
    return {"state": "settled"}


def _watch(ctx: Context) -> Json:
    patience = _Patience()
    while not _is_over(ctx.layout):
        pending = transit.read(ctx.layout)
        if pending is not None and _is_due(ctx, pending):
            try:
                done = fire(ctx)
            except Refused:  # busy: an activate that should be reverting by itself
                patience = patience.after(ctx, pending)
            except OSError as error:  # a disk gone read-only, say: it may come back
                ctx.channel.event("revert", "failed", revert.keep_serving(ctx, pending, str(error)))
                ctx.clock.sleep(_TROUBLE_S)
            else:
                if done:
                    return done
        ctx.clock.sleep(_POLL_S)
    return {"state": "settled"}


def fire(ctx: Context) -> Json:
    """Put the host back, if it is still due once the lock is ours. Refused `busy`. Empty when it was not due."""
    with fence.mutation(ctx, "deadman", {}, own_right=True, wait_s=_LOCK_WAIT_S) as change:
        pending = transit.read(ctx.layout)
        if pending is None or not _is_due(ctx, pending):
            return {}
        is_later_boot = pending.boot_id != ctx.clock.boot_id()
        cause = "the host was rebooted" if is_later_boot else "nobody renewed or confirmed in time"
        why = f"{cause} (phase {pending.phase})"
        outcome = revert.revert(ctx, change, pending, why)
        return {"state": outcome.state, "after": outcome.after, "problems": outcome.problems}


def _is_due(ctx: Context, pending: Transit) -> bool:
    """A revert under way whose process died is due at once; while it lives it holds the lock."""
    return pending.phase == transit.REVERTING or pending.is_abandoned(ctx.clock)


def _is_over(layout: Layout) -> bool:
    """No transit, and nobody at work who might be about to write one (looked at in this order, then again)."""
    return not layout.transit.exists() and not locks.is_held(layout.lock) and not layout.transit.exists()


@dataclass(frozen=True)
class _Patience:
    """How long the lock has been in our way, in which phase."""

    phase: str = ""
    since: float = 0.0

    def after(self, ctx: Context, pending: Transit) -> "_Patience":
        now = ctx.clock.monotonic()
        if pending.phase != self.phase:
            return _Patience(pending.phase, now)
        is_reverting = pending.phase == transit.REVERTING
        limit = _REVERT_HANGS_AFTER_S + pending.longest_s() if is_reverting else _HANGS_AFTER_S
        if now - self.since >= limit:
            _kill_holder(ctx)
            return _Patience(pending.phase, now)
        return self


def _kill_holder(ctx: Context) -> None:
    """Only who holds the lock at this moment and signed it."""
    signed = locks.holder(ctx.layout.lock)
    if "pid" in signed and locks.is_held(ctx.layout.lock):
        os.kill(int(signed["pid"]), signal.SIGKILL)
