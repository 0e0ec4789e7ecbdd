"""Makes an existing environment a generation where it lies.

Its directory is moved aside and its path becomes a link that follows `current`, in one exchange, so that no reader
ever finds the path missing.
"""

import errno
import os
import shutil
from pathlib import Path
from typing import List

from cudaup.host import adoptable, adoption, environment, fence, generations, manifest, services, units
from cudaup.host.adoption import Adoption
from cudaup.host.fence import Mutation
from cudaup.host.files import exchange, fsync_dir
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json, Refused


def adopt(ctx: Context) -> Json:
    """The verb `adopt PATH`."""
    # Not resolved: the path itself may be our link by now.
    path = Path(os.path.normpath(str(Path(ctx.options["path"]).absolute())))
    known = adoption.read(ctx.layout)
    if known is not None and known.is_in_place(ctx.layout) and known.path == str(path):
        return _answer(known, changed=False)
    if known is not None and known.path != str(path):
        text = f"`{known.path}` is adopted already; one root follows one path"
        raise Refused("unsupported", text, "`cudaup-host forget` first, or use another --root")
    adoptable.require(path)
    if ctx.dry_run:
        return {"would": f"make `{path}` a generation and the path a link to it"}
    with fence.mutation(ctx, "adopt", {"path": str(path)}) as change:
        settle(ctx)  # what a crashed one left
        return _answer(_adopt(ctx, change, path), changed=True)


def settle(ctx: Context) -> List[str]:
    """Finish or undo an adopt cut short; which of the two is decided by whether the exchange happened."""
    known = adoption.read(ctx.layout)
    if known is None or known.is_in_place(ctx.layout):
        return []
    _undo(ctx, known)
    return [f"undid the half-made adopt of `{known.path}`"]


def put_back(layout: Layout, known: Adoption) -> None:
    """The path is the directory again. Refused `unsafe` when neither name is as it was left."""
    path, aside = Path(known.path), Path(known.aside)
    if known.is_in_place(layout):
        exchange(path, aside)
    if not known.is_undone():
        text = f"`{path}` is not the link that was left there, nor is the adopted directory back"
        raise Refused("unsafe", text, f"the directory should be at `{aside}`; move it back by hand")
    for link in (aside, _next_link(known)):
        if link.is_symlink():
            link.unlink()
    fsync_dir(aside.parent)


def _adopt(ctx: Context, change: Mutation, path: Path) -> Adoption:
    """Nothing at `path` is touched before the exchange; until then everything can simply be thrown away."""
    layout = ctx.layout
    described = environment.describe(path)
    if described["kind"] == "none":
        raise Refused("unsafe", f"`{path}` is no Python environment (no pyvenv.cfg, no conda-meta)")
    generation_id = generations.next_id(layout, described["digest"])
    aside = path.with_name(f".{path.name}.{generation_id}")
    if os.path.lexists(str(aside)):
        raise Refused("unsafe", f"`{aside}` is in the way")
    uses = services.running_from(ctx, [path])
    known = Adoption(str(path), str(aside), generation_id, uses.units)
    adoption.write(layout, known)
    _make_generation(ctx, known, described)
    with change.step("adopt-exchange", {"path": str(path), "aside": str(aside), "generation": generation_id}):
        _exchange(ctx, known)
    units.install_drop_ins(ctx, known.units)
    return known


def _make_generation(ctx: Context, known: Adoption, described: Json) -> None:
    layout = ctx.layout
    folder = layout.generation(known.generation)
    (folder / "cache").mkdir(parents=True, mode=0o755)
    # No `env`: its services had their environment before cudaup came.
    (folder / "venv").symlink_to(known.aside)
    Path(known.aside).symlink_to(known.path)  # until the exchange, so that its files can be read through `venv`
    ctx.channel.event("adopt", "started", f"sealing `{known.path}`")
    manifest.seal(layout.generation(known.generation))
    record = {
        "id": known.generation,
        "number": int(known.generation.split("-")[0]),
        "digest": described["digest"],
        "kind": "adopted",
        "name": Path(known.path).name,
        "created": ctx.clock.wall(),
        "packages": described["packages"],
        "confirmed": True,  # it is what this host runs
        "proven": None,
    }
    generations.save(layout, record)
    generations.make_first(layout, known.generation)


def _exchange(ctx: Context, known: Adoption) -> None:
    path, aside = Path(known.path), Path(known.aside)
    link = _next_link(known)
    link.symlink_to(adoption.link_text(ctx.layout))
    link.replace(aside)
    fsync_dir(aside.parent)
    try:
        exchange(path, aside)
    except OSError as error:
        _undo(ctx, known)
        hint = "overlayfs cannot move a directory of its lower layer" if error.errno == errno.EXDEV else ""
        raise Refused("unsafe", f"`{path}` cannot be moved aside: {error.strerror}", hint) from error


def _next_link(known: Adoption) -> Path:
    return Path(known.aside + ".new")


def _undo(ctx: Context, known: Adoption) -> None:
    """Of an adopt that did not get to its exchange, or of a forget that did not get to its end."""
    layout = ctx.layout
    put_back(layout, known)
    units.remove_drop_ins(ctx, known.units)
    if generations.current_id(layout) == known.generation:
        layout.current.unlink()
        fsync_dir(layout.root)
    generations.remove_link(layout, known.generation)
    shutil.rmtree(str(layout.generation(known.generation)), ignore_errors=True)
    layout.adopted.unlink()


def _answer(known: Adoption, *, changed: bool) -> Json:
    return {
        "generation": known.generation,
        "changed": changed,
        "path": known.path,
        "aside": known.aside,
        "units": list(known.units),
    }
