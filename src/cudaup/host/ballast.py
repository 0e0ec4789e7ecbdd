"""Blocks and inodes kept aside while there is room, given up when a full disk would stop a revert."""

import os
import shutil

from cudaup.host.files import fsync_dir
from cudaup.host.layout import Layout
from cudaup.host.protocol import Refused

_BLOCKS_BYTES = 1 << 20
_INODES = 16


def lay(layout: Layout) -> None:
    """Refused `no-space` when there is no room for it: then there is none for a switch."""
    try:
        _lay(layout)
    except OSError as error:
        give_up_if_tight(layout)
        raise Refused("no-space", f"no room at `{layout.root}` for a switch: {error}", "free some, or `gc`") from error


def _lay(layout: Layout) -> None:
    layout.ballast.mkdir(exist_ok=True)
    fd = os.open(str(layout.ballast / "blocks"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _BLOCKS_BYTES)
        os.fsync(fd)
    finally:
        os.close(fd)
    for number in range(_INODES):
        (layout.ballast / f"inode-{number}").touch()
    fsync_dir(layout.ballast)


def give_up_if_tight(layout: Layout) -> None:
    """Before the first record of going back is written."""
    if not layout.ballast.is_dir():
        return
    room = os.statvfs(str(layout.root))
    if room.f_bavail * room.f_frsize < _BLOCKS_BYTES or (room.f_files > 0 and room.f_favail < _INODES):
        shutil.rmtree(str(layout.ballast), ignore_errors=True)
