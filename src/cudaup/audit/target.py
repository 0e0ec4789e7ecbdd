"""A whole target: its files, what its loaders pick, and what does not fit together."""

import os
from typing import Any, Dict, List, NamedTuple, Sequence

from cudaup.audit import abi, tree, verdict
from cudaup.audit.costs import cost_of
from cudaup.audit.device import Device
from cudaup.audit.distributions import Distribution, Shared, owners, shared
from cudaup.audit.file import FileAudit, audit_path
from cudaup.audit.route import Route, sgl_kernel_routes
from cudaup.audit.wheel import Wheel

ABI, CUDA_MAJOR, TWO_MAJORS, TWO_OWNERS = "abi", "cuda-major", "two-cuda-majors", "two-owners"
_SHOWN = 3


class Fault(NamedTuple):
    """Something other than the architecture that is wrong. `paths` are the files it is about."""

    kind: str
    text: str
    paths: Sequence[str]


class Later(NamedTuple):
    """A distribution whose kernels are compiled at run time, or that has none: what `verdict` says."""

    distribution: str
    verdict: str


class Target(NamedTuple):
    kind: str
    files: Sequence[FileAudit]
    routes: Sequence[Route] = ()
    faults: Sequence[Fault] = ()
    distributions: Sequence[Later] = ()

    def as_json(self) -> Dict[str, Any]:
        """What `domain/audit.py` reads. Each dead file says what that costs."""
        files = [{**f._asdict(), "cost": cost_of(f.path) if f.verdict == verdict.DEAD else ""} for f in self.files]
        return {
            "kind": self.kind,
            "files": files,
            "routes": [route._asdict() for route in self.routes],
            "faults": [fault._asdict() for fault in self.faults],
            "distributions": [later._asdict() for later in self.distributions],
        }


def audit_file(path: str, device: Device) -> Target:
    return Target("file", [audit_path(path, path, device)])


def of_wheel(wheel: Wheel, device: Device) -> Target:
    later = _later(wheel.distributions, wheel.files)
    return Target("wheel", wheel.files, sgl_kernel_routes(wheel.paths, device), (), later)


def audit_environment(root: str, device: Device, *, scan_all: bool = False) -> Target:
    """Raises OSError when the folder itself cannot be read."""
    found = tree.walk(root)
    files = [audit_path(os.path.join(root, path), path, device, scan_all=scan_all) for path in found.binaries]
    files += [FileAudit(path, verdict.UNREADABLE, notes=(text,)) for path, text in found.problems]
    routes = sgl_kernel_routes(found.files, device)
    later = _later(found.distributions, files)
    return Target("environment", files, routes, _faults(root, files, found.distributions), later)


def _later(distributions: Sequence[Distribution], files: Sequence[FileAudit]) -> Sequence[Later]:
    """Those that are known to compile their kernels at run time, or ship sources and nothing that runs."""
    owner = owners(distributions)
    running = {owner.get(file.path) for file in files if file.sass or file.jit}
    later = (one for one in distributions if one.is_compiler or (one.has_source and one.name not in running))
    return [Later(one.name, verdict.JIT_SOURCE) for one in later]


def _faults(root: str, files: Sequence[FileAudit], distributions: Sequence[Distribution]) -> Sequence[Fault]:
    return [
        *_unresolved(root, files),
        *_other_major(files),
        *_two_majors(distributions),
        *(_two_owners(one) for one in shared(distributions)),
    ]


def _unresolved(root: str, files: Sequence[FileAudit]) -> List[Fault]:
    needs = {file.path: file.needs for file in files if file.verdict != verdict.UNREADABLE}
    return [
        Fault(ABI, f"torch here does not export {_listed(one.symbols)}: built for another torch", [one.path])
        for one in abi.unresolved(root, needs)
    ]


def _other_major(files: Sequence[FileAudit]) -> List[Fault]:
    """Against torch's own CUDA; nothing where there is no torch."""
    torch = [file for file in files if abi.is_torch_library(file.path)]
    wanted = {major for file in torch for major in file.cuda_majors}
    by_major: Dict[int, List[str]] = {}
    for file in files:
        for major in file.cuda_majors:
            if wanted and major not in wanted:
                by_major.setdefault(major, []).append(file.path)
    own = " and ".join(map(str, sorted(wanted)))
    return [
        Fault(CUDA_MAJOR, f"needs libraries of CUDA {major}, torch here is of CUDA {own}: {_listed(paths)}", paths)
        for major, paths in sorted(by_major.items())
    ]


def _two_majors(distributions: Sequence[Distribution]) -> List[Fault]:
    of = {major: [one.name for one in distributions if one.name.endswith(f"-cu{major}")] for major in range(11, 20)}
    present = {major: names for major, names in of.items() if names}
    if len(present) < 2:
        return []
    told = "; ".join(f"CUDA {major}: {_listed(names)}" for major, names in present.items())
    twice = {names.rpartition("-")[0] for names in present[min(present)]}
    both = sorted(base for base in twice if any(f"{base}-cu{major}" in of[major] for major in list(present)[1:]))
    beside = f"; of both: {', '.join(both)}" if both else ""
    return [Fault(TWO_MAJORS, told + beside, [name for names in present.values() for name in names])]


def _two_owners(one: Shared) -> Fault:
    who = " and ".join(one.owners)
    if one.differing:
        text = f"{who} own {len(one.paths)} files in common; installed last wins: {_listed(one.differing)}"
    else:
        text = f"{who} own {len(one.paths)} files in common, alike; removing one breaks the other: {_listed(one.paths)}"
    return Fault(TWO_OWNERS, text, one.differing or one.paths)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
