"""A lab as wanted: its hosts, links, disks. Plain values that travel to the warden as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from cudaup.domain.errors import UsageError

FRONT, INNER = "front", "inner"  # bridges: what a controller sees, and what only a bastion sees
LAB_ADDRESS = "10.77.255.254"
BASTION = "bastion"
PREFIX_BITS = 16
MOST_HOSTS = 1000


class Init(StrEnum):
    SYSTEMD = "systemd"
    SSHD = "sshd"


@dataclass(frozen=True, kw_only=True)
class Disk:
    """Where a host's changes live: `tmpfs` is fast, `ext4` (on a loop device) can lose power."""

    kind: str
    size: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises UsageError."""
        match = re.fullmatch(r"(tmpfs|ext4):([1-9][0-9]*[kmg])", text)
        if match is None:
            raise UsageError("bad --disk", wanted="tmpfs:SIZE or ext4:SIZE with SIZE like 512m or 4g", found=text)
        return cls(kind=match[1], size=match[2])

    @property
    def size_bytes(self) -> int:
        return int(self.size[:-1]) << {"k": 10, "m": 20, "g": 30}[self.size[-1]]


@dataclass(frozen=True, kw_only=True)
class Link:
    bridge: str
    address: str

    @property
    def mac(self) -> str:
        """The same at every boot, as of a real card; a new one would be unreachable until ARP times out."""
        return "02:4c:" + ":".join(f"{int(part):02x}" for part in self.address.split("."))


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """`gpus` names the profile of its simulated GPUs, or is `none`, as a bastion's always is."""

    name: str
    links: tuple[Link, ...]
    gpus: str

    @property
    def address(self) -> str:
        return self.links[0].address

    @property
    def is_inner(self) -> bool:
        return self.links[0].bridge == INNER


@dataclass(frozen=True, kw_only=True)
class LabSpec:
    name: str
    directory: Path
    root: Path
    cgroup: Path
    hosts: tuple[HostSpec, ...]
    init: Init
    disk: Disk
    user: str | None

    def host(self, name: str) -> HostSpec:
        """Raises UsageError."""
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts)
        raise UsageError(f"lab `{self.name}` has no host `{name}`", wanted=known, found=name)


LAB_SPEC = TypeAdapter(LabSpec)


def fleet_of(count: int, gpus: str, *, bastion: bool) -> tuple[HostSpec, ...]:
    """h1..hN, and with a bastion one more host that alone is seen from the front. Raises UsageError."""
    if not 1 <= count <= MOST_HOSTS:
        raise UsageError("bad --hosts", wanted=f"1 to {MOST_HOSTS}", found=str(count))
    bridge, network = (INNER, "10.78") if bastion else (FRONT, "10.77")
    names = [(f"h{i}", f"{network}.{i // 250}.{i % 250 + 1}") for i in range(1, count + 1)]
    hosts = [HostSpec(name=n, links=(Link(bridge=bridge, address=a),), gpus=gpus) for n, a in names]
    if bastion:
        links = (Link(bridge=FRONT, address="10.77.255.1"), Link(bridge=INNER, address="10.78.255.1"))
        hosts.append(HostSpec(name=BASTION, links=links, gpus="none"))
    return tuple(hosts)


def check_name(kind: str, name: str, known: Sequence[str] = ()) -> str:
    """Raises UsageError: names become folders, cgroups, users and words in generated files."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name) or name in known:
        found = f"{name}, which is taken" if name in known else name
        raise UsageError(f"bad {kind} name", wanted="a-z, 0-9 and -, at most 31, a letter first", found=found)
    return name
