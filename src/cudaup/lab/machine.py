"""What the lab needs of the machine it runs on, and where it keeps its things there."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cudaup.domain.errors import UsageError

LABS = Path("/var/lib/cudaup-lab")
CACHE = Path("/var/cache/cudaup/lab")

_PACKAGES = {
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "mkfs.ext4": "e2fsprogs",
}


def require_lab_machine() -> None:
    """Raises UsageError unless a lab can run here."""
    still_works = "plan, apply, rollback and status of real hosts work here; they need neither Linux nor root"
    if platform.system() != "Linux":
        raise UsageError("the lab is made of Linux namespaces", found=platform.system(), fix=still_works)
    if os.geteuid() != 0:
        fix = f"run it with sudo; without it, {still_works}"
        raise UsageError("the lab makes namespaces and mounts", wanted="root", found=f"uid {os.geteuid()}", fix=fix)
    missing = [tool for tool in _PACKAGES if shutil.which(tool, path=tool_path()) is None]
    if missing:
        packages = " ".join(sorted({_PACKAGES[tool] for tool in missing}))
        fix = f"apt-get install {packages}"
        raise UsageError("the lab needs tools that are not here", found=f"no {', '.join(missing)}", fix=fix)


def tool_path() -> str:
    """PATH with the sbin folders, which a login of a non-root user or sudo may lack."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def unified_cgroup() -> Path:
    """Where cgroup v2 is mounted: `/sys/fs/cgroup`, or `/sys/fs/cgroup/unified` beside v1. Raises UsageError."""
    lines = [line.partition(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found = [before.split()[4] for before, _, after in lines if after.startswith("cgroup2 ")]
    if not found:
        fix = "mount -t cgroup2 none /sys/fs/cgroup"
        raise UsageError("systemd hosts need cgroup v2", wanted="a cgroup2 mount", fix=fix)
    return Path(found[-1])  # a later mount hides an earlier one


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` alone; a holder that dies lets go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
