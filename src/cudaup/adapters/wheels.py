"""Wheels fetched once onto the controller by the ordinary pip client, kept by hash, checked every time."""

from __future__ import annotations

import filecmp
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from packaging.utils import parse_wheel_filename

from cudaup.adapters.folders import own_folder
from cudaup.domain.errors import CudaupError
from cudaup.domain.lockfile import Wheel

_FETCH_LIMIT_S = 1800
_AT_ONCE = 4  # each is a pip of its own


def cache_directory(environ: Mapping[str, str]) -> Path:
    return own_folder(environ, "CACHE", ".cache")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _pip_arguments(wheels: Sequence[Wheel]) -> list[str]:
    """Ask for exactly the wheels' own tags: the hosts' platform counts, not the controller's.

    More tags than one wheel has do no harm, as its hash decides which file is taken.
    """
    tags = [tag for wheel in wheels for tag in parse_wheel_filename(wheel.filename)[3]]
    arguments: list[str] = []
    for option, values in (
        ("--platform", {tag.platform for tag in tags}),
        ("--abi", {tag.abi for tag in tags}),
    ):
        for value in sorted(values):
            arguments += [option, value]
    # cp311, not py3: that one would stand for Python 3.0
    versions = [int(tag.interpreter[3:]) for tag in tags if re.fullmatch(r"cp3\d+", tag.interpreter)]
    if versions:
        return [*arguments, "--implementation", "cp", "--python-version", f"3.{max(versions)}"]
    return [*arguments, "--implementation", tags[0].interpreter[:2]]


def _batches(wheels: Sequence[Wheel]) -> list[list[Wheel]]:
    """Those that one pip can be asked for: of one index, and of one Python where they are for exactly one."""
    groups: dict[tuple[str | None, str], list[Wheel]] = {}
    for wheel in wheels:
        exact = {tag.interpreter for tag in parse_wheel_filename(wheel.filename)[3] if tag.abi == tag.interpreter}
        groups.setdefault((wheel.index, min(exact, default="")), []).append(wheel)
    return [group[start::_AT_ONCE] for group in groups.values() for start in range(_AT_ONCE) if group[start::_AT_ONCE]]


def _complaint(output: str) -> str:
    """What pip called an error, or its last words."""
    lines = output.strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR:")]
    hashes = [line.strip() for line in lines if line.strip().startswith(("Expected sha256", "Got "))]
    return "\n".join([*hashes, *(errors[-2:] or lines[-2:])])[-800:]


class PipWheelStore:
    """Satisfies `WheelStore`. Index settings are the user's own pip configuration; nothing is added to them."""

    def __init__(self, directory: Path, vendor: Path | None = None) -> None:
        self._directory = directory / "wheels"
        self._vendor = vendor

    def fetch(self, wheels: Sequence[Wheel], on_event: Callable[[str], None]) -> dict[str, Path]:
        """Raises CudaupError naming the wheel, or the folder that cannot be written."""
        try:
            found = {wheel.sha256: self._here(wheel) for wheel in wheels}
            missing = [wheel for wheel in wheels if found[wheel.sha256] is None]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                fetched = pool.map(lambda batch: self._fetch(batch, on_event), _batches(missing))
                return {**{sha: path for sha, path in found.items() if path}, **dict(itertools.chain(*fetched))}
        except OSError as error:
            fix = "free space, or name another folder in CUDAUP_CACHE"
            where = str(self._directory)
            raise CudaupError("wheels cannot be kept", where=where, found=str(error), fix=fix) from error

    def fetched(self, wheels: Sequence[Wheel]) -> dict[str, Path]:
        paths = {wheel.sha256: self._path(wheel) for wheel in wheels}
        return {sha256: path for sha256, path in paths.items() if path.is_file()}

    def open(self, path: Path) -> BinaryIO:
        return path.open("rb")

    def _path(self, wheel: Wheel) -> Path:
        return self._directory / wheel.sha256 / wheel.filename

    def _here(self, wheel: Wheel) -> Path | None:
        places = [self._path(wheel), *([self._vendor / wheel.filename] if self._vendor else [])]
        whole = (path for path in places if path.is_file() and path.stat().st_size == wheel.size)
        return next((path for path in whole if _sha256(path) == wheel.sha256), None)

    def _fetch(self, wheels: Sequence[Wheel], on_event: Callable[[str], None]) -> list[tuple[str, Path]]:
        """All of them by one pip; when it fails each by its own, which tells whose fault it is."""
        for wheel in wheels:
            on_event(f"fetching {wheel.filename} ({wheel.size / 1e6:.1f} MB)")
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory, prefix=".fetch-") as scratch:
            complaint = _download(wheels, Path(scratch))
            if complaint is None or len(wheels) == 1:
                return [(wheel.sha256, self._keep(wheel, Path(scratch), complaint)) for wheel in wheels]
        return [found for wheel in wheels for found in self._fetch([wheel], lambda _text: None)]

    def _keep(self, wheel: Wheel, scratch: Path, complaint: str | None) -> Path:
        found, target = scratch / wheel.filename, self._path(wheel)
        if complaint is not None or not found.exists():
            raise CudaupError(
                f"cannot fetch {wheel.name} {wheel.version}",
                wanted=f"{wheel.filename} with sha256 {wheel.sha256}",
                found=complaint or "pip saved another file",
                fix="correct the stack's pin, or see where pip looks (`pip config list`)",
            )
        if found.stat().st_size != wheel.size:
            raise CudaupError(
                f"the stack's size of {wheel.name} {wheel.version} is wrong",
                wanted=f"{wheel.size} bytes, as the stack says",
                found=f"{found.stat().st_size} bytes, with the right sha256",
                fix="correct `size` in the stack",
            )
        target.parent.mkdir(exist_ok=True)
        os.replace(found, target)  # noqa: PTH105 - the atomic step, named as such
        return target

    def vendor(self, wheels: Sequence[Path], directory: Path) -> None:
        """Keep them all in one folder, for the day when their index has them no more. Raise OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        for path in wheels:
            if not (directory / path.name).is_file() or not filecmp.cmp(path, directory / path.name, shallow=False):
                scratch = directory / f".{path.name}.new"
                shutil.copyfile(path, scratch)
                os.replace(scratch, directory / path.name)  # noqa: PTH105 - the atomic step, named as such


def _download(wheels: Sequence[Wheel], scratch: Path) -> str | None:
    """What pip complained of, or None. The wheels are of one index."""
    requirements, none = scratch / "requirements.txt", scratch / "constraints.txt"
    requirements.write_text("".join(f"{each.name}=={each.version} --hash=sha256:{each.sha256}\n" for each in wheels))
    none.touch()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--ignore-requires-python"]  # the hosts' Python counts; the rules have looked at it
    command += ["--only-binary=:all:", "--dest", str(scratch), "--requirement", str(requirements)]
    command += [*(["--index-url", wheels[0].index] if wheels[0].index else []), *_pip_arguments(wheels)]
    environ = {**os.environ, "PIP_CONSTRAINT": str(none)}  # the user's own are for what is resolved, not for a pin
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_LIMIT_S, env=environ)
    return None if done.returncode == 0 else _complaint(done.stderr or done.stdout) or "pip failed without a word"
