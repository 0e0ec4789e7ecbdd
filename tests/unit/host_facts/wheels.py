"""Tiny real wheels, made in a moment, and a root that has them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from cudaup.host import blobs
from cudaup.host.protocol import Channel, Context

Json = dict[str, Any]
# The wheel of the real uv has 40 MB; what matters is that the binary comes out of a wheel and is the real one.
UV_SCRIPT = f'#!/bin/sh\nexec {find_uv_bin()} "$@"\n'


class Wheel:
    """`files` are its contents; RECORD and metadata are added as every build tool does. `recorded` makes RECORD lie."""

    def __init__(
        self,
        name: str,
        version: str,
        files: Mapping[str, str],
        scripts: Mapping[str, str] = {},
        recorded: Mapping[str, str] = {},
    ) -> None:
        self.filename = f"{name}-{version}-py3-none-any.whl"
        info = f"{name}-{version}.dist-info"
        members = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        if scripts:
            lines = "".join(f"{command} = {target}\n" for command, target in scripts.items())
            members[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
        rows = [f"{path},sha256={_digest(recorded.get(path, text))},{len(text)}\n" for path, text in members.items()]
        members[f"{info}/RECORD"] = "".join(rows) + f"{info}/RECORD,,\n"
        self.content = _zipped(members)
        self.pin: Json = {
            "name": name,
            "version": version,
            "filename": self.filename,
            "sha256": hashlib.sha256(self.content).hexdigest(),
            "size": len(self.content),
        }


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def _zipped(members: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in members.items():
            member = zipfile.ZipInfo(path)
            member.external_attr = 0o100777 << 16  # as bad as they come: writable by everybody
            archive.writestr(member, text)
    return buffer.getvalue()


UV = Wheel("uv", "0.0.1", {"uv-0.0.1.data/scripts/uv": UV_SCRIPT})
GREETER = Wheel(
    "greeter",
    "1.2",
    {"greeter/__init__.py": "def main() -> None:\n    import sys\n    print('hello from', sys.prefix)\n"},
    scripts={"greet": "greeter:main"},
)
TOOLKIT = Wheel(
    "nvidia_cuda_nvcc",
    "13.0.88",
    {"nvidia/cu13/bin/nvcc": "#!/bin/sh\n", "nvidia/cu13/lib/libcudart.so.13": "", "nvidia/cu13/include/cuda.h": ""},
)


def spec_of(*wheels: Wheel, **changes: Any) -> Json:
    return {
        "name": "test-stack",
        "python": {"version": ">=3.8"},
        "wheels": [wheel.pin for wheel in wheels],
        "uv": {key: UV.pin[key] for key in ("filename", "sha256", "size")},
        "toolkit": None,
        "env": {},
        **changes,
    }


def context(
    root: Path, data: bytes = b"", *, epoch: int | None = None, dry_run: bool = False, **options: Any
) -> Context:
    return Context(root, Channel(), io.BytesIO(data), epoch=epoch, dry_run=dry_run, options=options)


def stage_context(root: Path, spec: Json, **settings: Any) -> Context:
    data = json.dumps(spec).encode()
    return context(root, data, spec_bytes=len(data), **settings)


def put(root: Path, *wheels: Wheel) -> None:
    for wheel in wheels:
        pin = wheel.pin
        blobs.put(context(root, wheel.content, sha256=pin["sha256"], name=pin["filename"], size=pin["size"]))
