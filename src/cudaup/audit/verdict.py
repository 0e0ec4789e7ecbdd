"""What a GPU can run of a file. It says that code is there, never that it works."""

from typing import Iterable, List, NamedTuple, Optional, Sequence

from cudaup.audit.binary import Reading
from cudaup.audit.device import Device
from cudaup.audit.fatbin import Container, Image

FULL, PARTIAL, JIT, DEAD = "full", "partial", "jit", "dead"
JIT_SOURCE, NO_GPU_CODE, UNREADABLE = "jit-source", "no-gpu-code", "unreadable"
# Worst first: the order of a table that is read in seconds.
VERDICTS = (UNREADABLE, DEAD, JIT, PARTIAL, FULL, JIT_SOURCE, NO_GPU_CODE)

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
    parts = [part for part in reading.containers if _has_code(part)]
    picked = [_sass(part, device) for part in parts]
    sass = sum(image is not None for image in picked)
    jit = sum(
        image is None and any(device.compiles(other) for other in part.images) for image, part in zip(picked, parts)
    )
    stubs = sum(image is not None and _is_stub(image, part.images) for image, part in zip(picked, parts))
    return Judged(_verdict(reading, len(parts), sass, jit), len(parts), sass, jit, stubs)


def worst(verdicts: Iterable[str]) -> str:
    return min(verdicts, key=VERDICTS.index, default=NO_GPU_CODE)


def archs(reading: Reading, kind: str) -> Sequence[str]:
    """`120a` and so on, in the order of the GPUs; PTX with its ISA."""
    found = {(i.sm, i.suffix, i.version if kind == "ptx" else (0, 0)) for c in reading.containers for i in _of(c, kind)}
    return [
        f"{sm}{suffix}" + (f" (ISA {isa[0]}.{isa[1]})" if kind == "ptx" else "") for sm, suffix, isa in sorted(found)
    ]


def _of(part: Container, kind: str) -> List[Image]:
    return [image for image in part.images if image.kind == kind]


def _has_code(part: Container) -> bool:
    """Not the empty ones of device linking, nor what only nvJitLink reads."""
    return any(image.kind != "lto-ir" for image in part.images)


def _sass(part: Container, device: Device) -> Optional[Image]:
    """The largest where several would do: which one the driver takes is its own affair."""
    fitting = [image for image in part.images if device.runs(image)]
    return max(fitting, key=lambda image: image.unpacked, default=None)


def _is_stub(image: Image, siblings: Sequence[Image]) -> bool:
    return image.unpacked < _STUB * max(other.unpacked for other in siblings if other.kind == "sass")


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
