"""Files kept aside while there is room: on a full disk each record of going back is written into one of them."""

import os
from contextlib import suppress
from pathlib import Path

from cudaup.host.files import FULL, fsync_dir
from cudaup.host.layout import Layout
from cudaup.host.protocol import Refused

_FILES, _FILE_BYTES = 64, 64 << 10  # a rollback writes about ten records; a lease is renewed every few seconds
_ROOM_BYTES, _ROOM_INODES = 64 << 20, 1000


def lay(layout: Layout) -> None:
    """Refused `no-space` when there is no room for it: then there is none for a switch."""
    try:
        _lay(layout)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise Refused("no-space", f"no room at `{layout.root}` for a switch: {error}", "free some, or `gc`") from error


def lay_where_there_is_room(layout: Layout) -> None:
    """Of a nearly full disk the last blocks are left to others."""
    room = os.statvfs(str(layout.root))
    has_inodes = room.f_files == 0 or room.f_favail >= _ROOM_INODES
    if room.f_bavail * room.f_frsize >= _ROOM_BYTES and has_inodes:
        with suppress(OSError):
            _lay(layout)


def _lay(layout: Layout) -> None:
    """All that is missing, or nothing of it."""
    layout.ballast.mkdir(exist_ok=True)
    layout.failed.mkdir(exist_ok=True)
    missing = sorted({layout.ballast / str(number) for number in range(_FILES)} - set(layout.ballast.iterdir()))
    try:
        for path in missing:
            _lay_file(path)
    except OSError:
        for path in missing:
            with suppress(FileNotFoundError):
                path.unlink()
        raise
    if missing:
        fsync_dir(layout.ballast)


def _lay_file(path: Path) -> None:
    fd = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _FILE_BYTES)
    finally:
        os.close(fd)
