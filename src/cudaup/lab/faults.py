"""What can go wrong with a host, on demand. Checked on the client's side, done by the warden."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from cudaup.domain.errors import UsageError
from cudaup.lab import child, kernel
from cudaup.lab.kernel import Namespaces
from cudaup.lab.network import Shape
from cudaup.lab.running import RunningHost, boot_all


class FaultKind(StrEnum):
    CUT = "cut"
    CUT_IN = "cut-in"
    CUT_OUT = "cut-out"
    RESTORE = "restore"
    LATENCY = "latency"
    LOSS = "loss"
    RATE = "rate"
    KILL_SSHD = "kill-sshd"
    DISK_FULL = "disk-full"
    DISK_OK = "disk-ok"
    INODES_FULL = "inodes-full"
    INODES_OK = "inodes-ok"
    READONLY = "readonly"
    REBOOT = "reboot"
    POWER_LOSS = "power-loss"


_AMOUNTS = {
    FaultKind.LATENCY: ("MS each way", 1, 10_000),
    FaultKind.LOSS: ("PCT", 1, 100),
    FaultKind.RATE: ("KBIT per s", 8, 10_000_000),
}
_OFF = "is off; `lab fault HOST reboot` starts it"
_KERNEL_FOLDERS = frozenset({"proc", "sys", "dev", "run"})


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`amount` is 0 for the kinds that have none."""

    kind: FaultKind
    amount: int = 0

    @classmethod
    def parse(cls, kind: str, arguments: Sequence[object] = ()) -> Fault:
        """Raises UsageError."""
        if kind not in list(FaultKind):
            raise UsageError("unknown fault", wanted=", ".join(FaultKind), found=kind)
        unit, least, most = _AMOUNTS.get(FaultKind(kind), ("", 0, 0))
        words = [str(argument) for argument in arguments]
        if not unit and not words:
            return cls(kind=FaultKind(kind))
        if not unit or len(words) != 1 or not words[0].isdecimal() or not least <= int(words[0]) <= most:
            wanted = f"{kind} {unit}, {least} to {most}" if unit else f"{kind} alone"
            raise UsageError("bad fault", wanted=wanted, found=" ".join([kind, *words]))
        return cls(kind=FaultKind(kind), amount=int(words[0]))


def inflict(fault: Fault, host: RunningHost) -> None:
    """Raises UsageError when the host cannot suffer it, OSError when the kernel refuses."""
    _ACTIONS[fault.kind](host, fault.amount)


def _shaped(change: Callable[[Shape, int], Shape]) -> Callable[[RunningHost, int], None]:
    return lambda host, amount: host.reshape(change(host.shape, amount))


def _restore(host: RunningHost, _: int) -> None:
    host.reshape(Shape())
    if host.pid is not None:
        _in_mounts_of(host.pid, _make_writable)


def _kill_sshd(host: RunningHost, _: int) -> None:
    """Listener and sessions alike; what a session started lives on."""
    namespace = _pid_namespace(_pid(host))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_sshd = (process / "comm").read_text() == "sshd\n" and _pid_namespace(int(process.name)) == namespace
        except FileNotFoundError:
            continue  # it ended meanwhile
        if is_sshd:
            os.kill(int(process.name), signal.SIGKILL)


def _reboot(host: RunningHost, _: int) -> None:
    host.kill()
    boot_all([host])


def _power_loss(host: RunningHost, _: int) -> None:
    host.disk.require_power()
    host.disk.lose_power()
    host.kill()
    host.disk.power_on()
    boot_all([host])


def _readonly(host: RunningHost, _: int) -> None:
    _in_mounts_of(_pid(host), _make_read_only)


def _make_read_only() -> None:
    """Every folder of the root bound over itself: remounting `/` fails while anything is open for writing."""
    for folder in _own_folders():
        kernel.bind_read_only(folder)


def _make_writable() -> None:
    """/proc cannot be asked what is mounted: it is the host's, and this process is none of its."""
    for folder in _own_folders():
        while _detached(folder):
            pass


def _detached(folder: Path) -> bool:
    try:
        kernel.detach(folder)
    except OSError as error:
        if error.errno == errno.EINVAL:  # not a mount point, or no more
            return False
        raise
    return True


def _own_folders() -> list[Path]:
    return [path for path in Path("/").iterdir() if path.name not in _KERNEL_FOLDERS and not path.is_symlink()]


def _in_mounts_of(pid: int, action: Callable[[], None]) -> None:
    """Run `action` in a child inside the host's mount namespace. Raises OSError when it failed; the log says why."""

    def change() -> None:
        kernel.enter(Path(f"/proc/{pid}/ns/mnt"), Namespaces.MNT)
        action()

    _, status = os.waitpid(child.fork(change), 0)
    if status != 0:
        raise OSError(f"the mounts of pid {pid} could not be changed: see the lab's log")


def _pid_namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def _pid(host: RunningHost) -> int:
    if host.pid is None:
        raise UsageError(_OFF, host=host.spec.name)
    return host.pid


_ACTIONS: dict[FaultKind, Callable[[RunningHost, int], None]] = {
    FaultKind.CUT: _shaped(lambda shape, _: replace(shape, cut=True)),
    FaultKind.CUT_IN: _shaped(lambda shape, _: replace(shape, cut_in=True)),
    FaultKind.CUT_OUT: _shaped(lambda shape, _: replace(shape, cut_out=True)),
    FaultKind.RESTORE: _restore,
    FaultKind.LATENCY: _shaped(lambda shape, ms: replace(shape, latency_ms=ms)),
    FaultKind.LOSS: _shaped(lambda shape, percent: replace(shape, loss_percent=percent)),
    FaultKind.RATE: _shaped(lambda shape, kbit: replace(shape, rate_kbit=kbit)),
    FaultKind.KILL_SSHD: _kill_sshd,
    FaultKind.DISK_FULL: lambda host, _: host.disk.fill(),
    FaultKind.DISK_OK: lambda host, _: host.disk.unfill(),
    FaultKind.INODES_FULL: lambda host, _: host.disk.take_inodes(),
    FaultKind.INODES_OK: lambda host, _: host.disk.give_inodes_back(),
    FaultKind.READONLY: _readonly,
    FaultKind.REBOOT: _reboot,
    FaultKind.POWER_LOSS: _power_loss,
}
