"""The systemd services that run from an environment: found by their processes, stopped and started as one."""

import os
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from cudaup.host import adoption, generations, processes
from cudaup.host.files import sha256_file
from cudaup.host.processes import Use
from cudaup.host.protocol import Context, Failed, Json
from cudaup.host.systemd import ShouldStop, UnitState, never

_VANISH_S = 10
_POLL_S = 0.1
# A login shell or a cron job can count as part of these; they are never ours to stop.
_NEVER_STOPPED = ("ssh", "cron", "systemd-", "user@", "getty@", "dbus", "docker.", "containerd.", "cudaup-")


class Running(NamedTuple):
    """`foreign` are processes from the path that belong to no service: they are named, never killed."""

    units: Tuple[str, ...]
    foreign: Tuple[Use, ...]


def places_of(ctx: Context, generation_id: str) -> List[Path]:
    """Every directory through which a process runs from this generation while it is the current one."""
    layout = ctx.layout
    known = adoption.read(layout)
    path = [Path(known.path)] if known else []
    return [*path, layout.current, layout.generation(generation_id), generations.tree(layout, generation_id)]


def running_from(ctx: Context, places: Sequence[Path]) -> Running:
    units: Dict[str, None] = {}
    foreign = []
    for use in processes.users_of(places):
        unit = ctx.systemd.unit_of(use.pid) if ctx.systemd.is_running() else None
        if unit is None or unit.startswith(_NEVER_STOPPED):
            foreign.append(use)
        else:
            units[unit] = None
    return Running(tuple(sorted(units)), tuple(foreign))


def stop(ctx: Context, units: Sequence[str]) -> None:
    """Raises Failed `services` naming the unit that does not stop."""
    for unit in units:
        outcome = ctx.systemd.stop(unit)
        if not outcome.ok:
            raise Failed("services", f"`{unit}` does not stop: {outcome.text}")


def require_vacant(ctx: Context, places: Sequence[Path]) -> None:
    """Raises Failed `busy` while a process still runs from `places`."""
    limit = ctx.clock.monotonic() + _VANISH_S
    left = processes.users_of(places)
    while left and ctx.clock.monotonic() < limit:
        ctx.clock.sleep(_POLL_S)
        left = processes.users_of(places)
    if left:
        raise Failed("busy", f"still in use after the services stopped: {described(left)}")


def start(ctx: Context, units: Sequence[str], should_stop: ShouldStop = never, *, wait: bool = True) -> None:
    """Raises Failed `services`. At boot nothing is waited for: the units are ordered behind the recovery itself."""
    for unit in units:
        ctx.systemd.reset_failed(unit)  # a start limit reached by the other stack must not count
        outcome = ctx.systemd.start(unit, should_stop) if wait else ctx.systemd.enqueue(unit)
        if not outcome.ok:
            raise Failed("services", f"`{unit}` does not start: {outcome.text}")


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
    return {"unit": name, "active": state.active, "pid": state.pid, "fragment_sha256": fragment}
