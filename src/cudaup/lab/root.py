"""The hosts' common root: where it is cached and under which name. `build.py` makes it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cudaup.domain.errors import CudaupError
from cudaup.lab import machine

DATA = Path(__file__).parent / "data"
SUITE = "bookworm"
PACKAGES = (
    "busybox-static",  # its nc carries ssh into the lab's network namespace
    "ca-certificates",
    "curl",
    "dbus",
    "g++",  # nvcc needs a host compiler
    "iproute2",
    "kmod",
    "openssh-server",
    "procps",
    "python3",
    "sudo",
    "systemd",
    "systemd-sysv",
)
# What the hosts run before their first upgrade. tabulate brings a console script, which carries the absolute path.
OLD_STACK = ("msgpack==1.0.8", "packaging==23.2", "tabulate==0.9.0")


def recipe_hash() -> str:
    """Names everything the root is made of, so that a changed recipe is never served from an old cache."""
    digest = hashlib.sha256(repr((SUITE, PACKAGES, OLD_STACK)).encode())
    recipe_files = (DATA / "root", DATA / "masked-units.txt", Path(__file__).with_name("build.py"))
    for top in recipe_files:
        for path in sorted(p for p in (top, *top.rglob("*")) if p.is_file()):
            digest.update(f"{path.relative_to(DATA.parent)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def cached_root(note: Callable[[str], None]) -> Path:
    """The folder with `root/` and `ml-env/`, built first when it is not there. Raises CudaupError."""
    wanted = machine.CACHE / f"root-{recipe_hash()}"
    if wanted.is_dir():
        return wanted
    with machine.locked(machine.CACHE / "lock"):
        if not wanted.is_dir():
            note("building the lab's Debian root, once, about a minute")
            _build(wanted)
    return wanted


def _build(wanted: Path) -> None:
    for debris in machine.CACHE.glob("building-*"):  # of builds whose parent was killed: we hold the lock
        shutil.rmtree(debris)
    aside = machine.CACHE / f"building-{os.getpid()}"  # never the folder of a build that outlived its parent
    log = machine.CACHE / "build.log"
    aside.mkdir()
    with log.open("wb") as stream:
        argv = [sys.executable, "-m", "cudaup.lab.build", str(aside)]
        environment = {**os.environ, "PATH": machine.tool_path()}
        done = subprocess.run(argv, stdout=stream, stderr=subprocess.STDOUT, env=environment, check=False)
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise CudaupError("the lab's root could not be built", where=str(log), found=tail, fix="see the log")
    aside.rename(wanted)
