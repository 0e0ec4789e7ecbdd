"""Coverage-guided fuzzing of the audit's parser with atheris, which is not a dependency.

    pip install atheris
    python bench/audit_fuzz.py CORPUS -max_total_time=600 -max_len=65536

Begin with the files of tests/cases/audit in CORPUS. What it finds becomes a case in tests/cases/audit/found.
"""

from __future__ import annotations

import io
import sys

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # wherever it can be had

with atheris.instrument_imports():
    from cudaup.audit.binary import read_passing
    from cudaup.audit.device import Device
    from cudaup.audit.file import audit_window
    from cudaup.audit.wheel import WheelError, audit_wheel
    from cudaup.audit.window import Bytes, Passing

DEVICE = Device(120, (13, 1))


def one(data: bytes) -> None:
    found = audit_window(Bytes(data), "x", DEVICE, scan_all=True)
    if found.sass + found.jit > found.containers:
        raise AssertionError(found)
    read_passing(Passing(io.BytesIO(data), len(data)), lambda _part: False)
    if data[:2] == b"PK":
        try:
            audit_wheel(io.BytesIO(data), DEVICE)
        except WheelError:
            return


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
