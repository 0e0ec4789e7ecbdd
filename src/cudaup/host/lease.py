"""The per-host exclusive lease and its fencing epoch. Whoever holds the newest epoch may change the host."""

from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Iterator

from cudaup.host import transit
from cudaup.host.clock import Clock
from cudaup.host.files import read_state, write_json
from cudaup.host.journal import Journal
from cudaup.host.layout import Layout
from cudaup.host.locks import held, is_held
from cudaup.host.mounts import prepare_root
from cudaup.host.protocol import Context, Json, Refused

FREE, HELD, QUARANTINED = "free", "held", "quarantined"
BY_HAND_RUN = "by-hand"
_LOCK_WAIT_S = 10


@dataclass(frozen=True)
class Lease:
    """`renewed` is a monotonic second of the boot `boot_id`; the epoch grows with every change of holder."""

    state: str = FREE
    epoch: int = 0
    holder: str = ""
    run: str = ""
    reason: str = ""
    since: float = 0.0
    ttl_s: float = 0.0
    boot_id: str = ""
    renewed: float = 0.0

    def remaining_s(self, clock: Clock) -> float:
        """After a reboot the whole time to live counts again, from that boot: its holder may come back for it."""
        start = self.renewed if self.boot_id == clock.boot_id() else clock.booted()
        return start + self.ttl_s - clock.monotonic()

    def is_expired(self, clock: Clock) -> bool:
        return self.state == HELD and self.remaining_s(clock) <= 0

    def as_json(self, clock: Clock) -> Json:
        fields = asdict(self)
        del fields["boot_id"], fields["renewed"]
        remaining = max(0.0, self.remaining_s(clock)) if self.state == HELD else 0.0
        return {**fields, "remaining_s": round(remaining, 3), "expired": self.is_expired(clock)}

    def described(self, clock: Clock) -> str:
        age = max(0.0, clock.wall() - self.since)
        return f"epoch {self.epoch}, {self.holder} (run {self.run}) for {age:.0f} s: {self.reason}"


@dataclass(frozen=True)
class Claim:
    """Who asks for the lease, and how firmly."""

    holder: str
    run: str
    reason: str
    ttl_s: float
    take_over: bool = False


def read(layout: Layout) -> Lease:
    """One that is damaged is a quarantine: who held it is not known, and a person can end it."""
    try:
        return Lease(**read_state(layout.lease))
    except FileNotFoundError:
        return Lease()
    except (Refused, TypeError) as error:
        last = max((entry["epoch"] for entry in Journal(layout).entries()), default=0)
        return Lease(state=QUARANTINED, epoch=last, reason=f"`{layout.lease}` is damaged: {error}")


@contextmanager
def guarded(ctx: Context) -> Iterator[Lease]:
    """The lease as it is, under its lock; also what guards transit.json."""
    with held(ctx.layout.lease_lock, "lease", ctx.clock, _LOCK_WAIT_S):
        yield read(ctx.layout)


def granted(now: Lease, claim: Claim, clock: Clock, *, in_transit: bool) -> Lease:
    """The lease after `claim`. Refused `lease-held` or `quarantined`."""
    is_same = now.state == HELD and now.run == claim.run
    if now.state == QUARANTINED:
        raise refused_quarantined(now, clock)
    if now.state == HELD and not is_same:
        _require_expired(now, claim, clock, in_transit=in_transit)
    return Lease(
        state=HELD,
        epoch=now.epoch if is_same else _next_epoch(now, clock),
        holder=claim.holder,
        run=claim.run,
        reason=claim.reason,
        since=now.since if is_same else clock.wall(),
        ttl_s=claim.ttl_s,
        boot_id=clock.boot_id(),
        renewed=clock.monotonic(),
    )


def _next_epoch(now: Lease, clock: Clock) -> int:
    """A root's first is the time: made anew after a `forget`, it must not hand out what an old holder still has."""
    return now.epoch + 1 if now.epoch else int(clock.wall())


def _require_expired(now: Lease, claim: Claim, clock: Clock, *, in_transit: bool) -> None:
    if not now.is_expired(clock):
        fix = f"it expires in {now.remaining_s(clock):.0f} s unless its holder renews it"
        raise Refused("lease-held", f"the lease is held: {now.described(clock)}", fix)
    if in_transit and not claim.take_over:
        text = f"the lease has expired in the middle of a switch: {now.described(clock)}"
        raise Refused("lease-held", text, "the timer puts the host back by itself; --take-over to act before it does")


def show(ctx: Context) -> Json:
    """The verb `lease show`."""
    return {"lease": in_force(ctx).as_json(ctx.clock)}


def in_force(ctx: Context) -> Lease:
    """The lease as `take` would find it."""
    return _without_dead_hand(ctx, read(ctx.layout))


