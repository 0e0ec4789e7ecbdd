"""From what a stack asks for to exact wheels that go together: resolved, checked, fetched, audited and tried once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from cudaup.app import gate
from cudaup.app.ports import Auditor, Resolution, Resolver, TrialRoom, WheelStore
from cudaup.domain.audit import ABI, Asked, TargetAudit, report_of
from cudaup.domain.errors import CudaupError, LockFailed
from cudaup.domain.lockfile import Wheel
from cudaup.domain.locking import (
    NEWEST,
    Candidate,
    Fault,
    Lock,
    LockedWheel,
    Platform,
    Trial,
    changes,
    faults_of_content,
    faults_of_names,
    in_order,
    made_from,
    require_meant,
    useless_on,
    walked_back,
)
from cudaup.domain.packages import Packages
from cudaup.domain.stack import Stack

_ANY_GPU = "120"  # which one does not matter where nothing is required of it: archs are listed all the same


@dataclass(frozen=True, kw_only=True)
class Locking:
    """What a lock needs of the outside. Without a `trial` nothing is installed, and the lock says so."""

    resolver: Resolver
    wheels: WheelStore
    auditor: Auditor
    trial: TrialRoom | None
    tell: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Locked:
    """`changes` and `notes` are for people; `paths` are the wheels on this machine."""

    lock: Lock
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    paths: tuple[Path, ...]
    exported: str


def lock_stack(
    stack: Stack, packages: Packages, platform: Platform, old: Lock | None, doing: Locking, upgrade: Sequence[str]
) -> Locked:
    """Raise UsageError for what was not meant, LockFailed with every fault, AuditFailed for the stack's gate."""
    known = old.wheels if old else ()
    require_meant(stack, platform, known, upgrade)
    chosen = _resolve(stack, packages, platform, known, doing, upgrade)
    fetched = _fetch(chosen.wheels, doing)
    targets = [doing.auditor.audit(str(path), _asked(stack)) for path in fetched.values()]
    wheels = tuple(_locked(wheel, target) for wheel, target in zip(fetched, targets, strict=True))
    _raise(faults_of_content(stack, wheels))
    gate.refuse(report_of(targets, stack.audit.require).missed, stack)
    paths = tuple(fetched.values())
    trial = doing.trial.try_out(paths, platform, stack.imports, partial(_look, stack, doing)) if doing.trial else None
    lock = Lock(
        made_from=made_from(stack),
        platform=platform,
        tools={"uv": doing.resolver.version},
        total_bytes=sum(wheel.size for wheel in wheels),
        trial=trial,
        wheels=wheels,
    )
    notes = (*_useless(stack, targets), *_told(trial))
    return Locked(lock=lock, changes=changes(known, wheels), notes=notes, paths=paths, exported=chosen.exported)


def _resolve(
    stack: Stack,
    packages: Packages,
    platform: Platform,
    known: Sequence[Wheel],
    doing: Locking,
    upgrade: Sequence[str],
) -> Resolution:
    """Asked twice: what a newer C library would get shows whether an old one makes the resolver walk back."""
    doing.tell(f"resolving for {platform}")
    chosen = doing.resolver.resolve(packages, platform, preferred=known, upgrade=upgrade)
    newer = platform.model_copy(update={"glibc": NEWEST})
    newest = doing.resolver.resolve(packages, newer, preferred=known, upgrade=upgrade)
    _raise((*walked_back(packages, chosen.wheels, newest.wheels, platform), *faults_of_names(stack, chosen.wheels)))
    return chosen


def _fetch(candidates: Sequence[Candidate], doing: Locking) -> dict[Candidate, Path]:
    """By the wheel as it was found: of several hashes that an index lists for one file, the one that it gives."""
    certain = [each for each in candidates if not each.others]
    paths = doing.wheels.fetch(certain, doing.tell)
    return {found: path for each in candidates for found, path in [_found(each, paths, doing)]}


def _found(candidate: Candidate, paths: Mapping[str, Path], doing: Locking) -> tuple[Candidate, Path]:
    if not candidate.others:
        return candidate, paths[candidate.sha256]
    failures = []
    for sha256 in (candidate.sha256, *candidate.others):
        wheel = candidate.model_copy(update={"sha256": sha256, "others": ()})
        try:
            return wheel, doing.wheels.fetch([wheel], doing.tell)[sha256]
        except CudaupError as error:
            failures.append(error)
    raise failures[0]


def _locked(wheel: Candidate, target: TargetAudit) -> LockedWheel:
    return LockedWheel(
        **wheel.model_dump(exclude={"others"}),
        sass=in_order(arch for file in target.files for arch in file.sass_archs),
        ptx=in_order(arch for file in target.files for arch in file.ptx_archs),
        cuda=tuple(target.cuda_majors),
    )


def _look(stack: Stack, doing: Locking, installed: str) -> Iterator[str]:
    """Of wheels that are installed together more can be said: whether they fit this torch, and each other."""
    target = doing.auditor.audit(installed, _asked(stack))
    gate.refuse(report_of([target], stack.audit.require).missed, stack)
    unfit = [path for fault in target.faults if fault.kind == ABI for path in fault.paths]
    for package, paths in groupby(sorted(unfit), lambda path: path.partition("/")[0]):
        yield f"{package}: {len(list(paths))} of its files were built for another torch"
    yield from (fault.text for fault in target.faults if fault.kind != ABI)


def _told(trial: Trial | None) -> Iterator[str]:
    if trial is None:
        yield "not tried: nothing was installed"
        return
    yield from trial.notes
    for name in trial.needs_driver:
        yield f"{name}: not imported here, it needs the NVIDIA driver's library; the smoke `imports` does on the host"


def _asked(stack: Stack) -> Asked:
    return Asked(sm=stack.gpu_sm or _ANY_GPU)


def _useless(stack: Stack, targets: Sequence[TargetAudit]) -> Iterator[str]:
    for target in targets:
        if stack.gpu_sm and useless_on(target):
            name = target.target.rpartition("/")[2]
            yield f"{name}: none of its GPU code runs on sm_{stack.gpu_sm}; leave it out if nothing needs it"


def _raise(faults: Sequence[Fault]) -> None:
    if faults:
        raise LockFailed(
            "what this stack resolves to does not go together:\n" + "\n".join(f"- {each}" for each in faults)
        )
