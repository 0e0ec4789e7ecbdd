"""How long an audit takes, beside cuobjdump and `python -m zipfile -t`, in one run.

    python bench/audit.py --cuobjdump PATH --libraries FOLDER... --environment FOLDER --wheel FILE...

Each figure is the best of three with a warm page cache. `cpu` is processor time, which a busy machine changes less;
`peak` is the largest resident memory of that process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

RUNS = 3
_LIBRARIES = """
import sys, time
from cudaup.audit.device import Device
from cudaup.audit.file import audit_path
paths = sys.stdin.read().splitlines()
start = time.perf_counter()
found = [audit_path(path, path, Device(120, (13, 1))) for path in paths]
print(time.perf_counter() - start, sum(sum((file.entries or {}).values()) for file in found))
"""
_ENVIRONMENT = """
import sys, time
from cudaup.audit.device import Device
from cudaup.audit.target import audit_environment
start = time.perf_counter()
found = audit_environment(sys.argv[1], Device(120, (13, 1)))
print(time.perf_counter() - start, len(found.files))
"""
_WHEEL = """
import sys, time
from cudaup.audit.device import Device
from cudaup.audit.wheel import audit_wheel
start = time.perf_counter()
with open(sys.argv[1], "rb") as stream:
    found = audit_wheel(stream, Device(120, (13, 1)))
print(time.perf_counter() - start, len(found.files))
"""


class Figure(NamedTuple):
    """`seconds` inside the process; `cpu_s` and `peak_mb` of the whole of it; `items` is what it printed."""

    seconds: float
    cpu_s: float
    peak_mb: float
    items: int

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s (cpu {self.cpu_s:.2f} s, peak {self.peak_mb:.0f} MB)"


def ran(*arguments: str, text: str = "") -> Figure:
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text.encode())
    process.stdin.close()
    printed = process.stdout.read().split()
    process.stdout.close()
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    seconds, count = (float(printed[0]), int(printed[1])) if "-c" in arguments else (time.perf_counter() - start, 0)
    return Figure(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, count)


def best(once: Callable[[], Figure]) -> Figure:
    return min(once() for _ in range(RUNS))


def carrying_code(folders: list[Path]) -> list[Path]:
    """Shared objects with a fatbin section, each file once."""
    found: dict[tuple[int, int], Path] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*.so*") if path.is_file()):
        with path.open("rb") as stream:
            if stream.read(4) == b"\x7fELF" and has_section(path):
                status = path.stat()
                found.setdefault((status.st_dev, status.st_ino), path)
    return list(found.values())


def has_section(path: Path) -> bool:
    listed = subprocess.run(["readelf", "-SW", str(path)], capture_output=True, text=True, check=False).stdout
    return ".nv_fatbin" in listed


def libraries(folders: list[Path], cuobjdump: Path | None) -> None:
    paths = carrying_code(folders)
    size = sum(path.stat().st_size for path in paths)
    for path in paths:
        with path.open("rb") as stream:
            while stream.read(1 << 24):
                pass
    audit = best(lambda: ran("-c", _LIBRARIES, text="\n".join(map(str, paths))))
    print(f"{len(paths)} libraries, {size / 1e9:.1f} GB, {audit.items} images: audit {audit}")
    if cuobjdump:
        start = time.perf_counter()
        for path in paths:
            for option in ("--list-elf", "--list-ptx"):
                subprocess.run([str(cuobjdump), option, str(path)], capture_output=True, check=False)
        took = time.perf_counter() - start
        print(f"    cuobjdump --list-elf and --list-ptx: {took:.1f} s, {took / audit.seconds:.0f} times as long")


def environment(folder: Path) -> None:
    audit = best(lambda: ran("-c", _ENVIRONMENT, str(folder)))
    size = sum(path.lstat().st_size for path in folder.rglob("*"))
    print(f"environment {folder}, {size / 1e9:.1f} GB, {audit.items} binaries: {audit}")


def wheel(path: Path) -> None:
    audit = best(lambda: ran("-c", _WHEEL, str(path)))
    tested = best(lambda: ran("-m", "zipfile", "-t", str(path)))
    ratio = audit.cpu_s / tested.cpu_s
    print(f"{path.name}: audit {audit}; zipfile -t {tested}; {ratio:.2f} times its processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuobjdump", type=Path)
    parser.add_argument("--libraries", type=Path, nargs="+", default=[])
    parser.add_argument("--environment", type=Path)
    parser.add_argument("--wheel", type=Path, nargs="+", default=[])
    given = parser.parse_args()
    if given.libraries:
        libraries(given.libraries, given.cuobjdump)
    if given.environment:
        environment(given.environment)
    for path in given.wheel:
        wheel(path)


if __name__ == "__main__":
    main()
