"""What a GPU can run of a file. It says that code is there, never that it works."""

from typing import Any, Dict, Iterable, NamedTuple, Tuple

from cudaup.audit.binary import Reading
from cudaup.audit.device import Device
from cudaup.audit.fatbin import Image

FULL, PARTIAL, JIT, DEAD = "full", "partial", "jit", "dead"
JIT_SOURCE, NO_GPU_CODE, UNREADABLE = "jit-source", "no-gpu-code", "unreadable"
# Worst first: the order of a table that is read in seconds.
VERDICTS = (UNREADABLE, DEAD, JIT, PARTIAL, FULL, JIT_SOURCE, NO_GPU_CODE)

_RUNS, _COMPILES, _IDLE, _NOT_LOADED = "runs", "compiles", "idle", "not-loaded"
_STUB = 0.05  # of the largest sibling; the smallest honest kernel seen was at 0.16


class Judged(NamedTuple):
    """Of `containers` that hold code at all, `sass` run as they are and `jit` are compiled by the driver.

    `stubs`: containers whose code for this GPU is suspiciously small beside that for others.
    """

    verdict: str
    containers: int
    sass: int
    jit: int
    stubs: int


def judge(reading: Reading, device: Device) -> Judged:
    fates: Dict[Tuple[Any, ...], str] = {}
    containers = sass = jit = stubs = 0
    for part in reading.containers:
        mine = largest = 0
        found = set()
        for image in part.images:
            key = image[:4]
            fate = fates.get(key)
            if fate is None:
                fate = fates[key] = _fate(image, device)
            found.add(fate)
            if fate == _RUNS and image.unpacked > mine:
                mine = image.unpacked  # the largest where several would do: which one it takes is the driver's affair
            if image.kind == "sass" and image.unpacked > largest:
                largest = image.unpacked
        containers += bool(found - {_NOT_LOADED})
        sass += _RUNS in found
        jit += _COMPILES in found and _RUNS not in found
        stubs += _RUNS in found and mine < _STUB * largest
    return Judged(_verdict(reading, containers, sass, jit), containers, sass, jit, stubs)


def worst(verdicts: Iterable[str]) -> str:
    return min(verdicts, key=VERDICTS.index, default=NO_GPU_CODE)


def _fate(image: Image, device: Device) -> str:
    if image.kind == "lto-ir":
        return _NOT_LOADED  # only nvJitLink reads it
    return _RUNS if device.runs(image) else _COMPILES if device.compiles(image) else _IDLE


def _verdict(reading: Reading, containers: int, sass: int, jit: int) -> str:
    if sass + jit == 0 and reading.damages:
        return UNREADABLE  # what could not be read may be what this GPU needs
    if containers == 0:
        return NO_GPU_CODE
    if sass + jit == 0:
        return DEAD
    if sass == 0:
        return JIT if jit == containers else PARTIAL
    return FULL if sass + jit == containers and reading.is_complete and not reading.damages else PARTIAL
