"""What a path stands on: its mount, and whether cudaup may keep its root or an environment there."""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

from cudaup.host import ownership
from cudaup.host.layout import Layout
from cudaup.host.protocol import Refused

_PROC = Path("/proc")
_NETWORKED = ("nfs", "cifs", "smb", "9p", "ceph", "lustre", "glusterfs", "gpfs", "beegfs", "afs", "fuse.", "virtiofs")
_SHARED_DISK = ("gfs2", "ocfs2")
_PLAIN = re.compile(r"[\w/.+-]+\Z", re.ASCII)  # it stands in unit files and in the links of environments


class Mount(NamedTuple):
    """`device` and `root` say which directory of which filesystem is seen at `point`.

    `options` are of this mount, `filesystem_options` of all mounts of that filesystem.
    """

    device: str
    root: Path
    point: Path
    fstype: str
    options: List[str]
    filesystem_options: List[str]

    @property
    def is_networked(self) -> bool:
        """Other machines change it too."""
        return self.fstype.startswith(_NETWORKED) or self.fstype in _SHARED_DISK

    @property
    def is_read_only(self) -> bool:
        return "ro" in {*self.options, *self.filesystem_options}  # the latter after a disk error

    @property
    def is_fit_for_root(self) -> bool:
        """Whether generations can be kept and run here."""
        return not self.is_networked and not self.is_read_only and "noexec" not in self.options


def prepare_root(layout: Layout) -> None:
    """Make cudaup's own directory, or look at the one that is there.

    Refused `unsafe` where a generation could not be kept or run, and where anybody else could change what is there.
    """
    _require_own_way(layout)
    if not layout.root.is_dir():
        _require_fit(layout.root)
        layout.root.mkdir(parents=True, mode=0o755)
        _require_own_way(layout)
    _require_own(layout)
    for folder in (layout.generations, layout.links):
        folder.mkdir(exist_ok=True, mode=0o755)


def _require_fit(root: Path) -> None:
    if not _PLAIN.match(str(root)):
        raise Refused("unsafe", f"`{root}` has characters that unit files give a meaning", "choose another root")
    mount = mount_of(root)
    if not mount.is_fit_for_root:
        options = ",".join([*mount.options, *mount.filesystem_options])
        text = f"`{root}` lies on {mount.fstype} at `{mount.point}` ({options})"
        raise Refused("unsafe", text, "choose a root on a local, writable disk that allows programs to run")


def _require_own_way(layout: Layout) -> None:
    fault = ownership.fault_on_the_way(layout.root)
    if fault is not None:
        raise fault.refused()
    if layout.root.is_symlink() or (layout.root.exists() and not layout.root.is_dir()):
        raise Refused("unsafe", f"`{layout.root}` is not a directory of its own", "give the real one as --root")


def _require_own(layout: Layout) -> None:
    """One level: what lies deeper is in directories that only we can write to, and `verify` looks at it."""
    places = [layout.root, *layout.root.iterdir()]
    if layout.program.parent.is_dir():
        places += layout.program.parent.iterdir()
    for place in places:
        with suppress(FileNotFoundError):  # replaced meanwhile, as a renewal does with the lease
            info = os.lstat(str(place))
            is_named = stat.S_ISDIR(info.st_mode) or place in {layout.current, layout.previous}
            fault = ownership.fault_of(place, info) if is_named else ownership.fault_of_file(place, info)
            if fault is not None:
                raise fault.refused()


def mount_of(path: Path) -> Mount:
    """The mount that `path`, or what of it exists already, lies on."""
    real = Path(os.path.realpath(str(path)))
    best = Mount("", Path("/"), Path("/"), "unknown", [], [])
    for mount in _mounts_seen_by("self"):
        covers = mount.point == real or mount.point in real.parents
        if covers and len(mount.point.parts) >= len(best.point.parts):
            best = mount  # of two mounts on one point the later one is seen
    return best


