"""The systemd services that run from an environment: found by their processes, stopped and started as one."""

import os
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from cudaup.host import adoption, generations, hooks, mounts, processes, units
from cudaup.host.files import sha256_file
from cudaup.host.processes import Use
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.systemd import ShouldStop, UnitState, never

_VANISH_S = 10
_POLL_S = 0.1
# A login shell or a cron job can count as part of these; they are never ours to stop.
_NEVER_STOPPED = ("ssh", "cron", "systemd-", "user@", "getty@", "dbus", "docker.", "containerd.", "cudaup-")
_TRIGGERS = (".socket", ".timer", ".path")


class Running(NamedTuple):
    """Of `units` some may have no process now. `foreign` belong to none: they are named, never killed."""

    units: Tuple[str, ...]
    foreign: Tuple[Use, ...]


class Affected(NamedTuple):
    """`units` run from the environment and are proven. `order` is all that stops for them, in the order of starting."""

    units: Tuple[str, ...]
    order: Tuple[str, ...]
    left_down: Tuple[str, ...]


def places_of(ctx: Context, generation_id: str) -> List[Path]:
    """Every directory through which a process runs from this generation while it is the current one."""
    layout = ctx.layout
    known = adoption.read(layout)
    path = [Path(known.path)] if known else []
    return [*path, layout.current, layout.generation(generation_id), generations.tree(layout, generation_id)]


def running_from(ctx: Context, places: Sequence[Path]) -> Running:
    found: Dict[str, None] = {}
    foreign = []
    for use in processes.users_of(places):
        unit = ctx.systemd.unit_of(use.pid) if ctx.systemd.is_running() else None
        if unit is None or unit.startswith(_NEVER_STOPPED):
            foreign.append(use)
        else:
            found[unit] = None
    found.update(dict.fromkeys(_would_run_from(ctx, places)))
    return Running(tuple(sorted(found)), tuple(foreign))


def _would_run_from(ctx: Context, places: Sequence[Path]) -> List[str]:
    """A job until its time comes, or a service that crashed: it has no process that tells of it."""
    programs = ctx.systemd.programs() if ctx.systemd.is_running() else {}
    return [unit for unit, paths in programs.items() if any(processes.is_under(path, places) for path in paths)]


def affected(ctx: Context, generation_id: str, wanted: Json) -> Affected:
    """What a switch away from this generation stops: what runs from the path, and what is known to have done so.

    A unit that is down belongs to the environment all the same: after a rollback it has to serve again. But not one
    that is down on purpose. Refused `busy` while something runs from the path that neither systemd nor a hook stops,
    `unsafe` where something could not be started again.
    """
    running = running_from(ctx, places_of(ctx, generation_id))
    _require_no_binds(ctx, generation_id, running.units)
    if running.foreign and hooks.STOP not in wanted:
        text = f"used by processes that belong to no service: {described(running.foreign)}"
        raise Refused("busy", text, "end them, let a systemd unit run them, or give the stack hooks `stop` and `start`")
    known = adoption.read(ctx.layout)
    states = {name: ctx.systemd.show(name) for name in sorted({*running.units, *(known.units if known else ())})}
    for name in running.units:
        _require_restartable(name, states[name])
    left_down = tuple(name for name, state in states.items() if state.stays_down)
    mine = {name: state for name, state in states.items() if name not in left_down}
    return Affected(tuple(mine), _order(ctx, states, tuple(mine)), left_down)


def _require_no_binds(ctx: Context, generation_id: str, running: Sequence[str]) -> None:
    """A container names its files by paths of its own, so its processes are not found by ours.

    A service that runs from here may be sandboxed with it: its mounts end when it stops.
    """
    binds = mounts.bindings_of(generations.tree(ctx.layout, generation_id))
    others = [f"`{point}` of pid {pid}" for pid, point in binds if ctx.systemd.unit_of(pid) not in running]
    if others:
        text = f"{generation_id} is mounted elsewhere, perhaps in a container: {', '.join(others[:3])}"
        raise Refused("busy", text, "stop what mounts it; a container that serves from it cannot be switched")


