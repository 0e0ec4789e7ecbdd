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
from typing import Any, Iterator

from cudaup.host import ownership
from cudaup.host.protocol import Refused

_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2  # renameat2(2)
_CHUNK = 1 << 20


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


def fsync_dir(path: Path) -> None:
    with opened_dir(path) as fd:
        os.fsync(fd)


def write_atomic(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Readers see the old file or the whole new one, also after a power loss."""
    aside = "." + path.name + ".new"
    with opened_dir(path.parent) as folder:
        with suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=folder)  # what a crash left: a new file, never one that may have other names
        try:
            _write_new(aside, folder, content, mode)
            os.replace(aside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):  # the room is needed by what comes next
                os.unlink(aside, dir_fd=folder)
            raise
        os.fsync(folder)


def _write_new(name: str, folder: int, content: bytes, mode: int) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        os.fchmod(fd, mode)  # whatever the umask says
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    write_atomic(path, json.dumps(value, sort_keys=True, indent=1).encode() + b"\n", mode)


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


def sha256_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()
