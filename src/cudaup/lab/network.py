"""The lab's bridges and links, and what can be done to a link. Runs inside the lab's network namespace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from cudaup.lab import child, delay
from cudaup.lab.spec import FRONT, INNER, LAB_ADDRESS, PREFIX_BITS, HostSpec


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How bad a host's links are. A reboot keeps it: a cut cable stays cut. `in` and `out` are as the host sees it."""

    cut: bool = False
    cut_in: bool = False
    cut_out: bool = False
    latency_ms: float = 0.0
    loss_percent: int = 0
    rate_kbit: int = 0


def ip(commands: Iterable[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def make_bridges() -> None:
    ip(
        [
            "link set lo up",
            *(f"link add {bridge} type bridge" for bridge in (FRONT, INNER)),
            f"addr add {LAB_ADDRESS}/{PREFIX_BITS} dev {FRONT}",  # the inner one has none: only a bastion sees it
            *(f"link set {bridge} up" for bridge in (FRONT, INNER)),
        ]
    )


def near_end(host: HostSpec, index: int) -> str:
    """The lab's end of a host's link; the host's is `eth<index>`."""
    return f"{host.name}e{index}"


def connect(hosts: Iterable[tuple[HostSpec, int]]) -> None:
    """Links for hosts (with the pid that owns each network namespace), in one go."""
    commands = []
    for host, pid in hosts:
        for index, link in enumerate(host.links):
            near = near_end(host, index)
            far = f"eth{index} address {link.mac} netns {pid}"
            commands.append(f"link add {near} type veth peer name {far}")
            commands.append(f"link set {near} master {link.bridge} up")
    ip(commands)


def disconnect(host: HostSpec) -> None:
    """A dead host's links go with its namespace, but only some time later; a new boot needs the names now."""
    for index in range(len(host.links)):
        subprocess.run(["ip", "link", "del", near_end(host, index)], capture_output=True, check=False)


def apply(shape: Shape, host: HostSpec, pid: int) -> list[int]:
    """Shape freshly made links. Returns the pids of the delay lines, whose end is the end of the delay."""
    delays = []
    for index, link in enumerate(host.links):
        near = near_end(host, index)
        if shape.rate_kbit:
            _limit_rate(near, f"eth{index}", pid, shape.rate_kbit)
        if shape.loss_percent or shape.cut_in or shape.cut_out:
            _lose(near, shape)
        if shape.latency_ms:
            delays.append(_delay(near, link.bridge, shape.latency_ms))
        if shape.cut:
            ip([f"link set {near} down"])
    return delays


def straighten(host: HostSpec, pid: int) -> None:
    """Undo `apply` on living links; the delay lines have ended."""
    for index, link in enumerate(host.links):
        near = near_end(host, index)
        ip([f"link set {near} master {link.bridge} up"])
        for argv in (
            ["tc", "qdisc", "del", "dev", near, "root"],
            ["nsenter", "-t", str(pid), "-n", "tc", "qdisc", "del", "dev", f"eth{index}", "root"],
            ["nft", "delete", "table", "netdev", near],
            ["ip", "link", "del", _side_bridge(near)],
        ):
            subprocess.run(argv, capture_output=True, check=False)  # what was not applied is not there


def _limit_rate(near: str, far: str, pid: int, kbit: int) -> None:
    shaping = ["root", "tbf", "rate", f"{kbit}kbit", "burst", "32kbit", "latency", "400ms"]
    subprocess.run(["tc", "qdisc", "add", "dev", near, *shaping], check=True)
    subprocess.run(["nsenter", "-t", str(pid), "-n", "tc", "qdisc", "add", "dev", far, *shaping], check=True)


def _lose(near: str, shape: Shape) -> None:
    """What leaves the host enters the lab's end of its link."""
    ways = {"ingress": shape.cut_out, "egress": shape.cut_in}
    chains = "".join(
        f"chain {hook} {{ type filter hook {hook} device {near} priority 0; {_drop(percent)}; }}\n"
        for hook, is_cut in ways.items()
        if (percent := 100 if is_cut else shape.loss_percent)
    )
    rules = f"table netdev {near} {{\n{chains}}}\n"
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)


def _drop(percent: int) -> str:
    """For nft, which takes no test that is always true."""
    return f"numgen random mod 100 < {percent} drop" if percent < 100 else "drop"


def _side_bridge(near: str) -> str:
    return f"{near}-b"


def _delay(near: str, bridge: str, latency_ms: float) -> int:
    """Not every kernel has sch_netem: put a bridge and a delay line of two TAPs between the link and its bridge."""
    side, inner, outer = _side_bridge(near), f"{near}-i", f"{near}-o"
    taps = delay.open_taps(inner, outer)
    ip(
        [
            f"link add {side} type bridge",
            f"link set {side} up",
            f"link set {near} master {side}",
            f"link set {inner} master {side} up",
            f"link set {outer} master {bridge} up",
        ]
    )
    pid = child.fork(lambda: delay.serve(taps, latency_ms / 1000))
    for tap in taps:
        os.close(tap)
    return pid
