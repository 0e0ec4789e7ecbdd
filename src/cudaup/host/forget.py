"""Undoes everything cudaup did to a host: the path is its old directory again, and nothing of cudaup is left."""

import os
import shutil
import stat
from pathlib import Path
from typing import List

from cudaup.host import adopt, adoption, fence, generations, guards, processes, services, units
from cudaup.host.files import fsync_dir
from cudaup.host.layout import Layout
from cudaup.host.ownership import is_trusted
from cudaup.host.protocol import Context, Json, Refused


def forget(ctx: Context) -> Json:
    """The verb `forget`. Refused `in-transit`, or `busy` while a process uses what would go."""
    layout = ctx.layout
    if not layout.root.is_dir():
        return {"changed": bool(_sweep(layout)), "undone": []}
    if ctx.dry_run:
        _require_possible(ctx)
        return {"would": _work(ctx)}
    with fence.mutation(ctx, "forget", {}):
        _require_possible(ctx)
        undone = _work(ctx)
        known = adoption.read(layout)
        if known is not None:
            adopt.put_back(layout, known, also_when_gone=True)
        names = known.units if known is not None else ()
        units.remove_all(ctx, names)
        units.sweep(ctx, names)
        layout.root.rename(_doomed(layout))  # from here on there is no cudaup on this host
        fsync_dir(layout.root.parent)
    _sweep(layout)
    return {"changed": True, "undone": undone}


def _require_possible(ctx: Context) -> None:
    """Processes on the adopted directory may go on: it stays where they have it open."""
    guards.require_settled(ctx)
    layout = ctx.layout
    known = adoption.read(layout)
    is_elsewhere = known and known.is_in_place(layout) and generations.current_id(layout) != known.generation
    through_path = [Path(known.path)] if known and is_elsewhere else []
    users = processes.users_of([layout.generations, *through_path])
    if users:
        fix = "roll back to the adopted generation first" if known else "stop them"
        raise Refused("busy", f"in use: {services.described(users)}", fix)


def _work(ctx: Context) -> List[str]:
    known = adoption.read(ctx.layout)
    path = [f"`{known.path}` is its directory again"] if known else []
    return [*path, *(f"remove `{each}`" for each in units.installed(ctx)), f"remove `{ctx.layout.root}`"]


def _doomed(layout: Layout) -> Path:
    return layout.root.with_name(f"{layout.root.name}.forgotten-{os.getpid()}")


def _sweep(layout: Layout) -> List[Path]:
    """Also what an earlier forget was killed over. In a shared directory others may use such a name: not ours."""
    named = sorted(layout.root.parent.glob(f"{layout.root.name}.forgotten-[0-9]*"))
    doomed = [path for path in named if stat.S_ISDIR(path.lstat().st_mode) and is_trusted(path.lstat().st_uid)]
    for path in doomed:
        shutil.rmtree(str(path))
    return doomed
