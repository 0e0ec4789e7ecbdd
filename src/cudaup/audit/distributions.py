"""The Python distributions of an environment or wheel: what they are called, what they own, what they compile later."""

import csv
import re
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

_NAME = re.compile(r"[-_.]+")
_DIST_INFO = re.compile(r"(?:.*/)?([^/]+)-([^-/]+)\.dist-info", re.DOTALL)

# These compile their kernels on the host when they are first called: no file of theirs can be judged beforehand.
_COMPILE_LATER = frozenset(
    {
        "cuda-tile",
        "deep-gemm",
        "flash-attn-4",
        "humming",
        "nvidia-cutlass-dsl",
        "pytorch-triton",
        "sgl-deep-gemm",
        "tilelang",
        "triton",
    }
)


class Distribution(NamedTuple):
    name: str
    version: str
    owned: Sequence[Tuple[str, str]]  # path relative to the environment or wheel, and hash as RECORD has it

    @property
    def is_compiler(self) -> bool:
        return self.name in _COMPILE_LATER

    @property
    def has_source(self) -> bool:
        return any(path.endswith(".cu") for path, _ in self.owned)


class Shared(NamedTuple):
    """Files that two distributions own: `differing` are those for which the last one installed has won."""

    owners: Tuple[str, ...]
    paths: Sequence[str]
    differing: Sequence[str]


def named(dist_info: str) -> Tuple[str, str]:
    """Name and version by the folder's own name. Two empty texts when it is none."""
    match = _DIST_INFO.fullmatch(dist_info)
    return (_NAME.sub("-", match.group(1)).lower(), match.group(2)) if match else ("", "")


def recorded(record: str, folder: str) -> Sequence[Tuple[str, str]]:
    """Paths and hashes of a RECORD whose paths are relative to `folder`. Lines that cannot be are passed over."""
    found = []
    prefix = f"{folder}/" if folder else ""
    for line in record.splitlines():
        row = next(csv.reader([line])) if '"' in line else line.split(",")
        if len(row) >= 2 and row[0]:
            found.append((_joined(prefix, row[0]), row[1]))
    return found


def shared(distributions: Iterable[Distribution]) -> Sequence[Shared]:
    """Bytecode does not count: it is made anew."""
    first: Dict[str, Tuple[str, str]] = {}
    found: Dict[Tuple[str, ...], Tuple[List[str], List[str]]] = {}
    for distribution in distributions:
        for path, digest in distribution.owned:
            owner, known = first.setdefault(path, (distribution.name, digest))
            if owner != distribution.name and not path.endswith(".pyc"):
                paths, differing = found.setdefault(tuple(sorted((owner, distribution.name))), ([], []))
                paths.append(path)
                if digest != known:
                    differing.append(path)
    return [Shared(owners, *paths) for owners, paths in sorted(found.items())]


def owners(distributions: Iterable[Distribution]) -> Dict[str, str]:
    """Path to name; of a file with two owners, to the last one."""
    return {path: distribution.name for distribution in distributions for path, _ in distribution.owned}


def _joined(prefix: str, path: str) -> str:
    """Without `..` where that leads out of the folder of libraries, as for scripts."""
    parts: List[str] = []
    for part in (prefix + path).split("/") if ".." in path else ():
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts) or prefix + path
