"""File effects that survive a crash: write aside, fsync, rename, fsync the folder; and the atomic exchange.

Names are taken relative to their opened folder, and no file of ours is ever opened through a link.
"""

import ctypes
import errno
import hashlib
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator, Optional

from cudaup.host import ownership
from cudaup.host.protocol import Refused

_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2  # renameat2(2)
_KEEP_SIZE = 1  # fallocate(2)
_CHUNK = 1 << 20
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def opened_dir(path: Path) -> Iterator[int]:
    """For calls that take a name in it (`dir_fd`): whatever happens to `path` meanwhile, they reach this directory."""
    fd = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def open_own(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a file that cudaup keeps. Refused `unsafe` unless it is a plain file that only we can write to.

    What is written to in place must have no other name: it could be anything's, /etc/shadow's too.
    """
    try:
        # O_NONBLOCK: a pipe that was put there must not make us wait.
        fd = os.open(str(path), flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused("unsafe", f"`{path}` is a link", "look at what put it there, and remove it") from error
        raise
    is_written = bool(flags & (os.O_WRONLY | os.O_RDWR))
    fault = ownership.fault_of_file(path, os.fstat(fd), may_have_names=not is_written)
    if fault is not None:
        os.close(fd)
        raise fault.refused()
    return fd


def read_own(path: Path) -> bytes:
    """As `open_own`; FileNotFoundError when it is not there."""
    with os.fdopen(open_own(path, os.O_RDONLY), "rb") as stream:
        return stream.read()


def read_state(path: Path) -> Any:
    """A record that cudaup wrote. FileNotFoundError; Refused `damaged` when somebody else, or a disk, wrote over it."""
    try:
        found = json.loads(read_own(path).decode())
    except ValueError as error:
        raise Refused("damaged", f"`{path}` is not what was written: {error}", "restore it, or look why") from error
    if not isinstance(found, dict):
        raise Refused("damaged", f"`{path}` is not what was written: {type(found).__name__}", "restore it, or look why")
    return found


def fsync_dir(path: Path) -> None:
    with opened_dir(path) as fd:
        os.fsync(fd)


def write_atomic(path: Path, content: bytes, mode: int = 0o644, *, reserve: Optional[Path] = None) -> None:
    """Readers see the old file or the whole new one, also after a power loss.

    On a full disk a file of the folder `reserve` becomes the new one: its inode and its blocks are there already, and
    nobody else can take them in between.
    """
    aside = "." + path.name + ".new"
    with opened_dir(path.parent) as folder:
        with suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=folder)  # what a crash left: a new file, never one that may have other names
        try:
            _fill(aside, folder, content, mode, reserve)
            os.replace(aside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):  # the room is needed by what comes next
                os.unlink(aside, dir_fd=folder)
            raise
        os.fsync(folder)


def _fill(name: str, folder: int, content: bytes, mode: int, reserve: Optional[Path]) -> None:
    try:
        _write(name, folder, content, mode, os.O_CREAT | os.O_EXCL)
    except OSError as error:
        if error.errno not in FULL or reserve is None or not _take(reserve, name, folder):
            raise
        _write(name, folder, content, mode, 0)


def _write(name: str, folder: int, content: bytes, mode: int, flags: int) -> None:
    """Over what is there: its blocks are kept until the new length is known."""
    fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600, dir_fd=folder)
    try:
        os.fchmod(fd, mode)  # whatever the umask says
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.ftruncate(fd, len(content))
        os.fsync(fd)
    finally:
        os.close(fd)


def _take(reserve: Path, name: str, folder: int) -> bool:
    """Whether there was still a file to take."""
    for spare in reserve.glob("*"):
        with suppress(FileNotFoundError):  # another process took it
            os.replace(str(spare), name, dst_dir_fd=folder)
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
    with opened_dir(one.parent) as here, opened_dir(other.parent) as there:
        exchange_in(here, one.name, there, other.name)
        os.fsync(here)
        if other.parent != one.parent:
            os.fsync(there)


def exchange_in(here: int, one: str, there: int, other: str) -> None:
    """The same with names in opened directories; not on the disk yet."""
    _renameat2(here, one, there, other, _RENAME_EXCHANGE)


def move_in(folder: int, one: str, other: str) -> None:
    """Give `one` another name, which nothing has yet. Raises OSError."""
    _renameat2(folder, one, folder, other, _RENAME_NOREPLACE)


def _renameat2(here: int, one: str, there: int, other: str, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(here, os.fsencode(one), there, os.fsencode(other), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one, None, other)


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
