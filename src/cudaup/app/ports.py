"""What the use cases need from the outside, as protocols of few verbs. Adapters satisfy them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from cudaup.domain.audit import Asked, GpuAsked, TargetAudit
from cudaup.domain.events import Event
from cudaup.domain.inventory import Host
from cudaup.domain.lockfile import Wheel
from cudaup.domain.locking import Candidate, Platform, Trial
from cudaup.domain.packages import Packages

Json = Mapping[str, Any]
OnHostEvent = Callable[[Json], None]


@dataclass(frozen=True, kw_only=True)
class HostReply:
    """What a verb found or did. `failure`: what went wrong, of an answer that was caught as HostFailed."""

    data: Json
    failure: str = ""


class HostLink(Protocol):
    """One host, over ssh or locally: the same verbs either way."""

    def call(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        data: Iterable[bytes] = (),
        on_event: OnHostEvent | None = None,
    ) -> HostReply:
        """Run one verb of the host program.

        Raises HostRefused (nothing changed), HostFailed (its state says what became), HostProgramBroken,
        ConnectionFailed and its kinds. A broken connection says nothing about whether the verb went on: read the
        host's state before trying again.
        """
        ...

    def close(self) -> None:
        """Drop the transport; the next call makes a new one (that is how a confirmation proves the way in)."""
        ...


class Links(Protocol):
    """All hosts of a run."""

    def link(self, host: Host) -> HostLink: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class PlayResult:
    """What one play did to one host. `is_unreachable`: Ansible could not get there; nothing is known of the host."""

    host: str
    ok: bool
    changed: bool
    text: str
    data: Json
    is_unreachable: bool = False


class Plays(Protocol):
    """Ansible, one play for one set of hosts."""

    def run(
        self,
        playbook: str,
        hosts: Sequence[Host],
        variables: Mapping[str, Json],
        *,
        timeout_s: float,
        on_event: Callable[[Event], None],
    ) -> Mapping[str, PlayResult]:
        """Run `playbooks/<playbook>.yml` against exactly `hosts`; `variables` are per host name.

        One host's failure is that host's result, never an exception.
        """
        ...


class WheelStore(Protocol):
    """Wheels on the controller, one copy each, checked against their hash."""

    def fetch(self, wheels: Sequence[Wheel], on_event: Callable[[str], None]) -> Mapping[str, Path]:
        """Paths by sha256. Raises CudaupError naming the wheel when it cannot be had or its hash differs."""
        ...

    def fetched(self, wheels: Sequence[Wheel]) -> Mapping[str, Path]:
        """Paths by sha256 of those that are here; their content is not hashed again."""
        ...

    def open(self, path: Path) -> BinaryIO: ...


class RunJournal(Protocol):
    """The controller's journal of one run: intent fsynced before each effect."""

    def append(self, record: Json) -> None: ...

    def read(self) -> Sequence[Json]: ...


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """Exactly one wheel for each package; `exported` is the same as pylock.toml (PEP 751)."""

    wheels: Sequence[Candidate]
    exported: str


class Resolver(Protocol):
    @property
    def version(self) -> str: ...

    def resolve(
        self, packages: Packages, platform: Platform, *, preferred: Sequence[Wheel] = (), upgrade: Sequence[str] = ()
    ) -> Resolution:
        """Versions of `preferred` stay where they can, but for those of `upgrade`. Raise LockFailed."""
        ...


Look = Callable[[str], Iterable[str]]  # at a folder of installed packages; what does not quite fit


class TrialRoom(Protocol):
    def try_out(self, wheels: Sequence[Path], platform: Platform, imports: Sequence[str], look: Look) -> Trial:
        """Install in a throw-away environment, `look` at it, and import. Raise LockFailed for what does not work."""
        ...


class Auditor(Protocol):
    """Reads binaries."""

    def gpu(self, asked: Asked) -> GpuAsked:
        """Raise UsageError for an architecture, driver or CUDA version that is none."""
        ...

    def audit(self, target: str, asked: Asked) -> TargetAudit:
        """A wheel, its URL, an environment or a file. Raise UsageError when it is none of them or cannot be read."""
        ...
