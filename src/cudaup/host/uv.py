"""The only caller of uv: a pinned binary that came as a wheel, used offline, configured by nothing but what is here."""

import fcntl
import os
import shutil
import tempfile
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

from cudaup.host import blobs
from cudaup.host.contained import run_contained
from cudaup.host.files import sync_filesystem, write_atomic
from cudaup.host.layout import Layout
from cudaup.host.protocol import Failed, Refused
from cudaup.host.spec import Blob, Wheel

_VENV_LIMIT_S = 60.0
_INSTALL_LIMIT_S = 1800.0
_PROBE_BYTES = 4096  # some filesystems clone an empty file that they could not clone otherwise
_FICLONE = 0x40049409  # ioctl_ficlone(2)
CLONE, HARD_LINK = "clone", "hardlink"


def unpack_binary(layout: Layout, blob: Blob) -> Path:
    """`bin/uv-VERSION`, out of the wheel unless it is there."""
    binary = layout.root / "bin" / ("uv-" + blob.filename.split("-")[1])
    with zipfile.ZipFile(str(blobs.require(layout, blob))) as wheel:
        member = next((info for info in wheel.infolist() if info.filename.endswith(".data/scripts/uv")), None)
        if member is None:
            raise Failed("stage", f"{blob.filename} holds no uv binary", {"state": "unchanged"})
        if not binary.is_file() or binary.stat().st_size != member.file_size:
            binary.parent.mkdir(exist_ok=True, mode=0o755)
            write_atomic(binary, wheel.read(member), 0o755)
    return binary


@contextmanager
def cache(layout: Layout) -> Iterator[None]:
    """Around everything that changes uv's cache, up to its being on the disk. After a failure the next one empties it.

    uv believes its cache blindly: what a power loss cut short there would be linked into every later generation.
    """
    unsynced = layout.root / "uv-cache.unsynced"
    if unsynced.exists():
        shutil.rmtree(str(layout.uv_cache), ignore_errors=True)
    write_atomic(unsynced, b"", reserve=layout.ballast)
    layout.uv_cache.mkdir(exist_ok=True)
    layout.uv_cache.chmod(0o700)  # uv makes lock files that everybody may write to, and wait for
    yield
    sync_filesystem(layout.root)
    unsynced.unlink()


def clean_cache(layout: Layout, packages: Sequence[str]) -> None:
    """Empty it of these packages, all versions; without a uv that can, of everything."""
    binary = max((layout.root / "bin").glob("uv-*"), default=layout.root / "bin" / "uv")
    try:
        with cache(layout):
            _run(layout, [str(binary), "cache", "clean", *packages], _INSTALL_LIMIT_S)
    except Failed:
        with cache(layout):  # which is what it does after a failure
            pass


def make_environment(layout: Layout, binary: Path, python: Path, venv: Path) -> None:
    """Relocatable, because it is renamed once it is whole."""
    _run(layout, [str(binary), "venv", "--relocatable", "--python", str(python), str(venv)], _VENV_LIMIT_S)


def link_mode(layout: Layout, staging: Path) -> str:
    """How generations share the bytes of their files: clones where the filesystem has them, else hard links.

    Tried on the spot: uv itself would copy everything without a word. Refused `unsupported` where neither works.
    """
    layout.uv_cache.mkdir(exist_ok=True, mode=0o755)
    clone, link = staging / "clone", staging / "link"
    with tempfile.NamedTemporaryFile(dir=str(layout.uv_cache)) as source:
        source.write(b"\0" * _PROBE_BYTES)
        source.flush()
        try:
            with clone.open("wb") as target, suppress(OSError):
                fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
                return CLONE
            os.link(source.name, str(link))
        except OSError as error:
            text = f"`{layout.generations}` cannot share files with `{layout.uv_cache}`: {error.strerror}"
            raise Refused("unsupported", text, "keep cudaup's root on one filesystem that has hard links") from error
        finally:
            for probe in (clone, link):
                with suppress(FileNotFoundError):
                    probe.unlink()
    return HARD_LINK


def install(layout: Layout, binary: Path, venv: Path, wheels: List[Wheel], mode: str) -> None:
    """Exactly these wheels, each by its hash, from the blobs that are here.

    Each from the blob's own directory: uv's cache knows a wheel by the directory it came from, and only from the same
    one does the next generation get links instead of copies.
    """
    requirements = venv.parent / "requirements.txt"
    lines = [f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.blob.sha256}\n" for wheel in wheels]
    requirements.write_text("".join(lines), encoding="utf-8")
    argv = [str(binary), "pip", "install", "--python", str(venv / "bin" / "python"), "--link-mode", mode]
    argv += ["--no-index", "--no-build", "--no-deps", "--require-hashes", "--requirements", str(requirements)]
    for wheel in wheels:
        argv += ["--find-links", str(blobs.require(layout, wheel.blob).parent)]
    _run(layout, argv, _INSTALL_LIMIT_S)
    requirements.unlink()


def _run(layout: Layout, argv: List[str], limit_s: float) -> None:
    everywhere = ["--offline", "--no-config", "--no-python-downloads", "--no-progress", "--color", "never"]
    ran = run_contained(["nice", "-n", "10", *argv, *everywhere], limit_s, _environment(layout))
    if not ran.is_ok:
        text = f"uv {argv[1]}: {ran.why()}\n{ran.last_lines(20)}"
        raise Failed("stage", text, {"state": "unchanged"})


def _environment(layout: Layout) -> Dict[str, str]:
    return {"PATH": os.defpath, "HOME": str(layout.root), "LC_ALL": "C", "UV_CACHE_DIR": str(layout.uv_cache)}
