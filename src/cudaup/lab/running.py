"""A host as the warden holds it: its disk, its present pid 1, the shape of its links."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cudaup.lab import boot, network, upper
from cudaup.lab.boot import Started
from cudaup.lab.cgroup import empty
from cudaup.lab.disk import HostDisk
from cudaup.lab.network import Shape
from cudaup.lab.spec import HostSpec, LabSpec


@dataclass
class RunningHost:
    """Mutable on purpose: it is the one record of what runs. `pid` is None while the host is off."""

    spec: HostSpec
    lab: LabSpec
    disk: HostDisk
    pid: int | None = None
    boots: int = 0
    shape: Shape = field(default_factory=Shape)
    delays: list[int] = field(default_factory=list)

    @property
    def cgroup(self) -> Path:
        return self.lab.cgroup / self.spec.name

    def prepare(self) -> None:
        self.disk.create()
        upper.populate(self.disk.upper, self.spec, self.lab)
        if self.disk.wanted.kind == "ext4":
            os.sync()  # a power cut right after the first boot must not take the host's keys

    def start(self) -> Started:
        """Fork pid 1, which waits until its links are made."""
        empty(self.cgroup)
        self.cgroup.mkdir(exist_ok=True)
        started = boot.start(self.spec, self.disk, self.lab.root / "root", self.cgroup, self.lab.init)
        self.pid = started.pid
        self.boots += 1
        return started

    def kill(self) -> None:
        """As pulling the plug is to processes: pid 1 goes, and the kernel takes all others of its namespace."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.ended()

    def ended(self) -> None:
        self.pid = None
        self.stop_delays()
        network.disconnect(self.spec)

    def stop_delays(self) -> None:
        for pid in self.delays:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.delays = []

    def reshape(self, shape: Shape) -> None:
        """Give the links of a running host another shape."""
        self.stop_delays()
        self.shape = shape
        if self.pid is not None:
            network.straighten(self.spec, self.pid)
            self.delays = network.apply(shape, self.spec, self.pid)


def boot_all(hosts: Sequence[RunningHost]) -> None:
    """Start hosts together: one batch of links for all of them."""
    started = [(host, host.start()) for host in hosts]
    network.connect([(host.spec, one.pid) for host, one in started])
    for host, one in started:
        host.delays = network.apply(host.shape, host.spec, one.pid)
        one.go()
    for _, one in started:
        one.wait_for_links()
