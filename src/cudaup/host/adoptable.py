"""Whether a directory can be adopted where it lies; the refusals say why not, and what would help."""

import array
import fcntl
import os
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Tuple

from cudaup.host import environment, mounts, ownership, surroundings
from cudaup.host.layout import Layout
from cudaup.host.ownership import Fault
from cudaup.host.protocol import Refused

_FS_IOC_GETFLAGS = 0x80086601  # ioctl_iflags(2)
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_ELSEWHERE = "leave this host out, or let the service run from an environment of its own"


def require(path: Path, layout: Layout) -> None:
    """Raises Refused `unsafe` or `not-found`."""
    if not os.path.lexists(str(path)):
        raise Refused("not-found", f"`{path}` does not exist")
    fault = fault_of(path, layout)
    if fault is not None:
        raise Refused("unsafe", f"`{path}` cannot be adopted: {fault.text}", fault.fix)


def fault_of(path: Path, layout: Layout) -> Optional[Fault]:
    """The first thing that is against it. The last look is at every file."""
    looks: Tuple[Callable[[], Optional[Fault]], ...] = (
        lambda: _by_kind(path),
        lambda: _by_place(path, layout),
        lambda: surroundings.fault_by_container(path),
        lambda: _by_mount(path),
        lambda: _by_way(path),
        lambda: _by_flags(path),
        surroundings.fault_by_fapolicyd,
        lambda: surroundings.fault_by_selinux(path),
        lambda: _by_interpreter(path),
        lambda: _by_owners(path),
    )
    return next((fault for fault in (look() for look in looks) if fault is not None), None)


def _by_kind(path: Path) -> Optional[Fault]:
    if path.is_symlink():
        return Fault(f"it is a link to `{os.readlink(str(path))}`", "adopt the directory itself")
    if not path.is_dir():
        return Fault("it is not a directory", "adopt the environment's directory")
    real = os.path.realpath(str(path))
    if Path(real) != path:
        return Fault("one of its parents is a link", f"adopt it by its real name, `{real}`")
    if environment.kind(path) == "none":
        return Fault("it is no Python environment (no pyvenv.cfg, no conda-meta)", "name the environment itself")
    return None


def _by_place(path: Path, layout: Layout) -> Optional[Fault]:
    root = Path(os.path.realpath(str(layout.root)))
    if root == path or root in path.parents or path in root.parents:
        return Fault(f"it and cudaup's own `{root}` lie in one another", "adopt the environment that the service uses")
    nested = sorted(path.glob("envs/*/conda-meta"))
    if nested:
        return Fault(f"`{nested[0].parent}` lies in it and would be moved with it", _ELSEWHERE)
    return None


def _by_mount(path: Path) -> Optional[Fault]:
    mount = mounts.mount_of(path)
    if mount.point == path:
        return Fault("it is a mount point", _ELSEWHERE)
    if mount.is_networked:
        return Fault(f"it lies on {mount.fstype}, which other hosts may use too", _ELSEWHERE)
    if mount.is_read_only:
        return Fault(f"`{mount.point}` is mounted read-only", "see why; `dmesg` tells of a disk error")
    inside = mounts.mounts_inside(path)
    if inside:
        return Fault(f"`{inside[0].point}` is mounted inside it", "unmount it, if the environment does not need it")
    binds = mounts.binds_of(path)
    if binds:
        text = f"it is mounted elsewhere, perhaps in a container: {', '.join(binds[:3])}"
        return Fault(text, "end what mounts it, or leave this host out")
    return None


def _by_way(path: Path) -> Optional[Fault]:
    """Names are made and exchanged in its parent: nobody else may, not even where a sticky bit keeps what is there."""
    parent = path.parent
    fault = ownership.fault_on_the_way(path) or ownership.fault_of(parent, parent.stat())
    return fault and Fault(f"{fault.text}, and so the environment could be replaced", fault.fix)


def _by_flags(path: Path) -> Optional[Fault]:
    held: List[Path] = [each for each in (path, path.parent) if _flags(each) & (_IMMUTABLE | _APPEND_ONLY)]
    return Fault(f"`{held[0]}` has the immutable or append-only flag", f"chattr -i -a {held[0]}") if held else None


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


def _by_interpreter(path: Path) -> Optional[Fault]:
    """It must start again one day, and it is started as root."""
    broken = environment.broken(path)
    if broken is not None:
        return Fault(f"{broken}, so that it could not be proven, nor started again", "repair it first")
    python = environment.interpreter(path)
    fault = ownership.fault_on_the_way(python) or ownership.fault_of(python, python.stat())
    return fault and Fault(f"its interpreter could be replaced: {fault.text}", fault.fix)


def _by_owners(path: Path) -> Optional[Fault]:
    """Its code runs as root in a smoke test. Group root is root's own: conda leaves files that it may write to."""
    for each in _everything_in(path):
        info = os.lstat(each)
        is_root_group = info.st_gid in {0, os.getegid()} and ownership.is_trusted(info.st_uid)
        if is_root_group and not info.st_mode & 0o002:
            continue
        fault = ownership.fault_of(Path(each), info)
        if fault is not None:
            return Fault(fault.text, f"chown -R {os.geteuid()} {path}; chmod -R go-w {path}")
    return None


def _everything_in(path: Path) -> Iterator[str]:
    yield str(path)
    for folder, folders, files in os.walk(str(path)):
        for name in (*folders, *files):
            yield f"{folder}/{name}"  # a Path of each of 50,000 would take most of the time
