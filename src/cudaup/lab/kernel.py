"""The few Linux calls the lab needs and Python does not have, through libc. A failure is an OSError naming the call."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from enum import IntEnum, IntFlag
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

_PR_CAPBSET_DROP = 24
_MNT_DETACH = 2
_EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), fs/ext4/ext4.h
_SHUTDOWN_NO_LOG_FLUSH = 2
_TUNSETIFF = 0x400454CA
_IFF_TAP_NO_PI = 0x1002


class Namespaces(IntFlag):
    """CLONE_NEW* of sched.h."""

    MNT = 0x00020000
    CGROUP = 0x02000000
    UTS = 0x04000000
    IPC = 0x08000000
    PID = 0x20000000
    NET = 0x40000000


class MountFlags(IntFlag):
    """MS_* of sys/mount.h."""

    NONE = 0
    RDONLY = 1
    NOSUID = 2
    NODEV = 4
    NOEXEC = 8
    REMOUNT = 32
    BIND = 4096
    REC = 16384
    PRIVATE = 1 << 18


class Capability(IntEnum):
    """Bit numbers of linux/capability.h that a host must not have, because its kernel is the machine's."""

    SYS_MODULE = 16
    SYS_RAWIO = 17
    SYS_TIME = 25
    MKNOD = 27


def _check(returned: int, call: str) -> None:
    if returned != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{call}: {os.strerror(errno)}")


def unshare(namespaces: Namespaces) -> None:
    _check(_libc.unshare(int(namespaces)), f"unshare {namespaces!r}")


def enter(namespace_file: Path, kind: Namespaces) -> None:
    """setns(2) into the namespace a /proc/PID/ns file stands for."""
    fd = os.open(namespace_file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(fd, int(kind)), f"setns {namespace_file}")
    finally:
        os.close(fd)


def mount(
    source: str | None, target: Path | str, fstype: str | None, flags: MountFlags = MountFlags.NONE, data: str = ""
) -> None:
    arguments = [os.fsencode(text) if text is not None else None for text in (source, str(target), fstype)]
    done = _libc.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(data) or None)
    _check(done, f"mount {source} {target} {fstype} {data}")


def bind_read_only(path: Path) -> None:
    mount(str(path), path, None, MountFlags.BIND | MountFlags.REC)
    mount(None, path, None, MountFlags.BIND | MountFlags.REMOUNT | MountFlags.RDONLY)


def detach(path: Path | str) -> None:
    _check(_libc.umount2(os.fsencode(str(path)), _MNT_DETACH), f"umount {path}")


def unmount(path: Path) -> None:
    _check(_libc.umount2(os.fsencode(str(path)), 0), f"umount {path}")


def become_root_of(new_root: Path) -> None:
    """Make `new_root` this process's root; the old root's mounts are gone from here."""
    os.chdir(new_root)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    detach(".")
    os.chdir("/")


def set_hostname(name: str) -> None:
    encoded = name.encode()
    _check(_libc.sethostname(encoded, len(encoded)), "sethostname")


def drop_capability(capability: Capability) -> None:
    _check(_libc.prctl(_PR_CAPBSET_DROP, int(capability), 0, 0, 0), f"drop {capability!r}")


def lose_power(mounted: Path) -> None:
    """Stop an ext4 dead, as a power cut would: what has not reached the device by now never will."""
    fd = os.open(mounted, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _SHUTDOWN_NO_LOG_FLUSH))
    finally:
        os.close(fd)


def open_tap(name: str) -> int:
    """A TAP interface in the caller's network namespace; it goes when the descriptor is closed."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TAP_NO_PI))
    return fd
