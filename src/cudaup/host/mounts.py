"""What a path stands on: its mount, and whether cudaup may keep its root or an environment there."""

import os
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

from cudaup.host.layout import Layout
from cudaup.host.protocol import Refused

_NETWORKED = ("nfs", "cifs", "smb", "9p", "ceph", "lustre", "glusterfs", "gpfs", "beegfs", "afs", "fuse.")


class Mount(NamedTuple):
    """`device` and `root` say which directory of which filesystem is seen at `point`."""

    device: str
    root: Path
    point: Path
    fstype: str
    options: List[str]

    @property
    def is_networked(self) -> bool:
        return self.fstype.startswith(_NETWORKED)

    @property
    def is_fit_for_root(self) -> bool:
        """Whether generations can be kept and run here."""
        return not self.is_networked and not {"noexec", "ro"} & set(self.options)


def prepare_root(layout: Layout) -> None:
    """Make cudaup's own directory. Refused `unsafe` where a generation could not be kept or run."""
    if not layout.root.is_dir():
        mount = mount_of(layout.root)
        if not mount.is_fit_for_root:
            text = f"`{layout.root}` lies on {mount.fstype} at `{mount.point}` ({','.join(mount.options)})"
            raise Refused("unsafe", text, "choose a root on a local, writable disk that allows programs to run")
        layout.root.mkdir(parents=True, mode=0o755)
    for folder in (layout.generations, layout.links):
        folder.mkdir(exist_ok=True, mode=0o755)


def mount_of(path: Path) -> Mount:
    """The mount that `path`, or what of it exists already, lies on."""
    real = Path(os.path.realpath(str(path)))
    best = Mount("", Path("/"), Path("/"), "unknown", [])
    for mount in _mounts_seen_by("self"):
        covers = mount.point == real or mount.point in real.parents
        if covers and len(mount.point.parts) >= len(best.point.parts):
            best = mount  # of two mounts on one point the later one is seen
    return best


def mounts_inside(path: Path) -> List[Mount]:
    return [mount for mount in _mounts_seen_by("self") if path in mount.point.parents]


def binds_of(path: Path) -> List[str]:
    """Where this very directory, or one inside it, is mounted too: here or in another mount namespace."""
    own = mount_of(path)
    inside = own.root / path.relative_to(own.point)
    seen = ((pid, mount) for pid in _namespaces().values() for mount in _mounts_seen_by(pid))
    return [
        f"`{mount.point}` of pid {pid}"
        for pid, mount in seen
        if mount.device == own.device and (mount.root == inside or inside in mount.root.parents)
    ]


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
    """Of proc(5) mountinfo: mount point, per-mount options and filesystem type."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        root, point = Path(_unescape(fields[3])), Path(_unescape(fields[4]))
        mounts.append(Mount(fields[2], root, point, after.split()[0], fields[5].split(",")))
    return mounts


def _mounts_seen_by(pid: str) -> List[Mount]:
    """Empty for a process that is gone."""
    try:
        content = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    return parse_mounts(content)


def _namespaces() -> Dict[str, str]:
    """One process of every mount namespace, by the namespace."""
    found: Dict[str, str] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            found.setdefault(_namespace_of(path.name), path.name)
    return found


def _namespace_of(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


def _unescape(text: str) -> str:
    """Blanks, tabs, newlines and backslashes are octal in mountinfo."""
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, char)
    return text
