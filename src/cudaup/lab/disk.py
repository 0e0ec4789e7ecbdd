"""A host's own disk: the upper of its overlay, which survives its reboots. Runs inside the lab's mount namespace."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from cudaup.domain.errors import CudaupError, UsageError
from cudaup.lab import kernel
from cudaup.lab.spec import Disk

_LOOP_GONE_S = 5.0
_CHUNK = bytes(1 << 20)


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
            subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", str(self.image)], check=True)
        self.attach()
        self.upper.mkdir()
        self.work.mkdir()

    def attach(self) -> None:
        if self.wanted.kind == "tmpfs":
            kernel.mount("tmpfs", self.base, "tmpfs", data=f"mode=755,size={self.wanted.size}")
        else:
            # mount(8) makes the loop device go with its last mount, so a killed lab keeps none.
            subprocess.run(["mount", "-o", "loop", str(self.image), str(self.base)], check=True)

    def fill(self) -> None:
        """Real ENOSPC: one file beside the upper takes every block that is left."""
        with (self.base / "ballast").open("ab", buffering=0) as stream:
            while _fill(stream):  # ext4 reserves more than a write needs, and gives it back when the data is on disk
                os.fsync(stream.fileno())

    def unfill(self) -> None:
        (self.base / "ballast").unlink(missing_ok=True)

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


def _fill(stream: io.RawIOBase) -> int:
    """Write until not one byte fits; a big write may fail whole where a small one fits. Returns the bytes written."""
    written, size = 0, len(_CHUNK)
    while size:
        try:
            written += stream.write(_CHUNK[:size]) or 0
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
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
