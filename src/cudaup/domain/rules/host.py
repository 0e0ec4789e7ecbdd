"""H: the machine itself: space, clock, architecture, init, privileges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cudaup.domain.facts import Disk, Facts
from cudaup.domain.lockfile import Wheel
from cudaup.domain.rules.finding import Finding, Rule, Severity
from cudaup.domain.stack import Stack

DEFAULT_ROOT = "/opt/cudaup"
MIB = 1024 * 1024
# A wheel lies there packed (relayed) and unpacked (uv's cache; the generation is hard links to it). Measured, unpacked
# over packed: sgl-kernel 3.1, nvcc 2.7, torch 2.1, nccl 1.2.
UNPACKED_RATIO = 3
SPARE_BYTES = 512 * MIB  # the generation's caches, the journal, the failed generation's evidence
# numpy has a file per 18 kB of wheel, torch one per 36 kB; small wheels are mostly metadata.
BYTES_PER_INODE = 16_000
INODES_PER_WHEEL = 100
SPARE_INODES = 2_000
SANE_SKEW_S = 300

NO_SPACE = Rule(
    id="H001",
    severity=Severity.BLOCKER,
    title="not enough free disk space for the new generation",
    consequence="preparing would fill the disk that the running service writes to",
    fix="free space there, for instance with `cudaup-host gc`",
)
NO_INODES = Rule(
    id="H002",
    severity=Severity.BLOCKER,
    title="not enough free inodes for the new generation",
    consequence="preparing would fail with space left, and take the running service along",
    fix="remove small files there, for instance with `cudaup-host gc`",
)
SPACE_UNKNOWN = Rule(
    id="H003",
    severity=Severity.BLOCKER,
    title="free space could not be read",
    consequence="preparing could fill the disk that the running service writes to",
    fix="see why the host program cannot read it: `cudaup-host facts`",
)
CLOCK_WRONG = Rule(
    id="H004",
    severity=Severity.BLOCKER,
    title="the host's clock is far from the controller's",
    consequence="records of host and controller cannot be put in one order, and certificates may look invalid",
    fix="set the host's clock (chrony or systemd-timesyncd), or the controller's",
)
CLOCK_NOT_SYNCED = Rule(
    id="H005",
    severity=Severity.INFO,
    title="the host's clock is not synchronised",
    consequence="it is right now and may drift; H004 blocks when it is not",
    fix="enable chrony or systemd-timesyncd",
)
WRONG_MACHINE = Rule(
    id="H006",
    severity=Severity.BLOCKER,
    title="the machine is not x86_64",
    consequence="cudaup has not been proven on other machines",
    fix="take the host out of the run",
)
NO_SYSTEMD = Rule(
    id="H007",
    severity=Severity.WARNING,
    title="the init system is not systemd",
    consequence="only hooks stop and start services, and after a reboot in mid-switch nothing puts the host back",
    fix="let it call `cudaup-host recover` when it has booted; else `cudaup rollback` puts it back",
)
NOT_ROOT = Rule(
    id="H008",
    severity=Severity.BLOCKER,
    title="the login is not root",
    consequence="nothing can be installed or switched",
    fix="log in as root, or set `ansible_become: true` in the inventory",
)
NOT_READ = Rule(
    id="H009",
    severity=Severity.INFO,
    title="some facts could not be read",
    consequence="rules that need them say so themselves",
    fix="see the evidence",
)


def needed_bytes(wheels: Iterable[Wheel]) -> int:
    return SPARE_BYTES + (1 + UNPACKED_RATIO) * sum(wheel.size for wheel in wheels)


def needed_inodes(wheels: Iterable[Wheel]) -> int:
    return SPARE_INODES + sum(INODES_PER_WHEEL + wheel.size // BYTES_PER_INODE for wheel in wheels)


def root_of(facts: Facts) -> str:
    return facts.cudaup.root if facts.cudaup else DEFAULT_ROOT


def disk_of(facts: Facts, path: str) -> Disk | None:
    """The disk entry nearest above `path`."""
    holding = [disk for disk in facts.disks if path == disk.path or path.startswith(disk.path.rstrip("/") + "/")]
    return max(holding, key=lambda disk: len(disk.path), default=None)


def check_space(facts: Facts, stack: Stack) -> Iterator[Finding]:
    """A generation that is already there needs nothing."""
    if facts.cudaup is not None and facts.cudaup.with_digest(stack.digest()):
        return
    root = root_of(facts)
    disk = disk_of(facts, root)
    if disk is None:
        yield SPACE_UNKNOWN.found(f"no disk is reported for {root}")
        return
    if disk.free_bytes < (wanted := needed_bytes(stack.wheels)):
        evidence = f"{root} ({disk.fstype}) has {disk.free_bytes // MIB} MiB free, needs {wanted // MIB} MiB"
        yield NO_SPACE.found(evidence)
    if disk.total_inodes and disk.free_inodes < (inodes := needed_inodes(stack.wheels)):
        yield NO_INODES.found(f"{root} ({disk.fstype}) has {disk.free_inodes} inodes free, needs {inodes}")


def check_clock(facts: Facts, now: float) -> Iterator[Finding]:
    skew = facts.host.time - now
    if abs(skew) > SANE_SKEW_S:
        side = "ahead of" if skew > 0 else "behind"
        yield CLOCK_WRONG.found(f"{abs(skew):.0f} s {side} the controller, allowed are {SANE_SKEW_S} s")
    if facts.host.clock_synced is False:
        yield CLOCK_NOT_SYNCED.found("the kernel reports an unsynchronised clock")


def check_machine(facts: Facts) -> Iterator[Finding]:
    host = facts.host
    if host.arch != "x86_64":
        yield WRONG_MACHINE.found(f"machine is {host.arch}")
    if host.init != "systemd":
        yield NO_SYSTEMD.found(f"init is {host.init}")
    if host.uid != 0:
        yield NOT_ROOT.found(f"user id is {host.uid}")
    if facts.problems:
        yield NOT_READ.found("; ".join(facts.problems))