def _require_restartable(name: str, state: UnitState) -> None:
    if state.is_down:
        return
    if state.is_job:
        raise Refused("busy", f"`{name}` is a job at work, and would be cut short", "wait until it has ended")
    if state.is_transient or not state.can_start:
        why = "exists only while it runs" if state.is_transient else "is masked, may not be started, or lost its file"
        raise Refused("unsafe", f"`{name}` {why}: once stopped, it could not be started again", "see to its unit file")


def _order(ctx: Context, states: Dict[str, UnitState], mine: Tuple[str, ...]) -> Tuple[str, ...]:
    """Triggers first (a socket cannot start after its service), then the services, then what stops along with them."""
    triggers = dict.fromkeys(name for state in states.values() for name in state.triggers)
    seen = {name: states[name].dependents for name in mine}
    waiting = list(mine)
    while waiting:
        for name in seen[waiting.pop()]:
            if name not in seen:
                state = ctx.systemd.show(name)
                if not state.is_down:
                    seen[name] = state.dependents
                    waiting.append(name)
    dependents = [name for name in seen if name not in mine and name not in triggers]
    up = [name for name in triggers if not ctx.systemd.show(name).is_down]
    return (*up, *mine, *dependents)


def stop(ctx: Context, order: Sequence[str], should_stop: ShouldStop = never) -> None:
    """Raises Failed `services` with what does not stop. Until `start`, nobody else can start the services."""
    units.hold(ctx)
    outcome = ctx.systemd.stop(*reversed(order), should_stop=should_stop) if order else None
    if outcome is not None and not outcome.ok:
        raise Failed("services", f"does not stop: {outcome.text}")


def require_vacant(ctx: Context, places: Sequence[Path]) -> None:
    """Raises Failed `busy` while a process still runs from `places`."""
    limit = ctx.clock.monotonic() + _VANISH_S
    left = processes.users_of(places)
    while left and ctx.clock.monotonic() < limit:
        ctx.clock.sleep(_POLL_S)
        left = processes.users_of(places)
    if left:
        raise Failed("busy", f"still in use after the services stopped: {described(left)}")


def start(ctx: Context, order: Sequence[str], should_stop: ShouldStop = never, *, wait: bool = True) -> None:
    """Raises Failed `services` with what does not start; the others are started all the same.

    At boot nothing is waited for: the units are ordered behind the recovery itself.
    """
    units.let_go(ctx)
    if not order:
        return
    ctx.systemd.reset_failed(*order)  # a start limit reached by the other stack must not count
    outcome = ctx.systemd.start(*order, should_stop=should_stop) if wait else ctx.systemd.enqueue(*order)
    if not outcome.ok:
        raise Failed("services", f"does not start: {outcome.text}")


def described(uses: Sequence[Use]) -> str:
    return "; ".join(f"pid {use.pid} `{use.command}` ({use.how} {use.path})" for use in uses[:5])


def status(ctx: Context, path: Optional[Path] = None) -> List[Json]:
    """Units known from the adopted path, and units that run from it or from `path` now. None without systemd."""
    if not ctx.systemd.is_running():
        return []
    known = adoption.read(ctx.layout)
    given = [path, Path(os.path.realpath(str(path)))] if path is not None else []
    seen = running_from(ctx, [*adoption.places(ctx.layout), *given]).units
    names = sorted({*seen, *(known.units if known else ())})
    return [_as_json(name, ctx.systemd.show(name)) for name in names]


def _as_json(name: str, state: UnitState) -> Json:
    fragment = sha256_file(state.fragment) if state.fragment and state.fragment.is_file() else None
    found = {"unit": name, "active": state.active, "pid": state.pid, "fragment_sha256": fragment}
    return {**found, "stays_down": state.stays_down}
