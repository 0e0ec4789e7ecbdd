"""What else watches over files on this host, or owns them: container engines, fapolicyd, SELinux."""

import os
import re
from pathlib import Path
from typing import Iterator, Optional

from cudaup.host.mounts import mount_of
from cudaup.host.ownership import Fault

_ROOT = Path("/")  # tests show another host's files
_HOST_PIDS = "pid:[4026531836]"  # the initial namespace's fixed number: a machine made from an image has the file too
_IN_A_CONTAINER = (".dockerenv", "run/.containerenv", "run/secrets/kubernetes.io")
_STORAGE = re.compile(
    r"/(overlay2|io\.containerd\.[^/]+|containers/storage|(var/lib|run)/(docker|containerd|containers|machines|lxc))/"
)
_LABEL = "security.selinux"


def fault_by_container(path: Path) -> Optional[Fault]:
    """Whether `path` is of an image, where a change is lost with the container, or reaches others made from it."""
    fix = "build the new stack into the image"
    sign = next((name for name in _IN_A_CONTAINER if (_ROOT / name).exists()), None)
    if sign is not None and not _has_host_pids():
        return Fault(f"this is the inside of a container (`/{sign}`)", fix)
    mount = mount_of(path)
    places = [str(path), *(mount.filesystem_options if mount.fstype == "overlay" else [])]
    stored = next((place for place in places if _STORAGE.search(place + "/")), None)
    return Fault(f"it lies in a container's image or files ({stored})", fix) if stored is not None else None


def fault_by_fapolicyd() -> Optional[Fault]:
    """It trusts files by the names they were installed under."""
    for pid in _pids_named("fapolicyd"):
        text = f"fapolicyd runs (pid {pid}): it would not let programs run under a new name"
        return Fault(text, "stop it for good, or leave this host out")
    return None


def fault_by_selinux(path: Path) -> Optional[Fault]:
    """A rename keeps labels; but one that comes from a rule for this very path is lost with the next relabelling.

    And the new generation would not have it at all. A label like the parent directory's is no such label.
    """
    if _read("sys/fs/selinux/enforce") != "1":
        return None
    around = _type_of(path.parent)
    for place in (path, path / "bin"):
        if _type_of(place) != around:
            text = f"SELinux enforces, and `{place}` is labelled {_type_of(place)} within {around}: that label is lost"
            return Fault(text, f"`restorecon -R {path}` if it needs no label of its own, or leave this host out")
    return None


def _type_of(path: Path) -> str:
    """The type in `user:role:type:level`."""
    try:
        label = os.getxattr(str(path), _LABEL, follow_symlinks=False).decode().rstrip("\0")
    except OSError:
        return "nothing"
    return label.split(":")[2] if label.count(":") >= 2 else label


def _has_host_pids() -> bool:
    try:
        return os.readlink(str(_ROOT / "proc/self/ns/pid")) == _HOST_PIDS
    except OSError:
        return False


def _pids_named(name: str) -> Iterator[str]:
    for folder in (_ROOT / "proc").glob("[0-9]*"):
        if _read(f"proc/{folder.name}/comm") == name:
            yield folder.name


def _read(path: str) -> str:
    try:
        return (_ROOT / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
