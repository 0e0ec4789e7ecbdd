"""The parts of 64-bit ELF files that an audit needs: sections, needed libraries, dynamic symbols. Reads by offset.

Everything in a file may lie: sizes are checked against the file before anything is read by them.
"""

import re
import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from cudaup.audit.window import Window

MAGIC = b"\x7fELF"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
SECTION_SIZE = _SECTION.size
_LITTLE_64 = b"\x02\x01"
_NOBITS, _DYNSYM = 8, 11
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 1, 5, 10
_ESCAPE = 0xFFFF  # the true index of the section names is in section 0
_MOST_SECTIONS, _MOST_SEGMENTS = 1 << 20, 1 << 12
_LONGEST_TABLE = 256 << 20
_WEAK = 2
_END_OF_NAME = re.compile(rb"\0")


class ElfError(ValueError):
    """It begins like an ELF file, and cannot be one."""


class Header(NamedTuple):
    machine: int
    flags: int
    ident: bytes
    segments_at: int
    segments: int
    sections_at: int
    sections: int
    names_in: int


class Section(NamedTuple):
    name: str
    kind: int
    offset: int
    size: int
    link: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def header(window: Window) -> Header:
    """Raises ElfError when it is none, cut short, or of another class than 64-bit little-endian."""
    data = window.read(0, _HEADER.size)
    if data[:4] != MAGIC:
        raise ElfError("not an ELF file")
    if len(data) < _HEADER.size:
        raise ElfError("ELF header cut short")
    if data[4:6] != _LITTLE_64:
        raise ElfError("not a 64-bit little-endian ELF file")
    ident, _, machine, _, _, phoff, shoff, flags, _, _, phnum, _, shnum, shstrndx = _HEADER.unpack(data)
    return Header(machine, flags, ident, phoff, phnum, shoff, shnum, shstrndx)


def sections(window: Window, head: Header) -> Sequence[Section]:
    """None of them where the file has no table. Raises ElfError for one that cannot be, or lies outside the file."""
    if head.sections_at == 0:
        return ()
    first = _table(window, head.sections_at, _SECTION, 1)[0]
    count = head.sections or first[5]
    names_in = first[6] if head.names_in == _ESCAPE else head.names_in
    if not 0 < count <= _MOST_SECTIONS or names_in >= count:
        raise ElfError(f"{count} sections, names in number {names_in}")
    rows = _table(window, head.sections_at, _SECTION, count)
    names = _bytes(window, rows[names_in][4], rows[names_in][5])
    return tuple(
        Section(_name(names, row[0]), row[1], row[4], 0 if row[1] == _NOBITS else row[5], row[6]) for row in rows
    )


def segments(window: Window, head: Header) -> Sequence[Segment]:
    """Raises ElfError."""
    if head.segments > _MOST_SEGMENTS:
        raise ElfError(f"{head.segments} segments")
    rows = _table(window, head.segments_at, _SEGMENT, head.segments)
    return tuple(Segment(row[0], row[2], row[3], row[5]) for row in rows)


def dynamic_segment(parts: Sequence[Segment]) -> Optional[Segment]:
    return next((part for part in parts if part.kind == _PT_DYNAMIC), None)


def needed(window: Window, parts: Sequence[Segment]) -> Sequence[str]:
    """The libraries that the loader will look for (DT_NEEDED). Raises ElfError."""
    part = dynamic_segment(parts)
    if part is None:
        return ()
    entries: List[Tuple[int, int]] = []
    for entry in _DYNAMIC.iter_unpack(_bytes(window, part.offset, part.size // _DYNAMIC.size * _DYNAMIC.size)):
        if entry[0] == 0:
            break
        entries.append((entry[0], entry[1]))
    by_tag: Dict[int, int] = dict(entries)
    if _DT_STRTAB not in by_tag:
        return ()
    at = _offset_of(by_tag[_DT_STRTAB], parts)
    found = [at + value for tag, value in entries if tag == _DT_NEEDED]
    return tuple(_text_at(window, offset, at + by_tag.get(_DT_STRSZ, 0)) for offset in found)


def undefined_symbols(window: Window, table: Sequence[Section]) -> Iterator[bytes]:
    """Names that some other library must define; weak ones may stay undefined. Raises ElfError."""
    for section in table:
        if section.kind != _DYNSYM or section.link >= len(table):
            continue
        names = _bytes(window, table[section.link].offset, table[section.link].size)
        whole = section.size // _SYMBOL.size * _SYMBOL.size
        for name, info, _other, index, _value, _size in _SYMBOL.iter_unpack(_bytes(window, section.offset, whole)):
            if index == 0 and name and info >> 4 != _WEAK:
                yield names[name : names.find(b"\0", name)]


def _table(window: Window, offset: int, row: struct.Struct, count: int) -> Sequence[Sequence[int]]:
    return list(row.iter_unpack(_bytes(window, offset, row.size * count)))


def _bytes(window: Window, offset: int, size: int) -> bytes:
    if size > _LONGEST_TABLE or offset + size > window.size:
        raise ElfError(f"{size} bytes at {offset} of a file of {window.size}")
    data = window.read(offset, size)
    if len(data) != size:
        raise ElfError(f"cut short at byte {offset + len(data)}")
    return data


def _name(names: bytes, start: int) -> str:
    return names[start : names.find(b"\0", start)].decode("utf-8", "replace")


def _text_at(window: Window, offset: int, limit: int) -> str:
    end = window.find(_END_OF_NAME, offset, min(limit, offset + 4096))
    if end < 0:
        raise ElfError(f"a name at byte {offset} has no end")
    return window.read(offset, end - offset).decode("utf-8", "replace")


def _offset_of(address: int, parts: Sequence[Segment]) -> int:
    for part in parts:
        if part.kind == _PT_LOAD and part.address <= address < part.address + part.size:
            return part.offset + address - part.address
    raise ElfError(f"address {address:#x} is not in the file")
