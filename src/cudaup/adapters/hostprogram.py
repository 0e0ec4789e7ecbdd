"""Builds the host program's single file from the package's own sources, the same bytes every time."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

import cudaup

_PARTS = ("host", "smoke", "audit")
_SUFFIXES = frozenset({".py", ".cu"})
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip's own beginning: no build time in the bytes
_MAIN = b"import sys\nfrom cudaup.host.__main__ import main\nsys.exit(main())\n"


def _members() -> dict[str, bytes]:
    package = Path(cudaup.__file__).parent
    members = {"__main__.py": _MAIN, "cudaup/__init__.py": b""}
    for part in _PARTS:
        for source in sorted((package / part).glob("*")):
            if source.suffix in _SUFFIXES:
                members[f"cudaup/{part}/{source.name}"] = source.read_bytes()
    return members


@cache
def zipapp() -> bytes:
    """The zip archive, importable from memory; without the `#!` line that the installed file starts with."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(_members().items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return buffer.getvalue()


def digest() -> str:
    return hashlib.sha256(zipapp()).hexdigest()
