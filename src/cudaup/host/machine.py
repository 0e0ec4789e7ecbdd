"""The machine under the stack: system, clock, disks, interpreters, compilers and toolkits that are there already."""

import ctypes
import json
import os
import platform
import re
import socket
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional

from cudaup.host.clock import SYSTEM_CLOCK
from cudaup.host.command import SEARCH_PATH, query
from cudaup.host.mounts import mount_of
from cudaup.host.protocol import Json

_TOOL_LIMIT_S = 3.0
_PYTHON = re.compile(r"python3(\.\d+)?$")
_COMPILERS = ("g++", "c++", "clang++")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_TIMEX_BYTES = 256  # struct timex has 208; its `status` is at 40
_TIMEX_STATUS, _STA_UNSYNC = 40, 0x40


def host() -> Json:
    return {
        "hostname": socket.gethostname(),
        "machine_id": _text("/etc/machine-id"),
        "boot_id": SYSTEM_CLOCK.boot_id(),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "os": parse_os_release(_text("/etc/os-release")),
        "glibc": _glibc(),
        "time": SYSTEM_CLOCK.wall(),
        "clock_synced": _is_clock_synced(),
        "init": "systemd" if Path("/run/systemd/system").is_dir() else "other",
        "uid": os.getuid(),
    }


def parse_os_release(text: str) -> Json:
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    fields = {"id": "ID", "version_id": "VERSION_ID", "pretty": "PRETTY_NAME"}
    return {ours: pairs.get(theirs, "").strip("\"'") for ours, theirs in fields.items()}


def disk(path: Path) -> Json:
    """Where `path` lies or would lie, and what is free there for us."""
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    mount, size = mount_of(there), os.statvfs(str(there))
    return {
        "path": str(path),
        "mount": str(mount.point),
        "fstype": mount.fstype,
        "free_bytes": size.f_bavail * size.f_frsize,
        "total_bytes": size.f_blocks * size.f_frsize,
        "free_inodes": size.f_favail,
        "total_inodes": size.f_files,
    }


def python_paths() -> List[Path]:
    """Real interpreters behind `python3` and `python3.N`; wrappers that choose one at run time are not."""
    return [path for path in _distinct(entry for entry in _on_path() if _PYTHON.match(entry.name)) if _is_elf(path)]


def compiler_paths() -> List[Path]:
    """Names differ and are told apart by where they lead: `c++` is often `g++`."""
    named = [entry for entry in _on_path() if entry.name in _COMPILERS]
    return _distinct(sorted(named, key=lambda entry: _COMPILERS.index(entry.name)), keep_name=True)


def toolkit_paths() -> List[Path]:
    return _distinct(path for path in Path("/usr/local").glob("cuda*") if (path / "bin" / "nvcc").exists())


def versioned(path: Path, problems: List[str]) -> Optional[Json]:
    """`path` with the version it tells when asked; None when it tells none."""
    text = query([str(path), "--version"], _TOOL_LIMIT_S, problems)
    version = parse_version(text or "")
    return {"path": str(path), "version": version} if version else None


def toolkit(path: Path, problems: List[str]) -> Optional[Json]:
    """The version of its nvcc, from the list that comes with it, or from nvcc itself."""
    try:
        parts = json.loads((path / "version.json").read_text(encoding="utf-8"))
        return {"path": str(path), "version": parts["cuda_nvcc"]["version"]}
    except (OSError, ValueError, KeyError):
        text = query([str(path / "bin" / "nvcc"), "--version"], _TOOL_LIMIT_S, problems)
        found = re.search(r", V(\d+(?:\.\d+)+)", text or "")
        return {"path": str(path), "version": found.group(1)} if found else None


def parse_version(text: str) -> Optional[str]:
    """Of `--version` of Python, GCC and Clang. What the distribution adds stands in parentheses."""
    found = _VERSION.search(re.sub(r"\([^)]*\)", "", text))
    return found.group() if found else None


def _on_path() -> Iterator[Path]:
    for folder in dict.fromkeys(SEARCH_PATH.split(os.pathsep)):
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - thousands of names, few of them wanted
        except OSError:
            continue
        for name in names:
            if name.startswith(("python3", *_COMPILERS)):
                yield Path(folder, name)


def _distinct(paths: Iterable[Path], *, keep_name: bool = False) -> List[Path]:
    """Each file once, by its real path (or by the first name that leads there)."""
    found: Dict[Path, Path] = {}
    for path in paths:
        real = Path(os.path.realpath(str(path)))
        if os.access(str(real), os.X_OK):
            found.setdefault(real, path if keep_name else real)
    return list(found.values())


def _is_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _glibc() -> Optional[str]:
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""  # "glibc 2.36"
    except (ValueError, OSError):
        return None
    return name.rpartition(" ")[2] or None


def _is_clock_synced() -> Optional[bool]:
    """Asks the kernel, as timedatectl does; None where it does not say."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return None
    status = int.from_bytes(timex.raw[_TIMEX_STATUS : _TIMEX_STATUS + 4], "little")
    return not status & _STA_UNSYNC


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
