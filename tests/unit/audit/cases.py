"""The binaries that tests/cases/audit/build.py made with nvcc."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cudaup.audit.device import Device
from cudaup.audit.file import FileAudit, audit_path, audit_window
from cudaup.audit.window import Bytes

CASES = Path(__file__).parents[2] / "cases" / "audit"
SM120 = Device(120, (13, 1))
CUOBJDUMP: dict[str, dict[str, int] | None] = json.loads((CASES / "cuobjdump.json").read_text())


def audited(name: str, device: Device = SM120, **options: Any) -> FileAudit:
    return audit_path(str(CASES / name), name, device, **options)


def of_bytes(data: bytes, device: Device = SM120) -> FileAudit:
    return audit_window(Bytes(data), "given", device)


def content(name: str) -> bytes:
    return (CASES / name).read_bytes()


def without_section_table(data: bytes) -> bytes:
    return data[:0x28] + bytes(8) + data[0x30:]
