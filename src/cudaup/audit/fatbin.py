"""Reads which GPU code a fatbin holds, from its headers alone. Nothing is decompressed.

NVIDIA does not document the format: this is what 16,901 entries of 108 real libraries have in common, and it agrees
with cuobjdump on every one of them (which prints family code, "120f", without its suffix).
"""

import re
import struct
from typing import Iterator, List, NamedTuple, Sequence, Tuple, Union

from cudaup.audit.window import Bytes, Window

CONTAINER_MAGIC = b"\x50\xed\x55\xba"
_CONTAINER = struct.Struct("<4sHHQ")  # magic, version, header size, bytes of entries behind the header
_CONTAINER_VERSION = 1
_START = struct.Struct("<4sHHQHHIQ")  # the container's header and the beginning of its first entry's
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_ENTRY_VERSION = 0x0101
_LONGEST_ENTRY_HEADER = 1 << 16
_MOST_PARTS, _MOST_ENTRIES, _MOST_DAMAGES = 1 << 18, 1 << 12, 1 << 10  # cuFFT has 24,000 containers of one image
_KINDS = {1: "ptx", 2: "sass", 8: "lto-ir"}

_LZ4, _ZSTD = 0x2000, 0x8000
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000

_ANY_CONTAINER = re.compile(re.escape(CONTAINER_MAGIC))
# Among other data only the version that is known counts: four bytes alone are found in code too.
_SURE_CONTAINER = re.compile(re.escape(CONTAINER_MAGIC + struct.pack("<HH", _CONTAINER_VERSION, _CONTAINER.size)))


class FatbinError(ValueError):
    """The bytes are not what they should be; the text says where."""


class Image(NamedTuple):
    """One piece of GPU code for `sm` and `suffix`; `unpacked` is its size in bytes, `stored` what it takes here.

    `version` is the PTX ISA of PTX, and the cubin's ABI of SASS.
    """

    kind: str
    sm: int
    suffix: str
    version: Tuple[int, int]
    packing: str
    stored: int
    unpacked: int

    @property
    def arch(self) -> str:
        return f"{self.sm}{self.suffix}"


class Container(NamedTuple):
    """What one translation unit or library brought: the driver picks one image of it."""

    offset: int
    end: int
    images: Tuple[Image, ...]


class Damage(NamedTuple):
    """A place that could not be read, and why."""

    offset: int
    text: str


Found = Union[Container, Damage]


def parse_fatbin(data: bytes) -> Sequence[Image]:
    """Every image of a run of containers, as in a `.fatbin` file or a `.nv_fatbin` section. Raises FatbinError."""
    images: List[Image] = []
    found = list(walk(Bytes(data), 0, len(data)))
    for part in found:
        if isinstance(part, Damage):
            raise FatbinError(f"byte {part.offset}: {part.text}")
        images.extend(part.images)
    if not found:
        raise FatbinError("no fatbin container in it")
    return tuple(images)


def walk(window: Window, start: int, end: int) -> Iterator[Found]:
    """A run of containers and nothing else: what is neither container nor padding is told and passed over."""
    return _bounded(_walk(window, start, end), start)


def search(window: Window, start: int, end: int) -> Iterator[Found]:
    """Containers among other data: only what surely is one counts. They are 8-aligned."""
    return _bounded(_search(window, start, end), start)


def _bounded(parts: Iterator[Found], start: int) -> Iterator[Found]:
    """Made to hold millions of headers of nothing, a file would fill the memory."""
    weight = damages = 0
    for part in parts:
        yield part
        weight += 1 + (len(part.images) if isinstance(part, Container) else 0)
        damages += isinstance(part, Damage)
        if weight > _MOST_PARTS or damages > _MOST_DAMAGES:
            yield Damage(start, f"more than {_MOST_PARTS} images or {_MOST_DAMAGES} bad places: the rest is not read")
            return


def _walk(window: Window, start: int, end: int) -> Iterator[Found]:
    offset = start
    while offset < end:
        found = window.find(_ANY_CONTAINER, offset, end)
        stop = found if found >= 0 else end
        if not _is_padding(window, offset, stop):
            yield Damage(offset, "neither a fatbin container nor padding")
        if found < 0:
            return
        part, offset = _container(window, found, end)
        yield part


def _search(window: Window, start: int, end: int) -> Iterator[Found]:
    offset = start
    while offset < end:
        offset = window.find(_SURE_CONTAINER, offset, end)
        if offset < 0:
            return
        if offset % 8 == 0 and _is_sure(window.read(offset, _START.size), end - offset):
            part, offset = _container(window, offset, end)
            yield part
        else:
            offset += 1


def _is_padding(window: Window, start: int, end: int) -> bool:
    step = 1 << 16
    return all(not window.read(at, min(step, end - at)).strip(b"\0") for at in range(start, end, step))


def _is_sure(data: bytes, room: int) -> bool:
    """Whether header and first entry fit each other, so that passing over the whole is safe."""
    if len(data) < _START.size:
        return len(data) >= _CONTAINER.size and not any(data[8:16])
    _, _, _, size, kind, version, header_size, stored = _START.unpack(data)
    if size % 8 or size > room - _CONTAINER.size:
        return False
    fits = _ENTRY.size <= header_size <= _LONGEST_ENTRY_HEADER and header_size + stored <= size
    return bool(size == 0 or (fits and version == _ENTRY_VERSION and 0 < kind < 64))


def _container(window: Window, offset: int, end: int) -> Tuple[Found, int]:
    """What starts at `offset`, and where to go on: behind it, or just behind its magic when its size cannot be."""
    behind_magic = offset + len(CONTAINER_MAGIC)
    header = window.read(offset, _CONTAINER.size)
    if len(header) < _CONTAINER.size or end - offset < _CONTAINER.size:
        return Damage(offset, "container header cut short"), end
    _magic, version, header_size, size = _CONTAINER.unpack(header)
    if (version, header_size) != (_CONTAINER_VERSION, _CONTAINER.size):
        return Damage(offset, f"container version {version}, header of {header_size} bytes"), behind_magic
    stop = int(offset + header_size + size)
    if stop > end:
        return Damage(offset, f"container ends at {stop}, the data at {end}"), behind_magic
    try:
        return Container(offset, stop, _entries(window, offset + header_size, stop)), stop
    except FatbinError as error:
        return Damage(offset, str(error)), stop


def _entries(window: Window, offset: int, end: int) -> Tuple[Image, ...]:
    images: List[Image] = []
    read, size, unpack = window.read, _ENTRY.size, _ENTRY.unpack
    while offset < end:
        data = read(offset, size)
        if end - offset < size or len(data) < size:
            raise FatbinError(f"entry header at byte {offset} cut short")
        kind, version, header_size, stored, _packed, _, minor, major, sm, _, _, flags, _, unpacked = unpack(data)
        following = offset + header_size + stored
        if version != _ENTRY_VERSION:
            raise FatbinError(f"entry at byte {offset} has the unknown version {version:#06x}")
        if header_size < size or following > end:
            raise FatbinError(f"not an entry header at byte {offset}")
        if len(images) == _MOST_ENTRIES:
            raise FatbinError(f"a container with more than {_MOST_ENTRIES} images")
        suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
        packing = "lz4" if flags & _LZ4 else "zstd" if flags & _ZSTD else ""
        name = _KINDS.get(kind) or f"kind-{kind}"
        # The size is 0 unless it is compressed.
        images.append(Image(name, sm, suffix, (major, minor), packing, stored, unpacked or stored))
        offset = following
    return tuple(images)
