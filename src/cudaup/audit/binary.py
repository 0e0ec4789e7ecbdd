"""What one binary carries, whoever will run it: its containers wherever they lie, and the libraries it needs."""

import re
from typing import Callable, Iterator, List, NamedTuple, Optional, Pattern, Sequence, Tuple

from cudaup.audit import cubin, elf
from cudaup.audit.fatbin import CONTAINER_MAGIC, Container, Damage, Found, Image, search, walk
from cudaup.audit.window import Kept, Passing, Window

LOADED, LINKED_APART = ".nv_fatbin", "__nv_relfatbin"
# NVIDIA's own libraries keep containers among other data there, where cuobjdump does not look.
_ELSEWHERE = frozenset({".ldata", ".lrodata", ".cask_resource", ".rodata"})
_LONGEST_NAMES = 1 << 16
_CUBIN = re.compile(rb"\x7fELF\x02\x01\x01[\x33\x41][\x07\x08]")


class Reading(NamedTuple):
    """`containers` are those that a program can load; `apart` counts the ones that only device linking reads.

    `outside` counts those found outside the section they belong in; `loose` are cubins that lie in no container.
    """

    containers: Sequence[Container] = ()
    damages: Sequence[Damage] = ()
    needs: Sequence[str] = ()
    sections: Sequence[elf.Section] = ()
    apart: int = 0
    outside: int = 0
    loose: Sequence[Image] = ()
    is_host_code: bool = True
    is_complete: bool = True
    is_scanned: bool = False


def read(window: Window) -> Reading:
    """By the named sections, or all of a file that has none. What cannot be read is in `damages`."""
    start = window.read(0, len(CONTAINER_MAGIC))
    if start == elf.MAGIC:
        return _elf(window)
    if start == CONTAINER_MAGIC:
        return _sorted(list(walk(window, 0, window.size)), Reading(is_host_code=False, is_scanned=True))
    ptx = cubin.read_ptx(window)
    if ptx:
        return Reading((Container(0, window.size, (ptx,)),), is_host_code=False, is_scanned=True)
    text = "empty file" if window.size == 0 else "neither an ELF file, a fatbin nor PTX"
    return Reading(damages=(Damage(0, text),), is_host_code=False, is_scanned=True)


def scan(window: Window, known: Reading) -> Reading:
    """The same with what lies in no section that was looked at: needed before a file may be called dead."""
    if known.is_scanned:
        return known
    found: List[Found] = []
    loose: List[Image] = []
    looked_at = sorted((s.offset, s.end) for s in known.sections if _is_looked_at(s))
    at = 0
    for start, end in [*looked_at, (window.size, window.size)]:
        here = list(search(window, at, start))
        for part in here:
            if isinstance(part, Container):
                loose += _loose(window, at, part.offset)
                at = part.end
        loose += _loose(window, at, start)
        found += here
        at = max(at, end)
    return _sorted(found, known)._replace(outside=known.outside + len(found), loose=loose, is_scanned=True)


def read_passing(stream: Passing, is_enough: Callable[[Container], bool]) -> Reading:
    """The same of a file that can be read only once. Nothing more is read once a container `is_enough`."""
    start = stream.read(0, 1 << 12)
    if start[:4] != elf.MAGIC or _is_cubin(start):
        return read(stream)
    damages = _keep_descriptions(stream)
    found: List[Found] = []
    for part in search(stream, 0, stream.size):
        found.append(part)
        if isinstance(part, Container) and is_enough(part):
            return _sorted(found, Reading(damages=damages, is_complete=False))
    return _classified(found, stream.finish(), damages)


def _elf(window: Window) -> Reading:
    try:
        head = elf.header(window)
        if head.machine == cubin.MACHINE:
            image = cubin.read_cubin(window, head)
            return Reading((Container(0, window.size, (image,)),), is_host_code=False, is_scanned=True)
    except elf.ElfError as error:
        return Reading(damages=(Damage(0, str(error)),), is_scanned=True)
    needs, damages = _needs(window, head)
    try:
        table = elf.sections(window, head)
    except elf.ElfError as error:
        damages, table = (*damages, Damage(0, str(error))), ()
    reading = Reading(damages=damages, needs=needs, sections=table)
    return _by_sections(window, reading) if table else scan(window, reading)


