"""cudaup's own folders on the controller, where the XDG specification puts them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def own_folder(environ: Mapping[str, str], kind: str, below_home: str) -> Path:
    """`$CUDAUP_<kind>` as it is, else `cudaup` in `$XDG_<kind>_HOME`, or in `below_home` where that is not set."""
    if f"CUDAUP_{kind}" in environ:
        return Path(environ[f"CUDAUP_{kind}"])
    return Path(environ.get(f"XDG_{kind}_HOME") or Path(environ.get("HOME", "/root")) / below_home) / "cudaup"
