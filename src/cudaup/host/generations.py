"""Generations: numbered, immutable environments, the two links that name them, and the switch between them.

Every generation has exactly one link: `current`, `previous`, or a spare in `links/`. A switch only exchanges
links, so it needs no free space and no new inode, and a crash leaves a whole state at every step.
"""

import itertools
import os
from pathlib import Path
from typing import Any, List, Optional

from cudaup.host.files import exchange, fsync_dir, read_state, write_json
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json, Refused

_SUMMARY = ("id", "digest", "kind", "name", "created", "confirmed", "proven", "packages")
_RECORD = "generation.json"


def next_id(layout: Layout, digest: str) -> str:
    """The name of the next generation: its number counts up, also past those that are gone or half made."""
    names = [path.name for path in layout.generations.iterdir()]
    taken = [int(name.split("-")[0]) for name in names if name[:4].isdigit()]
    return f"{max(taken, default=0) + 1:04d}-{digest[:6]}"


def load(layout: Layout, generation_id: str) -> Json:
    """Raises Refused `not-found`."""
    record = find(layout, generation_id)
    if record is None:
        known = ", ".join(each["id"] for each in load_all(layout)) or "none"
        text = f"no generation `{generation_id}` under `{layout.generations}`"
        raise Refused("not-found", text, f"known: {known}")
    return record


def find(layout: Layout, generation_id: str) -> Optional[Json]:
    """Its record; None for one that is not there, or not whole."""
    try:
        record: Json = read_state(layout.generation(generation_id) / _RECORD)
    except (FileNotFoundError, NotADirectoryError, Refused):
        return None
    return record


def asked(ctx: Context) -> str:
    """The one that was named, or the current one."""
    wanted = ctx.options["generation"] or current_id(ctx.layout)
    if wanted is None:
        raise Refused("not-found", "there is no current generation", "name one")
    return str(load(ctx.layout, wanted)["id"])


def load_all(layout: Layout) -> List[Json]:
    """Complete generations, oldest first. A directory without its record is a stage cut short."""
    found = (find(layout, path.parent.name) for path in layout.generations.glob(f"[0-9]*/{_RECORD}"))
    return sorted((record for record in found if record), key=lambda record: int(record["number"]))


def incomplete(layout: Layout) -> List[Path]:
    """What a crash left of a stage, an adopt or a gc: without a record, or under a name that hides it.

    Never what a link in use names: that was whole once, and a service may run from it.
    """
    if not layout.generations.is_dir():
        return []
    folders = [path for path in layout.generations.iterdir() if path.is_dir()]
    in_use = {current_id(layout), previous_id(layout)}
    half_made = [path for path in folders if path.name.startswith(".") or not (path / _RECORD).exists()]
    return sorted(path for path in half_made if path.name not in in_use)


def save(layout: Layout, record: Json) -> None:
    """Complete a generation: its spare link first, its record last."""
    ensure_link(layout, record["id"])
    write_json(layout.generation(record["id"]) / _RECORD, record)
    fsync_dir(layout.generations)


def update(layout: Layout, generation_id: str, **changes: Any) -> None:
    record = load(layout, generation_id)
    write_json(layout.generation(generation_id) / _RECORD, {**record, **changes}, reserve=layout.ballast)


def summary(record: Json) -> Json:
    return {key: record.get(key) for key in _SUMMARY}


def tree(layout: Layout, generation_id: str) -> Path:
    """Where its environment really lies: its own directory, or the one an adopted path was moved to."""
    return Path(os.path.realpath(str(layout.generation(generation_id) / "venv")))


def current_id(layout: Layout) -> Optional[str]:
    return _named_by(layout.current)


def previous_id(layout: Layout) -> Optional[str]:
    return _named_by(layout.previous)


def ensure_link(layout: Layout, generation_id: str) -> None:
    if _find_link(layout, generation_id) is None:
        # Relative to the root, where it will be used; it leads nowhere while it is a spare.
        _free_slot(layout, generation_id).symlink_to(Path("generations") / generation_id)
        fsync_dir(layout.links)


def remove_link(layout: Layout, generation_id: str) -> None:
    link = _find_link(layout, generation_id)
    if link is not None:
        link.unlink()
        fsync_dir(link.parent)


def make_first(layout: Layout, generation_id: str) -> None:
    """`current` names what is adopted, whatever a forget cut short has left there: nobody follows it yet."""
    if current_id(layout) is None:
        _take_spare(layout, generation_id, layout.current)
    else:
        switch(layout, generation_id)


def switch(layout: Layout, target: str) -> None:
    """`current` names `target`, `previous` what was current. One exchange is the moment it happens."""
    current = current_id(layout)
    if current is None:  # somebody removed the link
        set_previous(layout, None if previous_id(layout) == target else previous_id(layout))
        _take_spare(layout, target, layout.current)
    elif current != target:
        set_previous(layout, target)
        exchange(layout.current, layout.previous)


def set_previous(layout: Layout, wanted: Optional[str]) -> None:
    """`previous` names `wanted`; the link that was there becomes a spare."""
    now = previous_id(layout)
    if now == wanted:
        return
    if wanted is None:
        layout.previous.rename(_free_slot(layout, str(now)))
        fsync_dir(layout.root)
        fsync_dir(layout.links)
    elif now is None:
        _take_spare(layout, wanted, layout.previous)
    else:
        exchange(layout.previous, _spare(layout, wanted))


def _take_spare(layout: Layout, generation_id: str, place: Path) -> None:
    _spare(layout, generation_id).rename(place)
    fsync_dir(layout.links)
    fsync_dir(place.parent)


def _spare(layout: Layout, generation_id: str) -> Path:
    ensure_link(layout, generation_id)
    link = _find_link(layout, generation_id)
    if link is None or link.parent != layout.links:
        text = f"the link of `{generation_id}` is `{link}`, not a spare in `{layout.links}`"
        raise Refused("unsafe", text, "look at the links; `cudaup-host recover` settles a crash")
    return link


def _free_slot(layout: Layout, generation_id: str) -> Path:
    """A file name for a spare: exchanges may have left another generation's link under this one's name."""
    names = (generation_id + "+" * count for count in itertools.count())
    return next(layout.links / name for name in names if not (layout.links / name).is_symlink())


def _find_link(layout: Layout, generation_id: str) -> Optional[Path]:
    """Spares are known by what they name: exchanges move them between file names."""
    places = [layout.current, layout.previous, *sorted(layout.links.iterdir())]
    return next((place for place in places if _named_by(place) == generation_id), None)


def _named_by(link: Path) -> Optional[str]:
    try:
        return Path(os.readlink(str(link))).name
    except OSError:  # missing, or not a link
        return None
