"""An audit as a table that is read in seconds: what is dead first, and what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from cudaup.domain.audit import AuditReport, AuditVerdict, FileAudit, GpuAsked, TargetAudit

_LOOSE = (".cubin", ".ptx")
_PROMISE = (
    "An audit says that code is there, never that it works: whether the host-side code ever launches it on this GPU "
    "cannot be seen here."
)


def audit_text(report: AuditReport, *, shows_all: bool = False) -> str:
    blocks = ["\n".join(_target(target, shows_all=shows_all)) for target in report.targets]
    missed = [f"REQUIRED {m.required}: {m.reason} ({m.path or m.target})" for m in report.missed]
    return "\n\n".join([*blocks, *(["\n".join(missed)] if missed else []), _PROMISE])


def _target(target: TargetAudit, *, shows_all: bool) -> Iterator[str]:
    if target.error is not None:
        yield f"{target.target}: CANNOT BE AUDITED"
        yield from (f"    {line}" for line in target.error.splitlines())
        return
    yield f"{target.target} on {_gpu(target.gpu)}"
    shown = [f for f in target.worst_first if shows_all or f.verdict is not AuditVerdict.NO_GPU_CODE]
    prefix = _common_folder([file.path for file in shown])
    if prefix:
        yield f"  in {prefix}"
    rows = [row for _key, files in groupby(shown, _group) for row in _rows(list(files), prefix, target)]
    widths = [max((len(row[n]) for row, _more in rows), default=0) for n in range(3)]
    for row, more in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  " + "  ".join([*cells, *row[3:]]).rstrip()
        yield from (f"      {line}" for line in more)
    yield from _about(target)


def _gpu(gpu: GpuAsked) -> str:
    if gpu.cuda is None:
        return f"SM{gpu.sm}, any driver (--driver or --cuda says which PTX it can compile)"
    driver = f"driver {gpu.driver}, " if gpu.driver else ""
    return f"SM{gpu.sm}, {driver}CUDA {gpu.cuda}: PTX up to ISA {gpu.ptx_isa}"


def _group(file: FileAudit) -> tuple[object, ...]:
    """Loose cubins come by the thousand: told by folder, where nothing else is to say."""
    if file.path.endswith(_LOOSE) and not file.notes:
        return (file.verdict, file.path.rpartition("/")[0], file.sass_archs, file.ptx_archs)
    return (file.path,)


def _rows(files: Sequence[FileAudit], prefix: str, target: TargetAudit) -> Iterator[tuple[list[str], list[str]]]:
    first = files[0]
    name = first.path.removeprefix(prefix)
    if len(files) > 1:
        name = f"{name.rpartition('/')[0] or '.'}/ ({len(files)} files)"
    yield [_word(first, target), name, _count(first, len(files)), _archs(first)], list(_more(first, target))


def _word(file: FileAudit, target: TargetAudit) -> str:
    word = file.verdict.upper() if file.verdict in {AuditVerdict.DEAD, AuditVerdict.UNREADABLE} else str(file.verdict)
    return f"({word})" if file.path in target.passed_over else word


def _count(file: FileAudit, files: int) -> str:
    if file.containers == 0:
        return "-"
    jit = f" + {file.jit} JIT" if file.jit else ""
    rest = "" if file.is_complete else " seen, rest not read"
    return f"{file.sass * files}{jit} of {file.containers * files}{rest}"


def _archs(file: FileAudit) -> str:
    ptx = f"PTX {' '.join(dict.fromkeys(arch.partition(' ')[0] for arch in file.ptx_archs))}" if file.ptx_archs else ""
    return "; ".join(part for part in (" ".join(file.sass_archs), ptx) if part)


def _more(file: FileAudit, target: TargetAudit) -> Iterator[str]:
    if file.path in target.passed_over:
        yield "not taken by its loader on this GPU"
    elif file.cost:
        yield file.cost
    if file.same_as:
        yield f"the same bytes as {file.same_as}"
    if file.stubs:
        yield f"{file.stubs} suspiciously small: under 5 % of what other GPUs get, perhaps an empty stub"
    if file.verdict is AuditVerdict.DEAD and file.apart:
        yield f"{file.apart} containers for device linking are in it; they are never loaded"
    yield from file.notes


def _about(target: TargetAudit) -> Iterator[str]:
    for route in target.routes:
        if route.picks is None:
            yield f"  loader of {route.package}: finds nothing ({route.why})"
        else:
            file = next((f for f in target.files if f.path == route.picks), None)
            verdict = f"{file.verdict}, {file.sass} of {file.containers}" if file else "not audited"
            yield f"  loader of {route.package}: takes {route.picks} ({route.why}): {verdict}"
    if target.cuda_majors:
        yield f"  needs the libraries of CUDA {' and '.join(map(str, target.cuda_majors))}"
    for fault in target.faults:
        yield f"  {fault.kind}: {fault.text}"
    if target.distributions:
        yield f"  jit-source, compiled at run time: {', '.join(one.distribution for one in target.distributions)}"
    counts = Counter(file.verdict for file in target.worst_first)
    yield "  " + ("; ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no binaries")


def _common_folder(paths: Sequence[str]) -> str:
    """Said once instead of in every row."""
    folders = [path.split("/")[:-1] for path in paths]
    common: list[str] = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return "/".join(common) + "/" if len(paths) > 1 and common else ""
