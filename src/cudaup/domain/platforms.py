"""Which wheels a host can use: its Python, C library and machine against the tags in a wheel's file name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Protocol

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from cudaup.domain.lockfile import Wheel

ARCHITECTURES = ("x86_64", "aarch64")
NEWEST_GLIBC = 60  # minor number; well above what exists, for questions about any host
_OLD_NAMES = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
PYTHONS = tuple((3, minor) for minor in range(8, 20))

PythonVersion = tuple[int, int]


def python_version(text: str) -> PythonVersion:
    version = Version(text)
    return version.major, version.minor


@lru_cache(maxsize=256)
def tag_ranks(python: PythonVersion, glibc_minor: int, arch: str) -> Mapping[Tag, int]:
    """Every tag that CPython `python` on Linux with glibc 2.`glibc_minor` takes; the lowest number is liked best."""
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in range(glibc_minor, 4, -1)]
    platforms += [f"{name}_{arch}" for name, minor in _OLD_NAMES.items() if minor <= glibc_minor]
    platforms.append(f"linux_{arch}")
    interpreter = f"cp{python[0]}{python[1]}"
    tags = [
        *cpython_tags(python, abis=[interpreter], platforms=platforms),
        *compatible_tags(python, interpreter, platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def fits(wheel: Wheel, python: PythonVersion, glibc_minor: int, arch: str) -> bool:
    return not wheel_tags(wheel).isdisjoint(tag_ranks(python, glibc_minor, arch))


class Named(Protocol):
    @property
    def filename(self) -> str: ...


def wheel_tags(wheel: Named) -> frozenset[Tag]:
    return parse_wheel_filename(wheel.filename)[3]


def needed_glibc(wheel: Named, arch: str) -> int | None:
    """The minor number of the oldest glibc 2 the wheel takes on `arch`; None when it does not say."""
    minors = [minor for tag in wheel_tags(wheel) if (minor := _manylinux_minor(tag.platform, arch)) is not None]
    return min(minors, default=None)


def _manylinux_minor(platform: str, arch: str) -> int | None:
    if match := re.fullmatch(rf"manylinux_2_(\d+)_{arch}", platform):
        return int(match[1])
    return _OLD_NAMES.get(platform.removesuffix(f"_{arch}")) if platform.endswith(f"_{arch}") else None


def glibc_minor(text: str | None) -> int | None:
    """36 for `2.36`; None for another C library."""
    match = re.fullmatch(r"2\.(\d+)", text or "")
    return int(match[1]) if match else None


def have_common_platform(wheels: Iterable[Wheel], pythons: Iterable[PythonVersion]) -> bool:
    """Whether some machine could use them all."""
    kept = tuple(wheels)
    return any(
        all(fits(wheel, python, NEWEST_GLIBC, arch) for wheel in kept) for python in pythons for arch in ARCHITECTURES
    )
