"""File effects that survive a crash: write aside, fsync, rename, fsync the folder; and the atomic exchange."""

import ctypes
import hashlib
import json
import os
from pathlib import Path
from typing import Any

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # renameat2(2)
_CHUNK = 1 << 20


def fsync_dir(path: Path) -> None:
    fd = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Readers see the old file or the whole new one, also after a power loss."""
    aside = path.with_name("." + path.name + ".new")
    fd = os.open(str(aside), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        os.fchmod(fd, mode)  # whatever the umask says
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    aside.replace(path)
    fsync_dir(path.parent)


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    write_atomic(path, json.dumps(value, sort_keys=True, indent=1).encode() + b"\n", mode)


def exchange(one: Path, other: Path) -> None:
    """Swap two names in one step; both must exist and lie on the same filesystem. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.renameat2(_AT_FDCWD, os.fsencode(str(one)), _AT_FDCWD, os.fsencode(str(other)), _RENAME_EXCHANGE)
    if done != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno), str(one), None, str(other))
    fsync_dir(one.parent)
    if other.parent != one.parent:
        fsync_dir(other.parent)


def sha256_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()
