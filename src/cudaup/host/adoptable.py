"""Whether a directory can be adopted where it lies; the refusals say why not."""

import array
import fcntl
import os
from pathlib import Path
from typing import List, Optional

from cudaup.host import mounts
from cudaup.host.protocol import Refused

_FS_IOC_GETFLAGS = 0x80086601  # ioctl_iflags(2)
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20


def require(path: Path) -> None:
    """Raises Refused `unsafe` or `not-found`."""
    if not os.path.lexists(str(path)):
        raise Refused("not-found", f"`{path}` does not exist")
    reason = _reason_against(path)
    if reason is not None:
        raise Refused("unsafe", f"`{path}` cannot be adopted: {reason}")


def _reason_against(path: Path) -> Optional[str]:
    if path.is_symlink():
        return f"it is a link to `{os.readlink(str(path))}`; adopt the directory itself"
    if not path.is_dir():
        return "it is not a directory"
    if Path(os.path.realpath(str(path))) != path:
        return f"one of its parents is a link; its real name is `{os.path.realpath(str(path))}`"
    return _reason_by_mount(path) or _reason_by_owner(path) or _reason_by_flags(path)


def _reason_by_owner(path: Path) -> Optional[str]:
    owner = path.stat().st_uid
    if owner != os.geteuid():
        return f"it belongs to uid {owner}, not to {os.geteuid()}"
    return None


def _reason_by_mount(path: Path) -> Optional[str]:
    mount = mounts.mount_of(path)
    if mount.point == path:
        return "it is a mount point"
    if mount.is_networked:
        return f"it lies on {mount.fstype}"
    if "ro" in mount.options:
        return f"`{mount.point}` is mounted read-only"
    inside = mounts.mounts_inside(path)
    if inside:
        return f"`{inside[0].point}` is mounted inside it"
    binds = mounts.binds_of(path)
    return f"it is mounted elsewhere, perhaps in a container: {', '.join(binds[:3])}" if binds else None


def _reason_by_flags(path: Path) -> Optional[str]:
    held: List[Path] = [each for each in (path, path.parent) if _flags(each) & (_IMMUTABLE | _APPEND_ONLY)]
    return f"`{held[0]}` has the immutable or append-only flag (lsattr)" if held else None


def _flags(path: Path) -> int:
    """Zero where the filesystem has no such flags."""
    fd = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    flags = array.array("l", [0])
    try:
        fcntl.ioctl(fd, _FS_IOC_GETFLAGS, flags)
    except OSError:
        return 0
    finally:
        os.close(fd)
    return flags[0]
