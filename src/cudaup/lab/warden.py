"""The lab's one process: pid 1 of the lab's own namespaces, parent of every host. When it ends, the kernel takes all.

Run as `python -m cudaup.lab.warden DIRECTORY`. It answers JSON lines on the socket `control` in that folder.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudaup.domain.errors import CudaupError, UsageError
from cudaup.lab import kernel, network
from cudaup.lab.cgroup import WARDEN
from cudaup.lab.disk import HostDisk
from cudaup.lab.faults import Fault, inflict
from cudaup.lab.kernel import MountFlags, Namespaces
from cudaup.lab.paths import Files
from cudaup.lab.ready import Probe
from cudaup.lab.running import RunningHost, boot_all
from cudaup.lab.spec import LAB_SPEC, LabSpec

_LAB = Namespaces.MNT | Namespaces.NET | Namespaces.UTS | Namespaces.IPC | Namespaces.PID
_ANSWER_S = 30.0


class Warden:
    def __init__(self, lab: LabSpec) -> None:
        mounts = lab.directory / "hosts"
        self.lab = lab
        self.hosts = {
            host.name: RunningHost(
                spec=host,
                lab=lab,
                disk=HostDisk(lab.disk, mounts / host.name / "disk", lab.directory / "disks" / f"{host.name}.img"),
            )
            for host in lab.hosts
        }

    def bring_up(self) -> None:
        mounts = self.lab.directory / "hosts"
        mounts.mkdir()
        kernel.mount("tmpfs", mounts, "tmpfs", data="mode=755,size=16m")
        network.make_bridges()
        for host in self.hosts.values():
            host.prepare()
        boot_all(list(self.hosts.values()))

    def serve(self, control: socket.socket) -> None:
        """Answer requests and reap, one thing at a time, until killed."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write)
        with selectors.DefaultSelector() as selector:
            selector.register(wake_read, selectors.EVENT_READ)
            selector.register(control, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is control:
                        self._answer(control.accept()[0])
                    else:
                        os.read(wake_read, 4096)
                    self.reap()

    def reap(self) -> None:
        """Collect the dead. A host that called reboot(2) died of SIGHUP and boots again; others stay off."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for host in self.hosts.values():
                if host.pid == pid:
                    host.ended()
                    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGHUP:
                        boot_all([host])

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_ANSWER_S)
            try:
                request = json.loads(connection.makefile().readline())
                reply = {"ok": True, "data": self._do(request)}
            except UsageError as error:
                reply = {"ok": False, "usage": True, "text": str(error)}
            except (CudaupError, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
                traceback.print_exc()
                reply = {"ok": False, "usage": False, "text": str(error)}
            connection.sendall(json.dumps(reply).encode() + b"\n")

    def _do(self, request: Mapping[str, Any]) -> Any:
        match request["op"]:
            case "state":
                return {name: {"pid": host.pid, "boots": host.boots} for name, host in self.hosts.items()}
            case "ready":
                return Probe(self.hosts).wait(self.reap, request["timeout_s"])
            case "fault":
                fault = Fault.parse(request["kind"], request["arguments"])
                return inflict(fault, self.hosts[request["host"]])
            case unknown:
                raise ValueError(f"unknown request {unknown}")


def main(directory: Path) -> None:
    files = Files(directory)
    lab = LAB_SPEC.validate_json(files.spec.read_bytes())
    (lab.cgroup / WARDEN / "cgroup.procs").write_text("0")
    control = socket.socket(socket.AF_UNIX)
    control.bind(str(files.control))  # before anyone knows of us: a client connects and waits
    control.listen(16)
    kernel.unshare(_LAB)
    pid = os.fork()
    if pid:
        sys.stdout.write(f"{pid}\n")  # the pid as the machine sees it
        return
    os.umask(0o022)
    with files.log.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    kernel.mount(None, "/", None, MountFlags.REC | MountFlags.PRIVATE)
    kernel.mount("proc", "/proc", "proc")
    warden = Warden(lab)
    warden.bring_up()
    warden.serve(control)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