def mounts_inside(path: Path) -> List[Mount]:
    return [mount for mount in _mounts_seen_by("self") if path in mount.point.parents]


def binds_of(path: Path) -> List[str]:
    """As `bindings_of`, in words."""
    return [f"`{point}` of pid {pid}" for pid, point in bindings_of(path)]


def bindings_of(path: Path) -> List[Tuple[int, Path]]:
    """Where this very directory or one inside it is mounted too, and who else sees it without the rest of the host.

    For them the link that takes its place would not be there, or lead nowhere. One process of each mount namespace.
    """
    own = mount_of(path)
    inside = own.root / path.relative_to(own.point)
    return [(int(pid), point) for pid in _namespaces().values() for point in _binds_seen_by(pid, own, inside, path)]


def _binds_seen_by(pid: str, own: Mount, inside: Path, path: Path) -> Iterator[Path]:
    seen, host = _mounts_seen_by(pid), mount_of(Path("/"))
    # A sandboxed service sees the whole host, links and all; so does an agent in a container, though elsewhere.
    whole = {mount.point for mount in seen if (mount.device, mount.root) == (host.device, host.root)}
    for mount in seen:
        if mount.device != own.device:
            continue
        if mount.root == inside or inside in mount.root.parents:
            yield mount.point
        elif mount.root in inside.parents:
            there = mount.point / inside.relative_to(mount.root)
            is_part_of_all = Path("/") in whole or any(there == point / path.relative_to("/") for point in whole)
            if not is_part_of_all and _is_same(pid, there, path):
                yield there


def _is_same(pid: str, there: Path, path: Path) -> bool:
    """Something else may be mounted over it."""
    try:
        return os.path.samestat(Path(f"{_PROC}/{pid}/root{there}").stat(), path.stat())
    except OSError:
        return False


def seen_elsewhere(path: Path) -> Iterator[Tuple[int, List[Path]]]:
    """Processes that see this very directory under other names too, such as a container's; each with these names."""
    own = mount_of(path)
    inside = own.root / path.relative_to(own.point)
    by_namespace: Dict[str, List[Path]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        namespace = _namespace_of(entry.name)
        if namespace not in by_namespace:
            same = (each for each in _mounts_seen_by(entry.name) if each.device == own.device)
            names = {name for mount in same for name in _names_of(inside, mount)}
            by_namespace[namespace] = sorted(names - {path})
        if by_namespace[namespace]:
            yield int(entry.name), by_namespace[namespace]


def _names_of(inside: Path, mount: Mount) -> Iterator[Path]:
    """What a directory of the mounted filesystem is called there, or a part of it that is mounted by itself."""
    if mount.root == inside or mount.root in inside.parents:
        yield mount.point / inside.relative_to(mount.root)
    elif inside in mount.root.parents:
        yield mount.point


def parse_mounts(mountinfo: str) -> List[Mount]:
    """Of proc(5) mountinfo."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, (fstype, _source, options) = before.split(), after.split(" ", 2)
        root, point = Path(_unescape(fields[3])), Path(_unescape(fields[4]))
        mounts.append(Mount(fields[2], root, point, fstype, fields[5].split(","), options.split(",")))
    return mounts


def _mounts_seen_by(pid: str) -> List[Mount]:
    """Empty for a process that is gone."""
    try:
        content = (_PROC / pid / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    return parse_mounts(content)


def _namespaces() -> Dict[str, str]:
    """One process of every mount namespace, by the namespace."""
    found: Dict[str, str] = {}
    for path in _PROC.iterdir():
        if path.name.isdigit():
            found.setdefault(_namespace_of(path.name), path.name)
    return found


def _namespace_of(pid: str) -> str:
    try:
        return os.readlink(str(_PROC / pid / "ns" / "mnt"))
    except OSError:
        return ""


def _unescape(text: str) -> str:
    """Blanks, tabs, newlines and backslashes are octal in mountinfo."""
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, char)
    return text
