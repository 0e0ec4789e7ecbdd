"""The switch to another generation, from stop to proof, on the host. Whatever fails, the host goes back by itself."""

from dataclasses import dataclass, field
from typing import List, Union

from cudaup.host import (
    adoption,
    ballast,
    caches,
    deadman,
    ending,
    fence,
    generations,
    guards,
    health,
    hooks,
    lease,
    live,
    proof,
    revert,
    services,
    smoke,
    transit,
    units,
)
from cudaup.host.fence import Mutation
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.services import Affected
from cudaup.host.systemd import never
from cudaup.host.transit import Transit

STEPS = ("verify", "arm", "drain", "stop", "baseline", "smoke", "switch", "start", "health", "live-proof", "bench")
_ABANDONED = "abandoned"


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
            raise Failed(_ABANDONED, f"nobody renewed in time; stopped after `{self.step}`")

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
        guards.require_settled(ctx)
        origin = generations.current_id(ctx.layout)
        if origin != target:
            _verified(ctx, target)
        return {"would": list(STEPS) if origin != target else "nothing", "from": origin, "to": target}
    with fence.mutation(ctx, "activate", {"to": target}) as change:
        guards.require_settled(ctx)
        if generations.current_id(ctx.layout) == target:
            return {"state": "unchanged", "generation": target}
        affected = _verified(ctx, target)
        attempt = Attempt(ctx, change, _arm(ctx, change, target, affected))
        try:
            _forward(attempt)
        except (Failed, Refused, OSError, KeyboardInterrupt) as error:
            raise _gone_back(attempt, error) from error
        except Exception as bug:  # the service must not wait for the timer because of it
            _gone_back(attempt, bug)
            raise
        revert.mark(ctx, transit.AWAITING_CONFIRM)
        return {"state": transit.AWAITING_CONFIRM, **attempt.data(), "live": attempt.live}


def _verified(ctx: Context, target: str) -> Affected:
    """The way back, then the way forward, then what runs. Nothing is changed yet."""
    origin = generations.current_id(ctx.layout)
    if origin is None:
        raise Refused("not-found", "there is no current generation to go back to", "adopt the environment first")
    generations.load(ctx.layout, target)
    guards.require_in_place(ctx)
    guards.require_way_back(ctx, origin)
    guards.require_verified(ctx, target)
    hooks.require_usable(ctx.options["hooks"])
    smoke.require_usable(ctx.options["suite"])
    health.require_usable(ctx.options["health"])
    affected = services.affected(ctx, origin, ctx.options["hooks"])
    _require_healthy_now(ctx, affected)
    if affected.left_down:
        ctx.channel.event("verify", "note", f"down, and left so: {', '.join(affected.left_down)}")
    return affected


def _require_healthy_now(ctx: Context, affected: Affected) -> None:
    """A check that the old stack does not pass either would only cost an outage, and a way back without its proof."""
    wanted = ctx.options["health"]
    if health.is_asked(wanted):
        try:
            health.require(ctx, affected.units, wanted, never)
        except Failed as error:
            fix = "correct `health` in the stack, or see to the service"
            raise Refused("unhealthy", f"before the switch: {error.text}", fix) from error


def _arm(ctx: Context, change: Mutation, target: str, affected: Affected) -> Transit:
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
        units=affected.units,
        order=affected.order,
        ttl_s=float(ctx.options["ttl"]),
        suite=ctx.options["suite"],
        health=ctx.options["health"],
        hooks=ctx.options["hooks"],
    )
    with change.step(ending.ARM, transit.as_json(pending)):
        deadman.start(ctx, change.seq)
        ballast.lay(ctx.layout)
        generations.update(ctx.layout, target, suite=pending.suite, health=pending.health, hooks=pending.hooks)
        adoption.remember_units(ctx.layout, affected.units)
        units.install_drop_ins(ctx, (*affected.units, *affected.left_down))
        deadman.begin(ctx, pending)
    return pending


def _forward(attempt: Attempt) -> None:
    ctx, pending = attempt.ctx, attempt.pending
    if hooks.DRAIN in pending.hooks:
        attempt.enter(hooks.DRAIN)
        hooks.run(ctx, pending.hooks, hooks.DRAIN, attempt.is_abandoned)
    attempt.enter("stop")
    revert.mark(ctx, transit.STOPPED)
    with attempt.change.step("stop", {"units": list(pending.order)}):
        hooks.run(ctx, pending.hooks, hooks.STOP, attempt.is_abandoned)
        services.stop(ctx, pending.order, attempt.is_abandoned)
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
    caches.give_to_services(ctx, pending.target, pending.units)
    services.start(ctx, pending.order, attempt.is_abandoned)
    hooks.run(ctx, pending.hooks, hooks.START, attempt.is_abandoned)
    attempt.enter("health")
    health.require(ctx, pending.units, pending.health, attempt.is_abandoned)
    attempt.enter("live-proof")
    attempt.live = live.require(ctx, pending, pending.target)
    if hooks.BENCH in pending.hooks:
        attempt.enter(hooks.BENCH)
        hooks.run(ctx, pending.hooks, hooks.BENCH, attempt.is_abandoned)
    attempt.require_time()


def _smoke_target(attempt: Attempt) -> None:
    ctx, target, suite = attempt.ctx, attempt.pending.target, attempt.pending.suite
    result = proof.run(ctx, target, suite, attempt.is_abandoned)
    attempt.smoke = result.cases
    proof.remember(ctx, target, suite, result)
    if not result.is_proven:
        raise Failed("smoke", f"the smoke of {target} does not pass: {'; '.join(result.objections(suite))}")


def _gone_back(attempt: Attempt, error: BaseException) -> Union[Failed, Refused]:
    ctx, pending = attempt.ctx, attempt.pending
    why = f"{attempt.step}: {error or type(error).__name__}"
    code = error.code if isinstance(error, (Failed, Refused)) else "interrupted"
    if isinstance(error, Failed) and code != _ABANDONED and attempt.is_abandoned():
        why, code = f"{why}; nobody renewed in time", _ABANDONED
    ctx.channel.event(attempt.step, "failed", why)
    if attempt.step == hooks.DRAIN and not hooks.problems_of(ctx, pending.hooks, hooks.UNDRAIN):
        ending.end(ctx, attempt.change, pending, ending.REFUSED)
        return Refused("drain", f"{why}; nothing was stopped, and the drain is undone", "see why it does not drain")
    try:
        outcome = revert.revert(ctx, attempt.change, pending, why)
    except OSError as broken:
        text = revert.keep_serving(ctx, pending, f"{why}; going back failed too: {broken}")
        data = {"state": "in-transit", "failed_step": attempt.step, **attempt.data()}
        raise Failed("revert", text, data) from broken
    data = {"state": outcome.state, "failed_step": attempt.step, **attempt.data(), "after": outcome.after}
    return Failed(code, why, {**data, "problems": outcome.problems})
