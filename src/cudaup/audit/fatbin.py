"""Reads which GPU code a fatbin or a cubin holds, from its headers alone. Nothing is decompressed.

NVIDIA documents neither format: this is what 16,901 entries of 108 real libraries have in common, and it agrees with
cuobjdump on every one of them (which prints family code, "120f", without its suffix).
"""

import struct
from typing import Iterator, NamedTuple, Sequence

CONTAINER_MAGIC = b"\x50\xed\x55\xba"
_CONTAINER = struct.Struct("<4sHHQ")  # magic, version, header size, bytes of entries behind the header
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_ENTRY_VERSION = 0x0101
_KINDS = {1: "ptx", 2: "sass", 8: "lto-ir"}

_LZ4, _ZSTD = 0x2000, 0x8000
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_EM_CUDA = 190
_OSABI_NEW = 0x41  # CUDA 12 for archs from 100 on, CUDA 13 for all
_COMPAT_ARCH_SPECIFIC = 9  # key in .nv.compat


class FatbinError(ValueError):
    """The bytes are not what they should be; the text says where."""


class Image(NamedTuple):
    """One piece of GPU code. `arch` has its suffix ("120", "120a", "120f").

    `version` is the PTX ISA for PTX and the cubin ABI for SASS. `size` is what is stored; `unpacked` is equal to it
    unless the image is compressed.
    """

    kind: str
    arch: str
    version: str
    size: int
    unpacked: int
    compression: str


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
        minor, major, sm = fields[6:9]
        flags, unpacked = fields[11], fields[13]
        yield Image(
            kind=_KINDS.get(kind, f"kind-{kind}"),
            arch=f"{sm}{_suffix(flags)}",
            version=f"{major}.{minor}",
            size=size,
            unpacked=unpacked or size,
            compression="lz4" if flags & _LZ4 else "zstd" if flags & _ZSTD else "none",
        )
        offset = following


def _suffix(flags: int) -> str:
    return "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""


def cubin_arch(data: bytes) -> str:
    """The arch of a stand-alone cubin. A family suffix ("120f") is not recorded in one. Raises FatbinError."""
    if len(data) < 64 or data[:6] != _ELF64_LITTLE or struct.unpack_from("<H", data, 18)[0] != _EM_CUDA:
        raise FatbinError("not a cubin")
    flags = struct.unpack_from("<I", data, 0x30)[0]
    if data[7] != _OSABI_NEW:
        return str(flags & 0xFF) + ("a" if flags & 0x800 else "")
    is_specific = bool(flags & 0x8) or _is_arch_specific(_section(data, b".nv.compat"))
    return str(flags >> 8 & 0xFFFF) + ("a" if is_specific else "")


def _section(data: bytes, wanted: bytes) -> bytes:
    """A section's content by name, empty when there is none."""
    table = struct.unpack_from("<Q", data, 0x28)[0]
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    try:
        headers = [struct.unpack_from("<IIQQQQ", data, table + i * entry_size) for i in range(count)]
        names = headers[names_index][4]
        for header in headers:
            start = names + header[0]
            if data[start : data.index(b"\0", start)] == wanted:
                return data[header[4] : header[4] + header[5]]
    except (struct.error, IndexError, ValueError) as error:
        raise FatbinError(f"damaged section table: {error}") from error
    return b""


def _is_arch_specific(compat: bytes) -> bool:
    """Walk `.nv.compat`: 4-byte attributes {format, key, value, 0}; format 4 carries that many bytes more."""
    offset = 0
    while offset + 4 <= len(compat):
        form, key, value, high = compat[offset : offset + 4]
        if (form, key, value) == (2, _COMPAT_ARCH_SPECIFIC, 1):
            return True
        offset += 4 + (value | high << 8 if form == 4 else 0)
    return False
