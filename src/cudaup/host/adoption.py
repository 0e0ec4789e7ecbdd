"""adopted.json: the path that follows `current`, where its directory lies now, and the units that run from it."""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from cudaup.host.files import read_state, write_json
from cudaup.host.layout import Layout
from cudaup.host.protocol import Json


@dataclass(frozen=True)
class Adoption:
    """Where the directory is now is told by which of the two names is one: inode numbers can change with a reboot."""

    path: str
    aside: str
    generation: str
    units: Tuple[str, ...] = ()

    def is_in_place(self, layout: Layout) -> bool:
        """The exchange has happened: the path is the link, the directory lies aside."""
        return leads_to(Path(self.path), layout) and _is_real_directory(Path(self.aside))

    def is_path_gone(self) -> bool:
        """Nothing is at the path, and the directory lies aside."""
        return not os.path.lexists(self.path) and _is_real_directory(Path(self.aside))

    def is_undone(self, layout: Layout) -> bool:
        """Nothing of ours is at the path, and nothing of theirs aside."""
        return not leads_to(Path(self.path), layout) and not _is_real_directory(Path(self.aside))


def link_text(layout: Layout) -> str:
    """What the adopted path's link says."""
    return str(layout.current / "venv")


def leads_to(path: Path, layout: Layout) -> bool:
    return path.is_symlink() and os.readlink(str(path)) == link_text(layout)


def read(layout: Layout) -> Optional[Adoption]:
    try:
        found = read_state(layout.adopted)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Adoption(**{**found, "units": tuple(found["units"])})


def write(layout: Layout, adoption: Adoption) -> None:
    write_json(layout.adopted, asdict(adoption), reserve=layout.ballast)


def remember_units(layout: Layout, units: Sequence[str]) -> None:
    """Units once seen stay known, so that a stopped one still gets its drop-in removed by `forget`."""
    known = read(layout)
    if known is not None and not set(units) <= set(known.units):
        write(layout, replace(known, units=tuple(sorted({*known.units, *units}))))


def places(layout: Layout) -> List[Path]:
    """Every directory an environment of this host can run from."""
    known = read(layout)
    adopted = [Path(known.path), Path(known.aside)] if known else []
    return [layout.current, layout.generations, *adopted]


def public(layout: Layout) -> List[Json]:
    """As `status` shows it."""
    known = read(layout)
    return [{"path": known.path, "aside": known.aside, "generation": known.generation}] if known else []


def _is_real_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
