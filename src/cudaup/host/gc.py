"""Removes generations nobody needs: never one that could be gone back to, nor one that a process still uses."""

import os
import shutil
from pathlib import Path
from typing import Dict, Optional

from cudaup.host import fence, generations, guards, processes
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json


def gc(ctx: Context) -> Json:
    """The verb `gc`."""
    if ctx.dry_run:
        return {"would": [f"remove {each}" for each, why in _reasons(ctx).items() if why is None]}
    with fence.mutation(ctx, "gc", {}):
        guards.require_settled(ctx)
        reasons = _reasons(ctx)
        removed = [each for each, why in reasons.items() if why is None]
        freed = sum(_remove(ctx.layout, each) for each in removed)
    kept = [{"id": each, "why": why} for each, why in reasons.items() if why is not None]
    return {"removed": removed, "kept": kept, "freed_bytes": freed}


def _reasons(ctx: Context) -> Dict[str, Optional[str]]:
    """Why each generation stays; None for one that goes."""
    layout = ctx.layout
    records = generations.load_all(layout)
    proven = [record for record in records if record.get("proven")]
    last_proven = max(proven, key=lambda record: float(record["proven"]))["id"] if proven else None
    reasons: Dict[str, Optional[str]] = {}
    for record in records:
        each = record["id"]
        by_rule = [
            ("current", each == generations.current_id(layout)),
            ("previous", each == generations.previous_id(layout)),
            ("adopted: `forget` gives it back", record["kind"] == "adopted"),
            ("last proven", each == last_proven),
            ("not tried yet", not record["confirmed"] and not record.get("failed")),
        ]
        reasons[each] = next((why for why, holds in by_rule if holds), None) or _user_of(layout, each)
    return reasons


def _user_of(layout: Layout, generation_id: str) -> Optional[str]:
    users = processes.users_of([layout.generation(generation_id)])
    return f"used by pid {users[0].pid} ({users[0].how})" if users else None


def _remove(layout: Layout, generation_id: str) -> int:
    """Its name first: a crash leaves nothing that looks like a generation."""
    trash = layout.generations / f".trash-{generation_id}"
    layout.generation(generation_id).rename(trash)
    generations.remove_link(layout, generation_id)
    freed = _size_bytes(trash)
    shutil.rmtree(str(trash))
    return freed


def _size_bytes(tree: Path) -> int:
    """What goes with it: files that nothing else links to."""
    total = 0
    for folder, _folders, files in os.walk(str(tree)):
        infos = [os.lstat(os.path.join(folder, name)) for name in files]  # noqa: PTH118 - Path is slow on 50,000 files
        total += sum(info.st_blocks * 512 for info in infos if info.st_nlink == 1)
    return total
