"""Wheels fetched once onto the controller by the ordinary pip client, kept by hash, checked every time."""

from __future__ import annotations

import filecmp
import hashlib
import os
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


def _pip_arguments(wheel: Wheel) -> list[str]:
    """Ask for exactly the wheel's own tags: the hosts' platform counts, not the controller's."""
    tags = sorted(parse_wheel_filename(wheel.filename)[3], key=str)
    arguments: list[str] = []
    for option, values in (
        ("--platform", {tag.platform for tag in tags}),
        ("--abi", {tag.abi for tag in tags}),
    ):
        for value in sorted(values):
            arguments += [option, value]
    interpreter = tags[0].interpreter
    arguments += ["--implementation", interpreter[:2]]
    if len(interpreter) > 3:  # cp311, not py3: that one would stand for Python 3.0
        arguments += ["--python-version", f"{interpreter[2]}.{interpreter[3:]}"]
    return arguments


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
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                paths = pool.map(lambda wheel: self._one(wheel, on_event), wheels)
                return {wheel.sha256: path for wheel, path in zip(wheels, paths, strict=True)}
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

    def _one(self, wheel: Wheel, on_event: Callable[[str], None]) -> Path:
        target = self._path(wheel)
        if target.exists() and target.stat().st_size == wheel.size and _sha256(target) == wheel.sha256:
            return target
        vendored = self._vendor / wheel.filename if self._vendor else None
        if vendored and vendored.is_file() and _sha256(vendored) == wheel.sha256:
            return vendored
        on_event(f"fetching {wheel.filename} ({wheel.size / 1e6:.1f} MB)")
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory, prefix=".fetch-") as scratch:
            found = self._download(wheel, Path(scratch))
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

    def _download(self, wheel: Wheel, scratch: Path) -> Path:
        requirements = scratch / "requirements.txt"
        requirements.write_text(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--ignore-requires-python"]  # the hosts' Python counts; the rules have looked at it
        command += ["--only-binary=:all:", "--dest", str(scratch), "--requirement", str(requirements)]
        command += [*(["--index-url", wheel.index] if wheel.index else []), *_pip_arguments(wheel)]
        none = scratch / "constraints.txt"
        none.touch()
        environ = {**os.environ, "PIP_CONSTRAINT": str(none)}  # the user's own are for what is resolved, not for a pin
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_LIMIT_S, env=environ)
        found = scratch / wheel.filename
        if done.returncode != 0 or not found.exists():
            raise CudaupError(
                f"cannot fetch {wheel.name} {wheel.version}",
                wanted=f"{wheel.filename} with sha256 {wheel.sha256}",
                found=_complaint(done.stderr or done.stdout) or "pip saved another file",
                fix="correct the stack's pin, or see where pip looks (`pip config list`)",
            )
        if found.stat().st_size != wheel.size:
            raise CudaupError(
                f"the stack's size of {wheel.name} {wheel.version} is wrong",
                wanted=f"{wheel.size} bytes, as the stack says",
                found=f"{found.stat().st_size} bytes, with the right sha256",
                fix="correct `size` in the stack",
            )
        return found
