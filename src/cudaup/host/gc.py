"""Removes what nobody needs: never a generation that could be gone back to, nor one that a process still uses.

With a generation go its wheels and its packages in uv's cache, but for those that another one has too: what stays can
be built again without a network. The evidence of a failed one stays in `failed/`.
"""

import os
import shutil
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

from cudaup.host import ballast, blobs, fence, generations, guards, manifest, mounts, processes, uv
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json


class Work(NamedTuple):
    """`kept` says why each generation stays; `wheels` are folders of blobs; `packages` go from uv's cache."""

    removed: List[str]
    kept: Dict[str, str]
    wheels: List[Path]
    packages: List[str]


def gc(ctx: Context) -> Json:
    """The verb `gc`."""
    layout = ctx.layout
    if ctx.dry_run:
        work = _work(layout)
        return {"would": [f"remove {each}" for each in (*work.removed, *blobs.names_in(work.wheels))]}
    with fence.mutation(ctx, "gc", {}):
        guards.require_settled(ctx)
        work = _work(layout)
        wheels = blobs.names_in(work.wheels)
        freed = blobs.sweep(layout) + sum(_remove(layout, each) for each in work.removed)
        freed += sum(_dispose(path) for path in work.wheels) + _clean_cache(layout, work.packages)
        manifest.renew(layout, manifest.Digests())  # the links that went moved the ctime of the files that stay
        ballast.lay_where_there_is_room(layout)
    kept = [{"id": each, "why": why} for each, why in work.kept.items()]
    return {"removed": work.removed, "kept": kept, "wheels": wheels, "freed_bytes": freed}


def _work(layout: Layout) -> Work:
    records = {record["id"]: record for record in generations.load_all(layout)}
    reasons = _reasons(layout, list(records.values()))
    kept = {each: why for each, why in reasons.items() if why is not None}
    removed = [each for each in records if each not in kept]
    needed = {sha256 for each in kept for sha256 in records[each].get("blobs", ())}
    packages = {pair for each in kept for pair in records[each]["packages"].items()}
    gone = {pair for each in removed for pair in records[each]["packages"].items()} - packages
    return Work(removed, kept, blobs.unneeded(layout, needed), sorted({name for name, _version in gone}))


def _reasons(layout: Layout, records: List[Json]) -> Dict[str, Optional[str]]:
    """Why each generation stays; None for one that goes."""
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
    """Under whatever name a process sees it: a container's volume has another."""
    real = Path(os.path.realpath(str(layout.generation(generation_id))))
    users = processes.users_of([layout.generation(generation_id), real])
    for pid, names in mounts.seen_elsewhere(real):
        users += processes.uses(pid, names)
    return f"used by pid {users[0].pid} ({users[0].how})" if users else None


def _remove(layout: Layout, generation_id: str) -> int:
    """Its name first: a crash leaves nothing that looks like a generation."""
    trash = layout.generations / f".trash-{generation_id}"
    layout.generation(generation_id).rename(trash)
    generations.remove_link(layout, generation_id)
    return _dispose(trash)


def _clean_cache(layout: Layout, packages: List[str]) -> int:
    if not packages:
        return 0
    before = _size_bytes(layout.uv_cache)
    uv.clean_cache(layout, packages)
    return before - _size_bytes(layout.uv_cache)


def _dispose(tree: Path) -> int:
    freed = _size_bytes(tree)
    shutil.rmtree(str(tree))
    return freed


def _size_bytes(tree: Path) -> int:
    """What goes with it: files that nothing else links to. Of clones it cannot be told, so they count whole."""
    total = 0
    for folder, _folders, files in os.walk(str(tree)):
        infos = [os.lstat(os.path.join(folder, name)) for name in files]  # noqa: PTH118 - Path is slow on 50,000 files
        total += sum(info.st_blocks * 512 for info in infos if info.st_nlink == 1)
    return total
