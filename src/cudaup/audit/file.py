"""One file as it is reported: verdict, counts, archs and what it needs."""

import os
import re
from collections import Counter
from typing import Dict, NamedTuple, Optional, Sequence

from cudaup.audit import abi, binary, verdict
from cudaup.audit.binary import Reading
from cudaup.audit.device import Device
from cudaup.audit.window import File, Window

NAMES = re.compile(r"(.+\.so(\.\d+)*|.+\.(cubin|fatbin|ptx))", re.IGNORECASE | re.DOTALL)
_MOST_NOTES = 5


class FileAudit(NamedTuple):
    """`entries` counts images by kind and arch; `apart`, `outside` and `loose` are those of `Reading`."""

    path: str
    verdict: str
    size: int = 0
    containers: int = 0
    sass: int = 0
    jit: int = 0
    stubs: int = 0
    sass_archs: Sequence[str] = ()
    ptx_archs: Sequence[str] = ()
    entries: Optional[Dict[str, int]] = None
    packing: Optional[Dict[str, int]] = None
    apart: int = 0
    outside: int = 0
    loose: Sequence[str] = ()
    needs: Sequence[str] = ()
    cuda_majors: Sequence[int] = ()
    notes: Sequence[str] = ()
    same_as: Optional[str] = None
    is_complete: bool = True


def audit_path(path: str, shown: str, device: Device, *, scan_all: bool = False) -> FileAudit:
    """Never raises: what cannot be opened or read is the verdict `unreadable`."""
    try:
        # O_NONBLOCK: a pipe with such a name must not hang the audit.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return unreadable(shown, error.strerror or str(error))
    try:
        return audit_window(File(descriptor), shown, device, scan_all=scan_all)
    except OSError as error:
        return unreadable(shown, error.strerror or str(error))
    finally:
        os.close(descriptor)


def audit_window(window: Window, shown: str, device: Device, *, scan_all: bool = False) -> FileAudit:
    reading = binary.read(window)
    judged = verdict.judge(reading, device)
    if scan_all or judged.verdict in (verdict.DEAD, verdict.UNREADABLE):
        reading = binary.scan(window, reading)
    return described(shown, window.size, reading, device)


def described(shown: str, size: int, reading: Reading, device: Device) -> FileAudit:
    judged = verdict.judge(reading, device)
    images = [image for part in reading.containers for image in part.images]
    return FileAudit(
        path=shown,
        verdict=judged.verdict,
        size=size,
        containers=judged.containers,
        sass=judged.sass,
        jit=judged.jit,
        stubs=judged.stubs,
        sass_archs=verdict.archs(reading, "sass"),
        ptx_archs=verdict.archs(reading, "ptx"),
        entries=dict(sorted(Counter(f"{image.kind} {image.arch}" for image in images).items())),
        packing=dict(sorted(Counter(image.packing or "none" for image in images).items())),
        apart=reading.apart,
        outside=reading.outside,
        loose=sorted({image.arch for image in reading.loose}),
        needs=reading.needs,
        cuda_majors=abi.cuda_majors(reading.needs),
        notes=_notes(reading),
        is_complete=reading.is_complete,
    )


def unreadable(shown: str, why: str, size: int = 0) -> FileAudit:
    return FileAudit(shown, verdict.UNREADABLE, size=size, notes=(why,))


def _notes(reading: Reading) -> Sequence[str]:
    told = [f"byte {damage.offset}: {damage.text}" for damage in reading.damages[:_MOST_NOTES]]
    more = len(reading.damages) - len(told)
    return [*told, f"and {more} more places that could not be read"] if more > 0 else told
