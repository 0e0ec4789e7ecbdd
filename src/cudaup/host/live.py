"""The proof from the running process: it has this generation's environment and nothing of another's files."""

import os
from pathlib import Path
from typing import List, Sequence

from cudaup.host import adoption, envfile, generations, hooks, processes
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Failed, Json
from cudaup.host.transit import Transit

_SHOWN = 5
_APPEARS_S = 10
_POLL_S = 0.5


def require(ctx: Context, pending: Transit, generation_id: str) -> List[Json]:
    """Evidence per unit, and of what a start hook began. Raises Failed `live-proof`: what is missing or left over."""
    evidence = [_look(ctx, unit, generation_id) for unit in pending.units]
    if hooks.START in pending.hooks:
        evidence.append(_look_outside(ctx, pending, generation_id))
    for each in evidence:
        if each["problems"]:
            raise Failed("live-proof", f"`{each['unit']}`: {'; '.join(each['problems'])}", {"live": evidence})
    return evidence


def _look(ctx: Context, unit: str, generation_id: str) -> Json:
    state = ctx.systemd.show(unit)
    members = [pid for pid in processes.pids() if ctx.systemd.unit_of(pid) == unit]
    found = _examine(ctx, members, generation_id)
    if state.active != "active" or not members:
        found["problems"].insert(0, f"is {state.active}, not running")
    if not found["uses"]:
        found["problems"].append(f"nothing in it comes from {generation_id}")
    return {"unit": unit, "pid": state.pid, **found}


def _look_outside(ctx: Context, pending: Transit, generation_id: str) -> Json:
    """Where no unit runs from the path, something that the hook began has to. It may take a moment to get there."""
    is_wanted = not pending.units and adoption.read(ctx.layout) is not None
    until = ctx.clock.monotonic() + _APPEARS_S
    while True:
        found = _examine(ctx, _outside(ctx, pending, generation_id), generation_id)
        if found["uses"] or not is_wanted or ctx.clock.monotonic() >= until:
            break
        ctx.clock.sleep(_POLL_S)
    if is_wanted and not found["uses"]:
        found["problems"].append(f"nothing runs from {generation_id}")
    return {"unit": f"hook {hooks.START}", "pid": 0, **found}


def _outside(ctx: Context, pending: Transit, generation_id: str) -> List[int]:
    mine = _trees(ctx.layout, generation_id)
    others = [pid for pid in processes.pids() if ctx.systemd.unit_of(pid) not in pending.units]
    return [pid for pid in others if _uses(pid, mine)]


def _examine(ctx: Context, members: Sequence[int], generation_id: str) -> Json:
    """What of this and of other generations the processes use; one of those that use this one has its environment."""
    layout = ctx.layout
    used = {pid: _uses(pid, _trees(layout, generation_id)) for pid in members}
    old = [text for pid in members for text in _uses(pid, _other_trees(layout, generation_id))]
    problems = [f"still uses {', '.join(old[:_SHOWN])}"] if old else []
    lacks = [_missing_environment(layout, generation_id, pid) for pid in members if used[pid]]
    missing = min(lacks, key=len, default=[])
    if missing:
        problems.append(f"its environment lacks {', '.join(missing)}")
    return {"uses": [text for uses in used.values() for text in uses][:_SHOWN], "problems": problems}


def _uses(pid: int, trees: Sequence[Path]) -> List[str]:
    """Files by their real name; the program and its script by where they lead now."""
    led = [f"argument {text}" for text in processes.argv_of(pid)[:2] if _leads_into(text, trees)]
    real = [f"{use.how} {use.path}" for use in processes.uses(pid, trees) if use.how != "argument"]
    return list(dict.fromkeys(led + real))


def _leads_into(argument: str, trees: Sequence[Path]) -> bool:
    """By its folder: `venv/bin/python` itself is a link to the distribution's."""
    if not argument.startswith("/"):
        return False
    real = Path(os.path.realpath(str(Path(argument).parent)))
    return any(tree == real or tree in real.parents for tree in trees)


def _trees(layout: Layout, generation_id: str) -> List[Path]:
    return [generations.tree(layout, generation_id), layout.generation(generation_id)]


def _other_trees(layout: Layout, generation_id: str) -> List[Path]:
    others = [record["id"] for record in generations.load_all(layout) if record["id"] != generation_id]
    return [place for each in others for place in _trees(layout, each)]


def _missing_environment(layout: Layout, generation_id: str, pid: int) -> List[str]:
    """Variables of the generation's `env` that the process did not start with."""
    try:
        wanted = envfile.parse((layout.generation(generation_id) / "env").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    has = set(processes.environ_of(pid))
    return [key for key, value in wanted.items() if f"{key}={value}" not in has]