def _by_sections(window: Window, reading: Reading) -> Reading:
    found: List[Found] = []
    outside: List[Found] = []
    apart = at = 0
    for section in sorted(filter(_is_looked_at, reading.sections), key=lambda section: section.offset):
        start, end = max(section.offset, at), min(section.end, window.size)  # sections that overlap are read once
        at = max(at, end)
        if section.name == LINKED_APART and _has_loaded(reading.sections):
            apart += sum(1 for _ in walk(window, start, end))
        elif section.name in (LOADED, LINKED_APART):
            found += walk(window, start, end)
        else:
            outside += search(window, start, end)
        if section.end > window.size:
            found.append(Damage(section.offset, f"{section.name} ends at {section.end}, the file at {window.size}"))
    return _sorted([*found, *outside], reading._replace(apart=apart, outside=len(outside)))


def _classified(found: Sequence[Found], kept: Kept, damages: Tuple[Damage, ...]) -> Reading:
    """Which section a container lies in is only known at the end of a stream."""
    needs: Sequence[str] = ()
    table: Sequence[elf.Section] = ()
    try:
        head = elf.header(kept)
        table = elf.sections(kept, head)
        needs, more = _needs(kept, head)
        damages = (*damages, *more)
    except elf.ElfError as error:
        damages = (*damages, Damage(0, str(error)))
    except KeyError as error:
        damages = (*damages, Damage(0, f"what describes the file lies at byte {error}, too far from both ends"))
    aside = [s for s in table if s.name == LINKED_APART] if _has_loaded(table) else []
    loaded = [s for s in table if s.name in (LOADED, LINKED_APART)]
    counting = [part for part in found if not _within(part, aside)]
    outside = sum(not _within(part, loaded) for part in counting) if table else 0
    reading = Reading(damages=damages, needs=needs, sections=table, apart=len(found) - len(counting), outside=outside)
    return _sorted(counting, reading._replace(is_scanned=True))


def _within(part: Found, sections: Sequence[elf.Section]) -> bool:
    return any(section.offset <= part.offset < section.end for section in sections)


def _sorted(found: Sequence[Found], onto: Reading) -> Reading:
    containers = [part for part in found if isinstance(part, Container)]
    damages = [part for part in found if isinstance(part, Damage)]
    return onto._replace(containers=(*onto.containers, *containers), damages=(*onto.damages, *damages))


def _needs(window: Window, head: elf.Header) -> Tuple[Sequence[str], Tuple[Damage, ...]]:
    try:
        return elf.needed(window, elf.segments(window, head)), ()
    except elf.ElfError as error:
        return (), (Damage(0, f"needed libraries: {error}"),)
    except KeyError as error:
        return (), (Damage(0, f"needed libraries: byte {error} was not kept"),)


def _keep_descriptions(stream: Passing) -> Tuple[Damage, ...]:
    try:
        head = elf.header(stream.kept())
        part = elf.dynamic_segment(elf.segments(stream.kept(), head))
    except (elf.ElfError, KeyError) as error:
        return (Damage(0, f"segments: {error}"),)
    if part:
        stream.keep(part.offset, part.size)
    names = min(head.sections_at, _LONGEST_NAMES)  # the linker puts them right before the table
    stream.keep(head.sections_at - names, names + elf.SECTION_SIZE * head.sections)
    return ()


def _has_loaded(table: Sequence[elf.Section]) -> bool:
    return any(section.name == LOADED for section in table)


def _is_looked_at(section: elf.Section) -> bool:
    return section.size > 0 and (section.name in {LOADED, LINKED_APART} or section.name in _ELSEWHERE)


def _is_cubin(start: bytes) -> bool:
    return start[18:20] == cubin.MACHINE.to_bytes(2, "little")


def _loose(window: Window, start: int, end: int) -> Iterator[Image]:
    """Cubins that lie there as they are, such as CUPTI's."""
    at = window.find(_CUBIN, max(start, 1), end)
    while at >= 0:
        image = _cubin_at(window, at)
        if image:
            yield image
        at = window.find(_CUBIN, at + 1, end)


class _Shifted:
    """A window that begins at `start` of another."""

    def __init__(self, window: Window, start: int) -> None:
        self._window, self._start = window, start
        self.size = window.size - start

    def read(self, offset: int, size: int) -> bytes:
        return self._window.read(self._start + offset, size)

    def find(self, pattern: Pattern[bytes], start: int, end: int) -> int:
        found = self._window.find(pattern, self._start + start, self._start + end)
        return found - self._start if found >= 0 else -1


def _cubin_at(window: Window, offset: int) -> Optional[Image]:
    part = _Shifted(window, offset)
    try:
        head = elf.header(part)
        return cubin.read_cubin(part, head) if head.machine == cubin.MACHINE else None
    except elf.ElfError:
        return None
