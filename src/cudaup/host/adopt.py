"""Makes an existing environment a generation where it lies.

Its directory is moved aside and its path becomes a link that follows `current`, in one exchange, so that no reader
ever finds the path missing.
"""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import List

from cudaup.host import adoptable, adoption, environment, fence, generations, manifest, ownership, services, units
from cudaup.host.adoption import Adoption
from cudaup.host.fence import Mutation
from cudaup.host.files import exchange_in, fsync_dir, move_in, opened_dir
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
        raise Refused("unsupported", text, "`cudaup-host forget` first")
    adoptable.require(path, ctx.layout)
    if ctx.dry_run:
        return {"would": f"make `{path}` a generation and the path a link to it"}
    with fence.mutation(ctx, "adopt", {"path": str(path)}) as change:
        settle(ctx)  # what a crashed one left
        try:
            return _answer(_adopt(ctx, change, path), changed=True)
        except OSError:  # a full disk, most likely: nothing half-made stays where that can be helped
            with suppress(OSError):
                settle(ctx)
            raise


def settle(ctx: Context) -> List[str]:
    """Finish or undo an adopt cut short; which of the two is decided by whether the exchange happened."""
    known = adoption.read(ctx.layout)
    if known is None or known.is_in_place(ctx.layout):
        return []
    _undo(ctx, known)
    return [f"undid the half-made adopt of `{known.path}`"]


def put_back(layout: Layout, known: Adoption, *, also_when_gone: bool = False) -> None:
    """The path is the directory again. Refused `unsafe` when something else is there, or the directory is not.

    `also_when_gone`: when nothing at all is at the path, as somebody removed the link.
    """
    path, aside = Path(known.path), Path(known.aside)
    fault = ownership.fault_on_the_way(path)
    if fault is not None:
        raise fault.refused()
    if path.parent.is_dir():
        with opened_dir(path.parent) as folder:
            _put_back_in(folder, layout, known, also_when_gone=also_when_gone)
    if not known.is_undone(layout):
        text = f"`{path}` is not the link that was left there, or the adopted directory is not at `{aside}`"
        raise Refused("unsafe", text, f"put the directory back to `{aside}`, or to `{path}`, by hand; then again")


def _put_back_in(folder: int, layout: Layout, known: Adoption, *, also_when_gone: bool) -> None:
    path, aside = Path(known.path), Path(known.aside)
    if known.is_in_place(layout):
        exchange_in(folder, path.name, folder, aside.name)
    elif also_when_gone and known.is_path_gone():
        move_in(folder, aside.name, path.name)
    if known.is_undone(layout):
        for link in (aside, _next_link(known)):
            if link.is_symlink():
                os.unlink(link.name, dir_fd=folder)
    os.fsync(folder)


def _adopt(ctx: Context, change: Mutation, path: Path) -> Adoption:
    """Nothing at `path` is touched before the exchange; until then everything can simply be thrown away."""
    layout = ctx.layout
    described = environment.describe(path)
    generation_id = generations.next_id(layout, described["digest"])
    aside = path.with_name(f".{path.name}.{generation_id}")
    if os.path.lexists(str(aside)):
        raise Refused("unsafe", f"`{aside}` is in the way")
    uses = services.running_from(ctx, [path])
    known = Adoption(str(path), str(aside), generation_id, uses.units)
    adoption.write(layout, known)
    with opened_dir(path.parent) as folder, opened_dir(path) as sealed:
        _make_generation(ctx, known, described)
        with change.step("adopt-exchange", {"path": str(path), "aside": str(aside), "generation": generation_id}):
            _exchange(ctx, known, folder, sealed)
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
    manifest.seal(layout.generation(known.generation), manifest.Digests())
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


def _exchange(ctx: Context, known: Adoption, folder: int, sealed: int) -> None:
    """In the opened parent. `sealed` is the directory that was sealed; any other stays where it is."""
    name, aside, link = (path.name for path in (Path(known.path), Path(known.aside), _next_link(known)))
    os.symlink(adoption.link_text(ctx.layout), link, dir_fd=folder)
    os.replace(link, aside, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
    if not os.path.samestat(os.fstat(sealed), os.stat(name, dir_fd=folder, follow_symlinks=False)):
        _undo(ctx, known)
        raise Refused("unsafe", f"`{known.path}` was replaced while it was read", "see by whom, then adopt it again")
    try:
        exchange_in(folder, name, folder, aside)
    except OSError as error:
        _undo(ctx, known)
        hint = "overlayfs cannot move a directory of its lower layer" if error.errno == errno.EXDEV else ""
        raise Refused("unsafe", f"`{known.path}` cannot be moved aside: {error.strerror}", hint) from error
    os.fsync(folder)


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
