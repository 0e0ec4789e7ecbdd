"""Becoming a host: from a fork of the warden to pid 1 in namespaces of its own. Nothing here returns to the warden."""

from __future__ import annotations

import os
import socket
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cudaup.lab import child, kernel
from cudaup.lab.disk import HostDisk
from cudaup.lab.kernel import Capability, MountFlags, Namespaces
from cudaup.lab.spec import PREFIX_BITS, HostSpec, Init

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "linux",
}
DROPPED = ",".join(f"-{capability.name.lower()}" for capability in Capability)
_GO, _LINKS_UP = b"g", b"u"
_HOST = Namespaces.MNT | Namespaces.NET | Namespaces.UTS | Namespaces.IPC | Namespaces.PID | Namespaces.CGROUP
_SAFE = MountFlags.NOSUID | MountFlags.NODEV | MountFlags.NOEXEC
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEV_LINKS = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1"}
# One kernel serves all hosts and the machine: its knobs stay out of a host's reach.
_READ_ONLY = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
_COMMANDS = {
    Init.SYSTEMD: ["/lib/systemd/systemd", "--system"],
    Init.SSHD: ["/bin/sh", "-c", "mkdir -p /run/sshd; while :; do /usr/sbin/sshd -D -e; sleep 0.2; done"],
}


@dataclass(frozen=True)
class Started:
    """A host's pid 1, waiting; `go` lets it run once its links are there."""

    pid: int
    channel: socket.socket

    def go(self) -> None:
        self.channel.sendall(_GO)

    def wait_for_links(self) -> None:
        """Until its links are up, so that nobody asks for its address too early. Raises RuntimeError when it died."""
        with self.channel:
            if self.channel.recv(1) != _LINKS_UP:
                raise RuntimeError(f"pid {self.pid} died before its init: see the lab's log")


def start(host: HostSpec, disk: HostDisk, lower: Path, cgroup: Path, init: Init) -> Started:
    """Fork a host that waits for its links. Raises RuntimeError; the reason is in the log."""
    ours, theirs = socket.socketpair()

    def become() -> NoReturn:
        with theirs:
            if theirs.recv(1) != _GO:
                raise RuntimeError(f"{host.name}: the warden went away")
            _become(host, disk, lower)
            theirs.sendall(_LINKS_UP)
            _exec_init(init)

    def split_off() -> None:
        ours.close()
        # Into the host's cgroup before the cgroup namespace is made: that makes it the root the host sees.
        (cgroup / "cgroup.procs").write_text("0")
        kernel.unshare(_HOST)
        theirs.sendall(str(child.fork(become)).encode())

    middle = child.fork(split_off)
    theirs.close()
    pid = ours.recv(32)
    os.waitpid(middle, 0)
    if not pid:
        raise RuntimeError(f"{host.name} could not be started: see the lab's log")
    return Started(pid=int(pid), channel=ours)


def _become(host: HostSpec, disk: HostDisk, lower: Path) -> None:
    os.setsid()
    os.umask(0o022)
    kernel.set_hostname(host.name)
    kernel.mount(None, "/", None, MountFlags.REC | MountFlags.PRIVATE)
    root = disk.base.parent / "root"
    root.mkdir(exist_ok=True)
    layers = f"lowerdir={lower},upperdir={disk.upper},workdir={disk.work}"
    kernel.mount("overlay", root, "overlay", data=f"{layers},index=off,metacopy=off,redirect_dir=off")
    _mount_kernel_files(root)
    _make_devices(root / "dev")
    kernel.become_root_of(root)
    _set_up_links(host)
    for path in map(Path, _READ_ONLY):
        if path.exists():
            kernel.bind_read_only(path)
    for capability in Capability:
        kernel.drop_capability(capability)


def _mount_kernel_files(root: Path) -> None:
    kernel.mount("proc", root / "proc", "proc", _SAFE)
    kernel.mount("sysfs", root / "sys", "sysfs", _SAFE | MountFlags.RDONLY)
    kernel.mount("cgroup2", root / "sys/fs/cgroup", "cgroup2", _SAFE)
    kernel.mount("tmpfs", root / "run", "tmpfs", MountFlags.NOSUID | MountFlags.NODEV, "size=64m,mode=755")
    boot_id = root / "run/.boot_id"  # the kernel's is the machine's and would never change
    boot_id.write_text(f"{uuid.uuid4()}\n")
    kernel.mount(str(boot_id), root / "proc/sys/kernel/random/boot_id", None, MountFlags.BIND)


def _make_devices(dev: Path) -> None:
    kernel.mount("tmpfs", dev, "tmpfs", MountFlags.NOSUID, "size=64k,mode=755")
    for name in _DEVICES:
        (dev / name).touch()
        kernel.mount(f"/dev/{name}", dev / name, None, MountFlags.BIND)
    for name, target in {**_DEV_LINKS, "stderr": "/proc/self/fd/2"}.items():
        (dev / name).symlink_to(target)
    (dev / "pts").mkdir()
    kernel.mount("devpts", dev / "pts", "devpts", MountFlags.NOSUID | MountFlags.NOEXEC, "newinstance,ptmxmode=0666")
    (dev / "shm").mkdir()
    kernel.mount("tmpfs", dev / "shm", "tmpfs", MountFlags.NOSUID | MountFlags.NODEV, "size=64m")


def _set_up_links(host: HostSpec) -> None:
    commands = ["link set lo up"]
    for index, link in enumerate(host.links):
        commands += [f"addr add {link.address}/{PREFIX_BITS} dev eth{index}", f"link set eth{index} up"]
    subprocess.run(["/usr/sbin/ip", "-batch", "-"], input="\n".join(commands).encode(), check=True, env=ENVIRONMENT)


def _exec_init(init: Init) -> NoReturn:
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)  # standard output and error stay the lab's log
    os.closerange(3, 4096)
    argv = _COMMANDS[init]
    os.execve(argv[0], argv, {**ENVIRONMENT, "container": "cudaup-lab"})  # noqa: S606 - exec is what init is
