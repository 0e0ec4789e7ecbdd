"""File effects that survive a crash: write aside, fsync, rename, fsync the folder; and the atomic exchange."""

import ctypes
import errno
import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # renameat2(2)
_KEEP_SIZE = 1  # fallocate(2)
_CHUNK = 1 << 20
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def fsync_dir(path: Path) -> None:
    fd = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, content: bytes, mode: int = 0o644, *, reserve: Optional[Path] = None) -> None:
    """Readers see the old file or the whole new one, also after a power loss.

    On a full disk a file of the folder `reserve` becomes the new one: its inode and its blocks are there already, and
    nobody else can take them in between.
    """
    aside = path.with_name("." + path.name + ".new")
    try:
        _fill(aside, content, mode, reserve)
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise
    fsync_dir(path.parent)


def _fill(path: Path, content: bytes, mode: int, reserve: Optional[Path]) -> None:
    try:
        _write(path, content, mode)
    except OSError as error:
        if error.errno not in FULL or reserve is None or not _take(reserve, path):
            raise
        _write(path, content, mode)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Over what is there: its blocks are kept until the new length is known."""
    fd = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, mode)
    try:
        os.fchmod(fd, mode)  # whatever the umask says
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.ftruncate(fd, len(content))
        os.fsync(fd)
    finally:
        os.close(fd)


def _take(reserve: Path, target: Path) -> bool:
    """Whether there was still a file to take."""
    for spare in reserve.glob("*"):
        with suppress(FileNotFoundError):  # another process took it
            spare.replace(target)
            return True
    return False


def give_up_one(reserve: Path) -> bool:
    """Whether there was still a file to remove, whose blocks anybody can have now."""
    for spare in reserve.glob("*"):
        spare.unlink(missing_ok=True)
        sync_filesystem(reserve)  # btrfs frees nothing before
        return True
    return False


def write_json(path: Path, value: Any, mode: int = 0o644, *, reserve: Optional[Path] = None) -> None:
    write_atomic(path, json.dumps(value, sort_keys=True, indent=1).encode() + b"\n", mode, reserve=reserve)


def allocate(fd: int, size: int) -> None:
    """Blocks up to `size`, past the end of a file that stays as long as it is. Best effort."""
    if os.fstat(fd).st_blocks * 512 < size:
        ctypes.CDLL(None).fallocate(fd, _KEEP_SIZE, ctypes.c_longlong(0), ctypes.c_longlong(size))


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


def sync_filesystem(path: Path) -> None:
    """Everything on that filesystem is on the disk; one call is much faster than one for each of many files."""
    fd = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs", str(path))
    finally:
        os.close(fd)


def sha256_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()
