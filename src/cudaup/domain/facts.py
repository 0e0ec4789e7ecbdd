"""What is true on a host, as the host program read it in one round trip. The object is in docs/host-program.md."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field

from cudaup.domain.value import Observed, Value
from cudaup.domain.versions import DriverVersion


class Verdict(StrEnum):
    """What one smoke case found. Only `pass` is a pass: a fallback or a kernel that never ran is not."""

    PASS = "pass"  # noqa: S105  # a verdict, not a password
    FAIL = "fail"
    NOOP = "noop"
    SUBSTITUTED = "substituted"
    WAIVED = "waived"
    ERROR = "error"

    @property
    def may_be_accepted(self) -> bool:
        """Whether a stack may accept it: the others are evidence that the new stack does not work."""
        return self in {Verdict.PASS, Verdict.WAIVED}


class SmokeCase(Observed):
    case: str
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0
    evidence: dict[str, Any] = Field(default_factory=dict)
    simulated: bool = False


class GenerationSummary(Observed):
    """`confirmed`: an operator's run saw it work; `proven`: when its smoke last passed."""

    id: str
    digest: str
    kind: str
    name: str
    created: float
    confirmed: bool
    proven: float | None = None
    packages: dict[str, str] = Field(default_factory=dict)

    @property
    def number(self) -> int:
        return int(self.id.partition("-")[0])


class LeaseState(StrEnum):
    FREE = "free"
    HELD = "held"
    QUARANTINED = "quarantined"


class Lease(Observed):
    state: LeaseState
    epoch: int
    holder: str | None = None
    run: str | None = None
    reason: str | None = None
    since: float | None = None
    ttl_s: float | None = None
    remaining_s: float | None = None
    expired: bool = False

    @property
    def is_held(self) -> bool:
        return self.state is LeaseState.HELD and not self.expired


class Transit(Observed):
    """There exactly while a host is between two generations. `abandoned`: its timer should have put it back."""

    model_config = ConfigDict(populate_by_name=True)

    from_: str | None = Field(alias="from")
    to: str
    epoch: int
    phase: str
    units: tuple[str, ...] = ()
    abandoned: bool = False
    timer_alive: bool = True


class Adopted(Observed):
    path: str
    aside: str
    generation: str


class Service(Observed):
    """`stays_down`: somebody wants it so (disabled, masked), or its turn comes later (a job, or behind a socket)."""

    unit: str
    active: bool | str
    pid: int | None = None
    fragment_sha256: str | None = None
    stays_down: bool = False

    @property
    def is_running(self) -> bool:
        return self.active in {True, "active", "reloading"}


class LastEnd(Observed):
    """How the last transit ended: `confirmed`, or back where it came from: `proven`, `unproven`, `failed`."""

    epoch: int
    end: str


class HostStatus(Observed):
    """What cudaup itself has on the host; `busy` names the change that is under way right now.

    `damage` says in words what is not as cudaup left it.
    """

    root: str
    current: GenerationSummary | None = None
    previous: GenerationSummary | None = None
    generations: tuple[GenerationSummary, ...] = ()
    transit: Transit | None = None
    lease: Lease
    adopted: tuple[Adopted, ...] = ()
    services: tuple[Service, ...] = ()
    last_end: LastEnd | None = None
    damage: tuple[str, ...] = ()
    busy: str | None = None
    installed_sha256: str | None = None

    def with_digest(self, digest: str) -> GenerationSummary | None:
        return next((known for known in self.generations if known.digest == digest), None)


class OperatingSystem(Observed):
    id: str
    version_id: str = ""
    pretty: str = ""


class Machine(Observed):
    """`time` is the host's own clock; `glibc` is null where the C library is another one."""

    hostname: str
    machine_id: str | None = None
    boot_id: str
    kernel: str
    arch: str
    os: OperatingSystem
    glibc: str | None = None
    time: float
    clock_synced: bool | None = None
    init: str
    uid: int


class Program(Observed):
    """A Python, compiler or toolkit that lies at `path`."""

    path: str
    version: str


class Driver(Observed):
    loaded: DriverVersion | None = None
    on_disk: DriverVersion | None = None
    library: DriverVersion | None = None
    open_module: bool | None = None


class Gpu(Observed):
    index: int
    uuid: str
    name: str
    compute_cap: str
    memory_mib: int | None = None  # GPUs that share the host's memory have none of their own
    bus_id: str


class GpuUser(Observed):
    pid: int
    name: str
    memory_mib: int | None = None


class Disk(Observed):
    """Free space where `path` lies; some filesystems make inodes as they need them and say 0 in all."""

    path: str
    mount: str
    fstype: str
    free_bytes: int
    total_bytes: int
    free_inodes: int
    total_inodes: int


class EnvironmentState(StrEnum):
    ABSENT = "absent"
    DIRECTORY = "directory"
    LINK = "link"
    ADOPTED = "adopted"
    OTHER = "other"


class Environment(Observed):
    path: str
    state: EnvironmentState
    real: str | None = None
    python: str | None = None
    kind: str = "none"
    packages: dict[str, str] = Field(default_factory=dict)
    digest: str | None = None
    unfit: str | None = None  # why it cannot be adopted


class Facts(Observed):
    """`simulated` names the parts that a lab made up; `problems` what could not be read."""

    host: Machine
    pythons: tuple[Program, ...]
    driver: Driver
    gpus: tuple[Gpu, ...]
    gpu_users: tuple[GpuUser, ...]
    compilers: tuple[Program, ...]
    toolkits: tuple[Program, ...]
    disks: tuple[Disk, ...]
    environment: Environment | None = None
    services: tuple[Service, ...]
    cudaup: HostStatus | None = None
    simulated: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def current(self) -> GenerationSummary | None:
        return self.cudaup.current if self.cudaup else None

    @property
    def services_down(self) -> tuple[Service, ...]:
        """Those that should run. What is down on purpose is left so."""
        return tuple(service for service in self.services if not service.is_running and not service.stays_down)

    def is_on(self, digest: str) -> bool:
        """Whether the host runs that generation, confirmed, and nothing is unsettled."""
        status = self.cudaup
        if status is None or status.current is None:
            return False
        settled = status.transit is None and status.lease.state is not LeaseState.QUARANTINED
        return settled and status.current.digest == digest and status.current.confirmed


class Unreachable(Value):
    """Stands where a host's facts would be."""

    reason: str


def is_settled(observed: Facts | Unreachable) -> bool:
    """Whether the host answers, runs its services on one generation, with nothing pending and no quarantine."""
    if isinstance(observed, Unreachable):
        return False
    status = observed.cudaup
    if observed.services_down:
        return False
    if status is None:
        return True
    return status.transit is None and status.lease.state is not LeaseState.QUARANTINED and not status.damage
