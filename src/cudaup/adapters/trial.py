"""A closure installed once and imported, in an environment that is thrown away: that they resolve proves little."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from uv import find_uv_bin

from cudaup.app.ports import Look
from cudaup.domain.errors import LockFailed
from cudaup.domain.locking import Platform, Trial

_LIMIT_S = 1800
_IMPORT_LIMIT_S = 300
_SHOWN = 1500
_NO_DRIVER = "libcuda.so.1: cannot open shared object file"  # it comes with the driver, never in a wheel


class UvTrialRoom:
    """Satisfies `TrialRoom`."""

    def try_out(self, wheels: Sequence[Path], platform: Platform, imports: Sequence[str], look: Look) -> Trial:
        with tempfile.TemporaryDirectory(prefix="cudaup-trial-") as scratch:
            venv = Path(scratch) / "venv"
            python = ".".join(map(str, platform.python))
            fix = f"install Python {python} here, or lock with --no-trial on your own risk"
            _run(["venv", "--python", python, "--no-python-downloads", str(venv)], "no environment can be made", fix)
            install = ["pip", "install", "--python", str(venv), "--no-deps", "--no-index", "--offline"]
            _run([*install, *map(str, wheels)], "the wheels cannot be installed together", "see which wheel it is")
            notes = tuple(look(str(next(venv.glob("lib/python3*/site-packages")))))
            failures = {name: _import(venv, name) for name in imports}
            without = tuple(name for name, failure in failures.items() if failure == _NO_DRIVER)
            imported = tuple(name for name in imports if name not in without)
            return Trial(imports=imported, needs_driver=without, notes=notes)


def _run(arguments: Sequence[str], what: str, fix: str) -> None:
    done = _ran([find_uv_bin(), "--quiet", *arguments], _LIMIT_S)
    if done.returncode:
        raise LockFailed(what, found=done.stderr.strip()[-_SHOWN:], fix=fix)


def _ran(command: Sequence[str], limit_s: int) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        told = " ".join(command[1:4])
        raise LockFailed(
            f"the trial was ended after {limit_s} s", found=told, fix="try again, or --no-trial"
        ) from error


def _import(venv: Path, name: str) -> str:
    """Empty, or `_NO_DRIVER` where that is all that is missing. Raise LockFailed for anything else."""
    done = _ran([str(venv / "bin" / "python"), "-I", "-c", f"import {name}"], _IMPORT_LIMIT_S)
    if done.returncode and _NO_DRIVER in done.stderr:
        return _NO_DRIVER
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it died"])[-1]
        fix = "the versions do not go together: hold one of them in `packages.constrain`"
        raise LockFailed(f"`import {name}` fails in an environment of exactly these wheels", found=last, fix=fix)
    return ""
