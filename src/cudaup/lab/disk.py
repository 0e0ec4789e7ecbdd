"""A host's own disk: the upper of its overlay, which survives its reboots. Runs inside the lab's mount namespace."""

from __future__ import annotations

import errno
import io
import itertools
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from cudaup.domain.errors import CudaupError, UsageError
from cudaup.lab import kernel
from cudaup.lab.kernel import MountFlags
from cudaup.lab.spec import Disk

_LOOP_GONE_S = 5.0
_CHUNK = bytes(1 << 20)
_EXT4_INODES = 16384  # enough for a few generations, and few enough to be used up in a moment
_TMPFS_INODES = 1 << 20


@dataclass(frozen=True)
class HostDisk:
    """`base` is the mounted disk; the host sees `base/upper` only, so the ballast is out of its reach."""

    wanted: Disk
    base: Path
    image: Path

    @property
    def upper(self) -> Path:
        return self.base / "upper"

    @property
    def work(self) -> Path:
        return self.base / "work"

    def create(self) -> None:
        self.base.mkdir(parents=True)
        if self.wanted.kind == "ext4":
            self.image.parent.mkdir(exist_ok=True)
            with self.image.open("wb") as stream:
                stream.truncate(self.wanted.size_bytes)
            options = ["-q", "-F", "-E", "nodiscard", "-N", str(_EXT4_INODES)]
            subprocess.run(["mkfs.ext4", *options, str(self.image)], check=True)
        self.attach()
        self.upper.mkdir()
        self.work.mkdir()

    def attach(self) -> None:
        if self.wanted.kind == "tmpfs":
            options = f"mode=755,size={self.wanted.size},nr_inodes={_TMPFS_INODES}"
            kernel.mount("tmpfs", self.base, "tmpfs", data=options)
        else:
            # mount(8) makes the loop device go with its last mount, so a killed lab keeps none.
            subprocess.run(["mount", "-o", "loop", str(self.image), str(self.base)], check=True)

    def fill(self) -> None:
        """Real ENOSPC: one file beside the upper takes every block that is left."""
        with (self.base / "ballast").open("ab", buffering=0) as stream:
            _allocate(stream)
            while _fill(stream):  # ext4 reserves more than a write needs, and gives it back when the data is on disk
                os.fsync(stream.fileno())

    def unfill(self) -> None:
        (self.base / "ballast").unlink(missing_ok=True)
        self._keep()

    def take_inodes(self) -> None:
        """Real ENOSPC for whoever makes a file, while blocks stay free."""
        if self.wanted.kind == "tmpfs":
            now = os.statvfs(self.base)
            self._limit_inodes(now.f_files - now.f_ffree)
        else:
            self._inode_ballast.mkdir(exist_ok=True)
            _make_files(self._inode_ballast)

    def give_inodes_back(self) -> None:
        if self.wanted.kind == "tmpfs":
            self._limit_inodes(_TMPFS_INODES)
        else:
            shutil.rmtree(self._inode_ballast, ignore_errors=True)
            self._keep()

    def _keep(self) -> None:
        """Or a power loss would bring back what was in the way."""
        subprocess.run(["sync", "--file-system", str(self.base)], check=True)

    @property
    def _inode_ballast(self) -> Path:
        return self.base / "inodes"

    def _limit_inodes(self, count: int) -> None:
        kernel.mount(None, self.base, None, MountFlags.REMOUNT, f"nr_inodes={count}")

    def require_power(self) -> None:
        """Raises UsageError where there is nothing that a power cut could lose."""
        if self.wanted.kind != "ext4":
            reason = "a tmpfs has no device: nothing on it is ever durable"
            raise UsageError("power-loss needs --disk ext4:SIZE", found=f"tmpfs; {reason}", fix="lab up --disk ext4:2g")

    def lose_power(self) -> None:
        kernel.lose_power(self.base)

    def power_on(self) -> None:
        """After the host's end: a new mount of the device, which replays the journal. Raises CudaupError."""
        kernel.unmount(self.base)
        wait_until_detached(self.image)
        self.attach()


def _allocate(stream: io.RawIOBase) -> None:
    """Nearly all of it, without writing it."""
    room = os.fstatvfs(stream.fileno())
    try:
        os.posix_fallocate(stream.fileno(), 0, room.f_bfree * room.f_frsize)
    except OSError as error:
        _require_full(error)


def _make_files(folder: Path) -> None:
    """Until there is no inode for one more; again, since some may have been freed meanwhile."""
    try:
        for number in itertools.count(len(list(folder.iterdir()))):
            (folder / str(number)).touch()
    except OSError as error:
        _require_full(error)


def _require_full(error: OSError) -> None:
    if error.errno != errno.ENOSPC:
        raise error


def _fill(stream: io.RawIOBase) -> int:
    """Write until not one byte fits; a big write may fail whole where a small one fits. Returns the bytes written."""
    written, size = 0, len(_CHUNK)
    while size:
        try:
            written += stream.write(_CHUNK[:size]) or 0
        except OSError as error:
            _require_full(error)
            size //= 2
    return written


def wait_until_detached(images: Path) -> None:
    """A dead host's mounts hold its loop device (of `images` or a file in it) a moment. Raises CudaupError."""
    deadline = time.monotonic() + _LOOP_GONE_S
    while held := [file for file in _backing_files() if Path(file).is_relative_to(images)]:
        if time.monotonic() > deadline:
            raise CudaupError(f"still a loop device after {_LOOP_GONE_S:.0f} s", where=held[0], fix="see `losetup`")
        time.sleep(0.02)


def _backing_files() -> list[str]:
    files = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            files.append(path.read_text().strip())
        except OSError:  # it went meanwhile
            continue
    return files
