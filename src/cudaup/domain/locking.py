"""A stack resolved for one platform, and what has to be true of it before anybody installs it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field

from cudaup.domain.audit import AuditVerdict, TargetAudit
from cudaup.domain.errors import UsageError
from cudaup.domain.facts import Facts
from cudaup.domain.lockfile import Sha256, Wheel
from cudaup.domain.packages import Packages
from cudaup.domain.platforms import glibc_minor, needed_glibc, python_version, tag_ranks, wheel_tags
from cudaup.domain.stack import Stack, allows, canonical_json
from cudaup.domain.value import Value

# Held to the toolkit's minor: newer ones write PTX that its driver does not take.
_OF_THE_TOOLKIT = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-nvjitlink")
_ONE_OF = (("sgl-kernel", "sglang-kernel"), ("pytorch-triton", "triton"))  # old and new name of the same files
_FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
# The CUTLASS DSL brings a compiler for each major, in folders of their own.
_OF_ANY_MAJOR = frozenset({"nvidia-cutlass-dsl-libs-cu12", "nvidia-cutlass-dsl-libs-cu13"})
_CUDA_OF_NAME = re.compile(r"-cu(\d{2})(?:$|-)")
_CUDA_OF_LOCAL = re.compile(r"cu(\d{2})(\d+)")


NEWEST = 60  # minor number of a C library that takes every wheel


class Platform(Value):
    """Of the hosts, not of the laptop. `glibc` is the minor number of the oldest among them."""

    arch: Literal["x86_64", "aarch64"] = "x86_64"
    glibc: int = Field(ge=5, le=60)
    python: tuple[int, int]

    def __str__(self) -> str:
        return f"Python {self.python[0]}.{self.python[1]}, glibc 2.{self.glibc}, {self.arch}"


class Candidate(Wheel):
    """A wheel that a resolver chose. `others`: an index may list a file more than once, each time with another hash."""

    others: tuple[Sha256, ...] = ()


class LockedWheel(Wheel):
    """`sass`: the GPU architectures its binaries have code for; `ptx` those a driver can compile further."""

    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    cuda: tuple[int, ...] = ()


class Trial(Value):
    """One installation in a throw-away environment. `notes`: what does not quite fit, such as files with two owners.

    `needs_driver`: modules that could not be imported without the NVIDIA driver's library, so nothing is known of them.
    """

    imports: tuple[str, ...]
    needs_driver: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Lock(Value):
    """`made_from` is the digest of what was resolved: another one means that the stack changed since."""

    schema_version: Literal[1] = 1
    made_from: Sha256
    platform: Platform
    tools: dict[str, str]
    total_bytes: int
    trial: Trial | None = None
    wheels: tuple[LockedWheel, ...]


class Fault(Value):
    """Why a resolved stack cannot be locked; `fix` is what to write in the stack."""

    wanted: str
    found: str
    fix: str

    def __str__(self) -> str:
        return f"wanted {self.wanted}, found {self.found}; {self.fix}"


def made_from(stack: Stack) -> str:
    """Of everything that decides which wheels are taken."""
    asked = stack.packages.model_dump(mode="json") if stack.packages else {}
    toolkit = stack.toolkit.version if stack.toolkit else None
    made = {"packages": asked, "python": str(stack.python), "toolkit": toolkit}
    return hashlib.sha256(canonical_json(made).encode()).hexdigest()


def with_wheels(stack: Stack, lock: Lock) -> Stack:
    """The stack as if its file named them, for the Python they are for. Raise ValidationError when they do not fit."""
    named = [wheel.model_dump(include=set(Wheel.model_fields)) for wheel in lock.wheels]
    python = f"{stack.python},=={lock.platform.python[0]}.{lock.platform.python[1]}.*"
    return Stack.model_validate({**stack.model_dump(by_alias=True), "python": python, "wheels": named})


def platform_of(stack: Stack, hosts: Sequence[Facts]) -> Platform:
    """The oldest C library and the newest Python that all of them have. Raise UsageError when there is none."""
    archs = {facts.host.arch for facts in hosts}
    minors = [glibc_minor(facts.host.glibc) for facts in hosts]
    pythons = [
        {python_version(each.version) for each in facts.pythons if stack.python.has(each.version)} for facts in hosts
    ]
    common = set.intersection(*pythons) if pythons else set()
    known = [minor for minor in minors if minor is not None]
    if len(archs) != 1 or len(known) != len(hosts) or not common:
        found = "; ".join(
            f"{facts.host.hostname}: {facts.host.arch}, C library {facts.host.glibc or 'unknown'}, "
            f"Python {', '.join(python.version for python in facts.pythons) or 'none'}"
            for facts in hosts
        )
        wanted = f"hosts of one architecture with glibc and a common Python {stack.python}"
        raise UsageError("no lock fits all of these hosts", wanted=wanted, found=found, fix="lock for some of them: -l")
    return Platform.model_validate({"arch": archs.pop(), "glibc": min(known), "python": max(common)})


def require_meant(stack: Stack, platform: Platform, known: Sequence[Wheel], upgrade: Sequence[str]) -> None:
    """Raise UsageError for a Python that the stack excludes, and for packages to move that no lock holds."""
    python = f"{platform.python[0]}.{platform.python[1]}"
    if not allows(stack.python, platform.python):
        fix = "name another platform, or widen `python` in the stack"
        raise UsageError("the stack is not for this Python", wanted=str(stack.python), found=python, fix=fix)
    there = {canonicalize_name(wheel.name) for wheel in known}
    missing = [name for name in upgrade if canonicalize_name(name) not in there]
    if missing:
        found = ", ".join(sorted(there)) or "no lock yet"
        raise UsageError(f"cannot upgrade {', '.join(missing)}", wanted="packages of the lock", found=found)


def best_wheel(candidates: Sequence[Candidate], platform: Platform) -> Candidate:
    """As an installer on that host would choose: by the order of its tags."""
    ranks = tag_ranks(platform.python, platform.glibc, platform.arch)

    def rank(candidate: Candidate) -> int:
        return min((ranks[tag] for tag in wheel_tags(candidate) if tag in ranks), default=len(ranks))

    return min(candidates, key=lambda candidate: (rank(candidate), candidate.filename))


def faults_of_names(stack: Stack, chosen: Sequence[Candidate]) -> tuple[Fault, ...]:
    """What versions and names tell, before anything is fetched."""
    by_name: dict[str, Candidate] = {canonicalize_name(each.name): each for each in chosen}
    return (
        *_other_major(stack, chosen),
        *_torch_of_another_build(stack, by_name),
        *_off_the_toolkit(stack, by_name),
        *_flashinfer_apart(by_name),
        *_two_names(by_name),
    )


def walked_back(
    packages: Packages, chosen: Sequence[Candidate], newest: Sequence[Candidate], platform: Platform
) -> tuple[Fault, ...]:
    """`newest` is what a newer C library would get. An older version is taken in silence where only it fits."""
    required = frozenset(packages.names)
    there: dict[str, Candidate] = {canonicalize_name(each.name): each for each in newest}
    older = [
        (each, there[name])
        for each in chosen
        if (name := canonicalize_name(each.name)) in required
        and name in there
        and Version(each.version) < Version(there[name].version)
    ]
    if not older:
        return ()
    told = ", ".join(f"{old.name} {old.version} instead of {new.version}" for old, new in older)
    forcing = [
        f"{each.name} {each.version} needs glibc 2.{needed}"
        for each in newest
        if (needed := needed_glibc(each, platform.arch)) is not None and needed > platform.glibc
    ]
    why = ", ".join(forcing) or "newer versions have no wheel for this platform"
    fix = "upgrade the hosts' distribution, or pin the older version in `packages.require` if it is what you want"
    return (Fault(wanted=f"what a newer C library gets (hosts: {platform})", found=f"{told}: {why}", fix=fix),)


def faults_of_content(stack: Stack, wheels: Sequence[LockedWheel]) -> tuple[Fault, ...]:
    """What the binaries tell."""
    wanted = _major(stack)
    faults = [
        Fault(
            wanted=f"libraries of CUDA {wanted} everywhere",
            found=f"{wheel.name} {wheel.version} asks the loader for CUDA {', '.join(map(str, wheel.cuda))}",
            fix=f"choose a build of {wheel.name} for CUDA {wanted}",
        )
        for wheel in wheels
        if wanted and wheel.cuda and wanted not in wheel.cuda and canonicalize_name(wheel.name) not in _OF_ANY_MAJOR
    ]
    torch = next((wheel for wheel in wheels if canonicalize_name(wheel.name) == "torch"), None)
    if torch and not torch.sass:
        fix = "name the index of the CUDA build for torch in `packages.indexes`"
        faults.append(Fault(wanted="a torch with GPU code", found=f"{torch.filename}: a CPU build", fix=fix))
    return tuple(faults)


def in_order(archs: Iterable[str]) -> tuple[str, ...]:
    """Each once, 90 before 100."""
    return tuple(sorted(set(archs), key=lambda arch: (len(arch.partition(" ")[0].rstrip("af")), arch)))


def useless_on(target: TargetAudit) -> bool:
    """It has GPU code, none that this GPU could run, and nothing that is compiled on the host later."""
    if any(each.verdict is AuditVerdict.JIT_SOURCE for each in target.distributions):
        return False
    judged = [file.verdict for file in target.files if file.verdict is not AuditVerdict.NO_GPU_CODE]
    return bool(judged) and all(verdict is AuditVerdict.DEAD for verdict in judged)


def changes(before: Sequence[Wheel], after: Sequence[Wheel]) -> tuple[str, ...]:
    """What moved from one lock to the next, one line a package."""
    old: dict[str, Wheel] = {canonicalize_name(each.name): each for each in before}
    new: dict[str, Wheel] = {canonicalize_name(each.name): each for each in after}
    return tuple(_changes(old, new))


def _changes(old: Mapping[str, Wheel], new: Mapping[str, Wheel]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name not in old:
            yield f"+ {name} {new[name].version}"
        elif name not in new:
            yield f"- {name} {old[name].version}"
        elif old[name].version != new[name].version:
            yield f"  {name} {old[name].version} -> {new[name].version}"
        elif old[name].sha256 != new[name].sha256:
            yield f"  {name} {new[name].version}: another file ({new[name].filename})"


def _major(stack: Stack) -> int | None:
    return int(stack.toolkit.version.partition(".")[0]) if stack.toolkit else None


def _other_major(stack: Stack, chosen: Sequence[Candidate]) -> Iterator[Fault]:
    wanted = _major(stack)
    other = [each for each in chosen if wanted and _cuda_major_of(each) not in {None, wanted}]
    if other:
        found = ", ".join(f"{each.name} {each.version}" for each in other)
        fix = "pin versions for the one major in `packages.require`, or name their index"
        yield Fault(wanted=f"packages of CUDA {wanted} only", found=found, fix=fix)


def _cuda_major_of(wheel: Candidate) -> int | None:
    """By its name's ending or its version's local part: `nvidia-nccl-cu13`, `2.11.0+cu130`."""
    name = canonicalize_name(wheel.name)
    if name in _OF_ANY_MAJOR:
        return None
    local = _CUDA_OF_LOCAL.match(Version(wheel.version).local or "")
    named = _CUDA_OF_NAME.search(name)
    found = local or named
    return int(found[1]) if found else None


def _torch_of_another_build(stack: Stack, by_name: Mapping[str, Candidate]) -> Iterator[Fault]:
    torch = by_name.get("torch")
    index = stack.packages.index_of("torch") if stack.packages else None
    if torch is None or index is None or stack.toolkit is None:
        return
    wanted = "cu" + stack.toolkit.version.replace(".", "")
    if (Version(torch.version).local or "") != wanted:
        fix = f"see whether {index} has the {wanted} build of it"
        yield Fault(wanted=f"a {wanted} build of torch", found=f"torch {torch.version}", fix=fix)


def _off_the_toolkit(stack: Stack, by_name: Mapping[str, Candidate]) -> Iterator[Fault]:
    if stack.toolkit is None:
        return
    version = stack.toolkit.version
    for name in _OF_THE_TOOLKIT:
        found = by_name.get(name)
        if found and not f"{found.version}.".startswith(f"{version}."):
            fix = f"add `{name}=={version}.*` to `packages.constrain`"
            yield Fault(wanted=f"{name} of toolkit {version}", found=found.version, fix=fix)


def _flashinfer_apart(by_name: Mapping[str, Candidate]) -> Iterator[Fault]:
    found = [by_name[name] for name in _FLASHINFER if name in by_name]
    if len({Version(each.version).base_version for each in found}) > 1:
        told = ", ".join(f"{each.name} {each.version}" for each in found)
        fix = "pin them to one version, or leave out those that have none"
        yield Fault(wanted="one version of all FlashInfer packages", found=told, fix=fix)


def _two_names(by_name: Mapping[str, Candidate]) -> Iterator[Fault]:
    for pair in _ONE_OF:
        if all(name in by_name for name in pair):
            fix = f"require one of them; {pair[1]} is today's name"
            yield Fault(wanted=f"{pair[0]} or {pair[1]}", found="both: they own the same files", fix=fix)
