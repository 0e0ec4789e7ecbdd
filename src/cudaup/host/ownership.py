"""Whose a file is. What another user could write to, or rename under us, is refused before it is used.

Trusted are root, who can do everything anyway, and the user we run as.
"""

import os
import stat
from pathlib import Path
from typing import Iterator, NamedTuple, Optional, Tuple

from cudaup.host.protocol import Refused

_WRITABLE_BY_OTHERS = 0o022
_MOST_LINKS = 40  # as the kernel


class Fault(NamedTuple):
    """What is wrong, and the command that mends it."""

    text: str
    fix: str

    def refused(self) -> Refused:
        return Refused("unsafe", self.text, self.fix)


def is_trusted(uid: int) -> bool:
    return uid in {0, os.geteuid()}


def fault_of(path: Path, info: os.stat_result) -> Optional[Fault]:
    """None when only we can write to it."""
    named = f"`{path}` (uid {info.st_uid}, gid {info.st_gid}, mode {stat.S_IMODE(info.st_mode):04o})"
    if not is_trusted(info.st_uid):
        return Fault(f"{named} belongs to another user", f"chown {os.geteuid()} {path}")
    if info.st_mode & _WRITABLE_BY_OTHERS and not stat.S_ISLNK(info.st_mode):
        return Fault(f"{named} can be written by others", f"chmod go-w {path}")
    return None


def fault_of_file(path: Path, info: os.stat_result, *, may_have_names: bool = False) -> Optional[Fault]:
    """None for a plain file of ours under one name."""
    if not stat.S_ISREG(info.st_mode):
        return Fault(f"`{path}` is not a plain file", "look at what put it there, and remove it")
    if info.st_nlink > 1 and not may_have_names:
        fix = "remove the others, or copy it and move the copy to its place"
        return Fault(f"`{path}` has {info.st_nlink} names (hard links)", fix)
    return fault_of(path, info)


def fault_on_the_way(path: Path) -> Optional[Fault]:
    """In the directories that lead to `path`: nobody else may be able to put something else there.

    Looked at from the top, so that what was found sound stays it. A sticky directory does where the name in it is ours.
    """
    for folder, name in _lookups(path):
        info = folder.stat()
        fault = fault_of(folder, info)
        is_kept_by_sticky = is_trusted(info.st_uid) and info.st_mode & stat.S_ISVTX and _is_ours(folder / name)
        if fault is not None and not is_kept_by_sticky:
            return fault
    return None


def _is_ours(entry: Path) -> bool:
    """Also when it is not there: it will be made, not taken over."""
    try:
        return is_trusted(os.lstat(str(entry)).st_uid)
    except FileNotFoundError:
        return True


def _lookups(path: Path) -> Iterator[Tuple[Path, str]]:
    """Each directory searched on the way to `path`, and for which name. Links are followed, but not the last."""
    here, pending, links = Path("/"), list(reversed(path.parts[1:])), 0
    while pending:
        name = pending.pop()
        if name == "..":
            here = here.parent
            continue
        entry = here / name
        yield here, name
        if not os.path.lexists(str(entry)):
            return
        if not (pending and entry.is_symlink()):
            here = entry
            continue
        links += 1
        if links > _MOST_LINKS:
            raise Refused("unsafe", f"`{path}` leads through too many links")
        target = Path(os.readlink(str(entry)))
        here = Path("/") if target.is_absolute() else here
        pending += reversed(target.parts[1:] if target.is_absolute() else target.parts)
