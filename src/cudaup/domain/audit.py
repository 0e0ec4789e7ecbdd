"""What an audit found, read from binaries that nobody ran: code is there, or it is not. Never that it works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Literal

from cudaup.domain.value import Observed, Value

ABI = "abi"
_BREAKING = frozenset({ABI, "cuda-major"})  # faults that keep a file from being loaded at all


class AuditVerdict(StrEnum):
    """Worst first: the order in which people are told."""

    UNREADABLE = "unreadable"
    DEAD = "dead"
    JIT = "jit"
    PARTIAL = "partial"
    FULL = "full"
    JIT_SOURCE = "jit-source"
    NO_GPU_CODE = "no-gpu-code"

    @property
    def rank(self) -> int:
        return list(AuditVerdict).index(self)

    @property
    def has_code(self) -> bool:
        return self in {AuditVerdict.JIT, AuditVerdict.PARTIAL, AuditVerdict.FULL}


class Asked(Value):
    """As on the command line. `is_quick` and `scan_all` are the two ways from the usual depth.

    `only` are patterns as of `--require`: nothing else of a wheel is read. Empty for everything.
    """

    sm: str | None = None
    driver: str | None = None
    cuda: str | None = None
    is_quick: bool = False
    scan_all: bool = False
    only: tuple[str, ...] = ()


class GpuAsked(Value):
    """The GPU that the audit is for. Without `cuda` every PTX counts as known to the driver."""

    sm: int
    cuda: str | None = None
    driver: str | None = None
    ptx_isa: str | None = None


class FileAudit(Observed):
    """One binary; docs/audit.md has the meaning of each field."""

    path: str
    verdict: AuditVerdict
    size: int = 0
    containers: int = 0
    sass: int = 0
    jit: int = 0
    stubs: int = 0
    sass_archs: tuple[str, ...] = ()
    ptx_archs: tuple[str, ...] = ()
    entries: dict[str, int] | None = None
    packing: dict[str, int] | None = None
    apart: int = 0
    outside: int = 0
    loose: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    cuda_majors: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    same_as: str | None = None
    is_complete: bool = True
    cost: str = ""


class LoaderRoute(Observed):
    """The file that a package's own loader takes on this GPU."""

    package: str
    picks: str | None
    others: tuple[str, ...] = ()
    why: str = ""


class Fault(Observed):
    """What does not fit together, whatever the architecture: `abi`, `cuda-major`, `two-cuda-majors`, `two-owners`."""

    kind: str
    text: str
    paths: tuple[str, ...] = ()


class DistributionAudit(Observed):
    """A distribution that no file speaks for: its kernels are compiled at run time."""

    distribution: str
    verdict: AuditVerdict


class TargetAudit(Observed):
    """One target; `error` is why there is nothing else."""

    target: str
    kind: str
    gpu: GpuAsked
    files: tuple[FileAudit, ...] = ()
    routes: tuple[LoaderRoute, ...] = ()
    faults: tuple[Fault, ...] = ()
    distributions: tuple[DistributionAudit, ...] = ()
    error: str | None = None

    @property
    def worst_first(self) -> Sequence[FileAudit]:
        return sorted(self.files, key=lambda file: (file.verdict.rank, file.path))

    @property
    def cuda_majors(self) -> Sequence[int]:
        """That its files ask the loader for."""
        return sorted({major for file in self.files for major in file.cuda_majors})

    @property
    def passed_over(self) -> frozenset[str]:
        """Files that a loader does not take on this GPU: what they lack costs nothing."""
        return frozenset(other for route in self.routes if route.picks for other in route.others)


class Missed(Value):
    """A required file that this GPU cannot use, and why."""

    required: str
    target: str
    path: str | None
    reason: str

    @property
    def told(self) -> str:
        return f"{self.path or self.required}: {self.reason}"


class AuditReport(Value):
    schema_version: Literal[1] = 1
    kind: Literal["audit"] = "audit"
    targets: tuple[TargetAudit, ...]
    required: tuple[str, ...] = ()
    missed: tuple[Missed, ...] = ()

    @property
    def exit_code(self) -> int:
        """3 when a required file is of no use, 1 when a target could not be read, else 0."""
        if self.missed:
            return 3
        return 1 if any(target.error is not None for target in self.targets) else 0


def report_of(targets: Sequence[TargetAudit], required: Sequence[str]) -> AuditReport:
    """Each required file is wanted once in all targets together; on hosts, on each of them."""
    by_host = [[target] for target in targets if target.kind == "generation"]
    together = [target for target in targets if target.kind != "generation"]
    groups = [*by_host, *([together] if together else [])]
    missed = [miss for group in groups for pattern in required for miss in _missed(pattern, group)]
    return AuditReport(targets=tuple(targets), required=tuple(required), missed=tuple(missed))


def _missed(pattern: str, targets: Sequence[TargetAudit]) -> Iterator[Missed]:
    found = [(target, file) for target in targets for file in target.files if is_named(file.path, pattern)]
    taken = [(target, file) for target, file in found if file.path not in target.passed_over]
    if not taken:
        names = ", ".join(target.target for target in targets)
        yield Missed(required=pattern, target=names, path=None, reason="no such file")
    for target, file in taken:
        reason = _why_useless(target, file)
        if reason:
            yield Missed(required=pattern, target=target.target, path=file.path, reason=reason)


def _why_useless(target: TargetAudit, file: FileAudit) -> str:
    if not file.verdict.has_code:
        return f"{file.verdict}: {file.notes[0]}" if file.notes else str(file.verdict)
    faults = (fault for fault in target.faults if fault.kind in _BREAKING and file.path in fault.paths)
    return next((f"{fault.kind}: {fault.text}" for fault in faults), "")


def is_named(path: str, pattern: str) -> bool:
    """By its path or the end of it, by its name, or by its name without endings; `*` and `?` as in a shell."""
    name = path.rpartition("/")[2]
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}") or name.partition(".")[0] == pattern


def target_of(target: str, gpu: GpuAsked, found: dict[str, Any]) -> TargetAudit:
    """Raises pydantic's ValidationError for what no auditor says."""
    return TargetAudit.model_validate({**found, "target": target, "gpu": gpu})
