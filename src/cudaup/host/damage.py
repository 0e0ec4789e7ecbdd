"""What is not as cudaup leaves a host: somebody's hand, or a disk's. Told by status; in the way of an upgrade only."""

from typing import Iterator, List, Optional

from cudaup.host import adoption, generations, units
from cudaup.host.adoption import Adoption
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context


def of(ctx: Context) -> List[str]:
    """In words, worst first. Only while nobody is at work on the host: a change under way looks alike."""
    known = adoption.read(ctx.layout)
    if known is None:
        return []
    try:
        if known.is_undone(ctx.layout):  # an adopt or a forget cut short: the next one settles it
            return []
        return [*_links(ctx.layout), *_path(ctx.layout, known), *_units(ctx, known)]
    except PermissionError:  # not for this user to know: facts are read without root too
        return []


def _links(layout: Layout) -> Iterator[str]:
    whole = {record["id"] for record in generations.load_all(layout)}
    current, previous = generations.current_id(layout), generations.previous_id(layout)
    if current not in whole:
        yield f"`{layout.current}` names {_named(current)}"
    if previous is not None and previous not in whole:
        yield f"`{layout.previous}` names {_named(previous)}"


def _named(generation: Optional[str]) -> str:
    return f"{generation}, which is not whole" if generation else "no generation"


def _path(layout: Layout, known: Adoption) -> Iterator[str]:
    if not known.is_in_place(layout):
        yield f"`{known.path}` does not lead to `{adoption.link_text(layout)}`, or `{known.aside}` is gone"


def _units(ctx: Context, known: Adoption) -> Iterator[str]:
    """What was adopted has no variables to bring: there an adopt was cut short, and a switch makes the drop-in."""
    if generations.current_id(ctx.layout) == known.generation:
        return
    missing = [name for name in known.units if not units.has_drop_in(ctx, name)]
    if missing and ctx.systemd.is_running():
        yield f"the drop-in of {', '.join(missing)} is gone"
