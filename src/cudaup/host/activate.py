"""The switch to another generation, from stop to proof, on the host. Whatever fails, the host goes back by itself."""

from dataclasses import dataclass, field
from typing import List, Tuple

from cudaup.host import (
    adoption,
    ballast,
    deadman,
    ending,
    fence,
    generations,
    guards,
    health,
    lease,
    live,
    proof,
    revert,
    services,
    transit,
    units,
)
from cudaup.host.fence import Mutation
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.transit import Transit

STEPS = ("verify", "arm", "stop", "baseline", "smoke", "switch", "start", "health", "live-proof")


@dataclass
class Attempt:
    """One activate on its way: what it has found so far and which step it is in."""

    ctx: Context
    change: Mutation
    pending: Transit
    step: str = "arm"
    baseline: List[Json] = field(default_factory=list)
    smoke: List[Json] = field(default_factory=list)
    live: List[Json] = field(default_factory=list)

    def enter(self, step: str) -> None:
        self.require_time()
        self.step = step
        self.ctx.channel.event(step, "started")

    def require_time(self) -> None:
        if self.is_abandoned():
            raise Failed("abandoned", f"nobody renewed in time; stopped after `{self.step}`")

    def is_abandoned(self) -> bool:
        """Read from disk: renewals come from other processes, and another holder may have taken the lease."""
        now = transit.read(self.ctx.layout)
        if now is None or now.is_abandoned(self.ctx.clock):
            return True
        return lease.read(self.ctx.layout).epoch != now.epoch

    def data(self) -> Json:
        return {"from": self.pending.origin, "to": self.pending.target, "baseline": self.baseline, "smoke": self.smoke}


def activate(ctx: Context) -> Json:
    """The verb `activate`. Raises Failed with the state after its own revert."""
    target = str(ctx.options["generation"])
    if ctx.dry_run:
        return {"would": list(STEPS), "from": generations.current_id(ctx.layout), "to": target}
    with fence.mutation(ctx, "activate", {"to": target}) as change:
        guards.require_settled(ctx)
        if generations.current_id(ctx.layout) == target:
            return {"state": "unchanged", "generation": target}
        running = _verified(ctx, target)
        attempt = Attempt(ctx, change, _arm(ctx, change, target, running))
        try:
            _forward(attempt)
        except (Failed, Refused, OSError, KeyboardInterrupt) as error:
            raise _gone_back(attempt, error) from error
        revert.mark(ctx, transit.AWAITING_CONFIRM)
        return {"state": transit.AWAITING_CONFIRM, **attempt.data(), "live": attempt.live}


def _verified(ctx: Context, target: str) -> Tuple[str, ...]:
    """The way back, then the way forward, then what runs. Nothing is changed yet."""
    origin = generations.current_id(ctx.layout)
    if origin is None:
        raise Refused("not-found", "there is no current generation to go back to", "adopt the environment first")
    generations.load(ctx.layout, target)
    known = adoption.read(ctx.layout)
    if known is not None and not known.is_in_place(ctx.layout):
        raise Refused("unsafe", f"`{known.path}` does not lead to `{adoption.link_text(ctx.layout)}`", "run `recover`")
    guards.require_verified(ctx, origin)
    guards.require_verified(ctx, target)
    return guards.require_vacant_but_for_services(ctx, origin)


def _arm(ctx: Context, change: Mutation, target: str, running: Tuple[str, ...]) -> Transit:
    now = ctx.clock.monotonic()
    ceiling = now + float(ctx.options["ceiling"])
    # By hand nobody renews; the person is there until the ceiling.
    deadline = ceiling if ctx.epoch is None else min(now + float(ctx.options["ttl"]), ceiling)
    pending = Transit(
        origin=str(generations.current_id(ctx.layout)),
        target=target,
        previous=generations.previous_id(ctx.layout),
        epoch=change.epoch,
        boot_id=ctx.clock.boot_id(),
        deadline=deadline,
        ceiling=ceiling,
        phase=transit.ARMED,
        units=running,
        ttl_s=float(ctx.options["ttl"]),
        suite=ctx.options["suite"],
        health=ctx.options["health"],
    )
    with change.step(ending.ARM, transit.as_json(pending)):
        deadman.start(ctx, change.seq)
        ballast.lay(ctx.layout)
        generations.update(ctx.layout, target, suite=pending.suite, health=pending.health)
        adoption.remember_units(ctx.layout, running)
        units.install_drop_ins(ctx, running)
        deadman.begin(ctx, pending)
    return pending


def _forward(attempt: Attempt) -> None:
    ctx, pending = attempt.ctx, attempt.pending
    attempt.enter("stop")
    revert.mark(ctx, transit.STOPPED)
    with attempt.change.step("stop", {"units": list(pending.units)}):
        services.stop(ctx, pending.units)
        services.require_vacant(ctx, services.places_of(ctx, pending.origin))
    attempt.enter("baseline")
    own = proof.suite_of(ctx, pending.origin, pending.suite)
    attempt.baseline = proof.baseline(ctx, pending.origin, own, attempt.is_abandoned).cases
    attempt.enter("smoke")
    _smoke_target(attempt)
    attempt.enter("switch")
    with attempt.change.step("switch", {"from": pending.origin, "to": pending.target}):
        generations.switch(ctx.layout, pending.target)
    revert.mark(ctx, transit.SWITCHED)
    attempt.enter("start")
    services.start(ctx, pending.units, attempt.is_abandoned)
    attempt.enter("health")
    health.require(ctx, pending.units, pending.health, attempt.is_abandoned)
    attempt.enter("live-proof")
    attempt.live = live.require(ctx, pending.units, pending.target)
    attempt.require_time()


def _smoke_target(attempt: Attempt) -> None:
    ctx, target, suite = attempt.ctx, attempt.pending.target, attempt.pending.suite
    result = proof.run(ctx, target, suite, attempt.is_abandoned)
    attempt.smoke = result.cases
    if not result.is_proven:
        raise Failed("smoke", f"the smoke of {target} does not pass: {'; '.join(result.objections(suite))}")
    proof.remember(ctx, target, suite, result)


def _gone_back(attempt: Attempt, error: BaseException) -> Failed:
    ctx, pending = attempt.ctx, attempt.pending
    why = f"{attempt.step}: {error or type(error).__name__}"
    ctx.channel.event(attempt.step, "failed", why)
    try:
        outcome = revert.revert(ctx, attempt.change, pending, why)
    except OSError as broken:
        text = revert.keep_serving(ctx, pending, f"{why}; going back failed too: {broken}")
        data = {"state": "in-transit", "failed_step": attempt.step, **attempt.data()}
        raise Failed("revert", text, data) from broken
    data = {"state": outcome.state, "failed_step": attempt.step, **attempt.data(), "after": outcome.after}
    code = error.code if isinstance(error, (Failed, Refused)) else "interrupted"
    return Failed(code, why, {**data, "problems": outcome.problems})
