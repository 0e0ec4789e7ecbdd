"""Whether a library fits the environment's torch: CUDA major and C++ symbols.

Neither is an architecture fault, though the failure often reads like one.
"""

import os
import re
from contextlib import closing
from typing import Callable, Dict, List, NamedTuple, Sequence, Set

from cudaup.audit import elf
from cudaup.audit.symbols import Exports
from cudaup.audit.window import File

_CUDA_LIBRARY = re.compile(r"lib(?:cudart|nvrtc|cublas|cublasLt)\.so\.(\d+)(?:\.\d+)*")
_TORCH_LIBRARY = re.compile(r"lib(?:torch|c10)[A-Za-z0-9_]*\.so")
# Mangled names of c10, at, torch and caffe2: a plain, const or nested name, or the table of such a type.
_TORCH_SYMBOL = re.compile(rb"_Z(?:T[VISTthv]|GV)?(?:N[KVRO]*)?(?:3c10|2at|5torch|6caffe2)(?=[0-9CDL]|[a-z]{2})")


_Answer = Callable[[bytes], bool]


class Unresolved(NamedTuple):
    path: str
    symbols: Sequence[str]


def cuda_majors(needs: Sequence[str]) -> Sequence[int]:
    """Of the CUDA runtime, nvrtc and cuBLAS that a file asks the loader for."""
    found = (_CUDA_LIBRARY.fullmatch(name) for name in needs)
    return sorted({int(match.group(1)) for match in found if match})


def is_torch_library(name: str) -> bool:
    return bool(_TORCH_LIBRARY.fullmatch(name.rpartition("/")[2]))


def unresolved(root: str, needs: Dict[str, Sequence[str]]) -> Sequence[Unresolved]:
    """Files (path to what they need) that want C++ symbols of torch which this environment's torch does not export.

    Nothing when there is no torch. Files that cannot be read say so elsewhere.
    """
    torch = [path for path in needs if is_torch_library(path) and "torch/lib/" in path]
    users = [p for p, wanted in needs.items() if p not in torch and any(is_torch_library(name) for name in wanted)]
    if not torch or not users:
        return ()
    with closing(_Libraries(root)) as libraries:
        found = [Unresolved(path, _missing(libraries, path, torch, needs)) for path in sorted(users)]
    return [one for one in found if one.symbols]


def _missing(
    libraries: "_Libraries", path: str, torch: Sequence[str], needs: Dict[str, Sequence[str]]
) -> Sequence[str]:
    wanted = libraries.wants(path)
    own = set(needs[path])
    beside = [other for other in needs if other not in torch and other != path and other.rpartition("/")[2] in own]
    for library in [*torch, *beside]:
        if not wanted:
            break
        exports = libraries.exports(library)
        wanted = {name for name in wanted if not exports(name)}
    return sorted(name.decode("ascii", "replace") for name in wanted)


class _Libraries:
    """Open files of the environment, each opened once."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._descriptors: List[int] = []
        self._exports: Dict[str, _Answer] = {}

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)

    def wants(self, path: str) -> Set[bytes]:
        try:
            window = self._open(path)
            table = elf.sections(window, elf.header(window))
            return {name for name in elf.undefined_symbols(window, table) if _TORCH_SYMBOL.match(name)}
        except (OSError, elf.ElfError):
            return set()

    def exports(self, path: str) -> _Answer:
        if path not in self._exports:
            try:
                window = self._open(path)
                self._exports[path] = Exports(window, elf.sections(window, elf.header(window))).has
            except (OSError, elf.ElfError):
                self._exports[path] = _exports_nothing
        return self._exports[path]

    def _open(self, path: str) -> File:
        self._descriptors.append(os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return File(self._descriptors[-1])


def _exports_nothing(_name: bytes) -> bool:
    return False