def take(ctx: Context) -> Json:
    """The verb `lease take`."""
    asked = ctx.options
    claim = Claim(asked["holder"], asked["run"], asked["reason"], asked["ttl"], take_over=asked["take_over"])
    if ctx.dry_run and not ctx.layout.root.is_dir():
        return _would(ctx, "take the lease", granted(Lease(), claim, ctx.clock, in_transit=False))
    if not ctx.dry_run:
        prepare_root(ctx.layout)
    with guarded(ctx) as now:
        after = granted(_without_dead_hand(ctx, now), claim, ctx.clock, in_transit=ctx.layout.transit.exists())
        if ctx.dry_run:
            return _would(ctx, "take the lease", after)
        store(ctx, "lease-take", after)
        _move_deadline(ctx)
    return {"lease": after.as_json(ctx.clock)}


def renew(ctx: Context) -> Json:
    """The verb `lease renew`: also moves the dead-man's deadline. Not journalled, it happens every few seconds."""
    with guarded(ctx) as now:
        require_epoch(now, ctx)
        after = replace(now, boot_id=ctx.clock.boot_id(), renewed=ctx.clock.monotonic())
        if ctx.dry_run:
            return _would(ctx, "renew the lease", after)
        write_json(ctx.layout.lease, asdict(after), reserve=ctx.layout.ballast)
        _move_deadline(ctx)
    return {"lease": after.as_json(ctx.clock)}


def release(ctx: Context) -> Json:
    """The verb `lease release`. A free lease with this epoch is what a lost answer leaves: fine."""
    with guarded(ctx) as now:
        if now.state == FREE and now.epoch == ctx.epoch:
            return {"lease": now.as_json(ctx.clock)}
        require_epoch(now, ctx)
        if ctx.layout.transit.exists():
            raise Refused("in-transit", "the host is between two generations", "confirm or roll back first")
        after = freed(now)
        if ctx.dry_run:
            return _would(ctx, "release the lease", after)
        store(ctx, "lease-release", after)
    return {"lease": after.as_json(ctx.clock)}


def quarantine(ctx: Context, reason: str) -> None:
    """Nobody may change this host until a person clears it. The reason replaces the holder's."""
    with guarded(ctx) as now:
        store(ctx, "quarantine", replace(now, state=QUARANTINED, reason=reason, since=ctx.clock.wall()))


def clear(ctx: Context) -> Json:
    """The verb `lease clear`: a person has looked at the host. Who still had an epoch from before is fenced off."""
    with guarded(ctx) as now:
        if now.state != QUARANTINED:
            raise Refused("not-found", f"the host is not in quarantine: its lease is {now.state}")
        if ctx.layout.transit.exists():
            raise Refused("in-transit", "the host is between two generations", "`cudaup-host recover` settles it")
        after = replace(freed(now), epoch=_next_epoch(now, ctx.clock))
        if ctx.dry_run:
            return _would(ctx, "end the quarantine", after)
        store(ctx, "lease-clear", after)
    return {"lease": after.as_json(ctx.clock)}


def freed(now: Lease) -> Lease:
    return replace(now, state=FREE)


def require_epoch(now: Lease, ctx: Context) -> None:
    """The fence itself. Refused `stale-epoch` or `quarantined`."""
    if now.state == QUARANTINED:
        raise refused_quarantined(now, ctx.clock)
    if now.state != HELD or now.epoch != ctx.epoch:
        who = now.described(ctx.clock) if now.state == HELD else f"nobody (epoch {now.epoch})"
        text = f"epoch {ctx.epoch} is no longer the lease's; it is held by {who}"
        raise Refused("stale-epoch", text, "read the host's state and plan again")


def refused_quarantined(now: Lease, clock: Clock) -> Refused:
    fix = "look at the host, then `cudaup-host lease clear`"
    return Refused("quarantined", f"the host is in quarantine: {now.described(clock)}", fix)


def store(ctx: Context, op: str, after: Lease) -> None:
    journal = Journal(ctx.layout, ctx.clock)
    seq = journal.intent(op, after.epoch, {"holder": after.holder, "run": after.run, "reason": after.reason})
    write_json(ctx.layout.lease, asdict(after), reserve=ctx.layout.ballast)
    journal.done(seq)


def _without_dead_hand(ctx: Context, now: Lease) -> Lease:
    """A lease taken by hand lives only while its process holds the lock."""
    if now.state == HELD and now.run == BY_HAND_RUN and not is_held(ctx.layout.lock):
        return freed(now)
    return now


def _move_deadline(ctx: Context) -> None:
    pending = transit.read(ctx.layout)
    if pending is not None:
        transit.write(ctx.layout, pending.renewed(ctx.clock))


def _would(ctx: Context, what: str, after: Lease) -> Json:
    return {"would": what, "lease": after.as_json(ctx.clock)}
