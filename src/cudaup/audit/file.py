"""One file as it is reported: verdict, counts, archs and what it needs."""

import os
import re
from collections import Counter
from typing import Dict, NamedTuple, Optional, Sequence

from cudaup.audit import abi, binary, verdict
from cudaup.audit.binary import Reading
from cudaup.audit.device import Device
from cudaup.audit.verdict import Judged
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
        judged = verdict.judge(reading, device)
    return _described(shown, window.size, reading, judged)


def described(shown: str, size: int, reading: Reading, device: Device) -> FileAudit:
    return _described(shown, size, reading, verdict.judge(reading, device))


def _described(shown: str, size: int, reading: Reading, judged: Judged) -> FileAudit:
    counts = Counter(image[:5] for part in reading.containers for image in part.images)
    entries: "Counter[str]" = Counter()
    packing: "Counter[str]" = Counter()
    for (kind, sm, suffix, _version, packed), count in counts.items():
        entries[f"{kind} {sm}{suffix}"] += count
        packing[packed or "none"] += count
    sass = {(sm, suffix) for kind, sm, suffix, _, _ in counts if kind == "sass"}
    ptx = {(sm, suffix, isa) for kind, sm, suffix, isa, _ in counts if kind == "ptx"}
    return FileAudit(
        path=shown,
        verdict=judged.verdict,
        size=size,
        containers=judged.containers,
        sass=judged.sass,
        jit=judged.jit,
        stubs=judged.stubs,
        sass_archs=[f"{sm}{suffix}" for sm, suffix in sorted(sass)],
        ptx_archs=[f"{sm}{suffix} (ISA {isa[0]}.{isa[1]})" for sm, suffix, isa in sorted(ptx)],
        entries=dict(sorted(entries.items())),
        packing=dict(sorted(packing.items())),
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
