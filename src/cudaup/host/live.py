"""The proof from the running process: it has this generation's environment and nothing of another's files."""

import os
from pathlib import Path
from typing import List, Sequence

from cudaup.host import envfile, generations, processes
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Failed, Json

_SHOWN = 5


def require(ctx: Context, units: Sequence[str], generation_id: str) -> List[Json]:
    """Evidence per unit. Raises Failed `live-proof` naming what is missing or left over."""
    evidence = [_look(ctx, unit, generation_id) for unit in units]
    for each in evidence:
        if each["problems"]:
            raise Failed("live-proof", f"`{each['unit']}`: {'; '.join(each['problems'])}", {"live": evidence})
    return evidence


def _look(ctx: Context, unit: str, generation_id: str) -> Json:
    layout = ctx.layout
    state = ctx.systemd.show(unit)
    mine = [generations.tree(layout, generation_id), layout.generation(generation_id)]
    members = [state.pid, *_others_of(ctx, unit, state.pid)]
    used = [text for pid in members for text in _uses(pid, mine)]
    old = [text for pid in members for text in _uses(pid, _other_trees(layout, generation_id))]
    problems = []
    if state.active != "active" or state.pid == 0:
        problems.append(f"is {state.active}, not running")
    if not used:
        problems.append(f"nothing in it comes from {generation_id}")
    if old:
        problems.append(f"still uses {', '.join(old[:_SHOWN])}")
    missing = _missing_environment(layout, generation_id, state.pid)
    if missing:
        problems.append(f"its environment lacks {', '.join(missing)}")
    return {"unit": unit, "pid": state.pid, "uses": used[:_SHOWN], "problems": problems}


def _others_of(ctx: Context, unit: str, main: int) -> List[int]:
    return [pid for pid in processes.pids() if pid != main and ctx.systemd.unit_of(pid) == unit]


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


def _other_trees(layout: Layout, generation_id: str) -> List[Path]:
    others = [record["id"] for record in generations.load_all(layout) if record["id"] != generation_id]
    return [place for each in others for place in (generations.tree(layout, each), layout.generation(each))]


def _missing_environment(layout: Layout, generation_id: str, pid: int) -> List[str]:
    """Variables of the generation's `env` that the process did not start with."""
    try:
        wanted = envfile.parse((layout.generation(generation_id) / "env").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    has = set(processes.environ_of(pid))
    return [key for key, value in wanted.items() if f"{key}={value}" not in has]
