"""Loose GPU code: a stand-alone cubin (an ELF file for the GPU) and PTX text."""

import re
import struct
from typing import Optional

from cudaup.audit import elf
from cudaup.audit.fatbin import Image
from cudaup.audit.window import Window

MACHINE = 190
_OLD_ABI, _NEW_ABI = 7, 8  # ident byte 8: where e_flags hold the arch depends on it
_OLD_A, _NEW_A = 0x800, 0x8
_COMPAT = ".nv.compat"
_COMPAT_ARCH_SPECIFIC = (9, 1)
_COMPAT_PLAIN, _COMPAT_LONG = 2, 4
_LONGEST_COMPAT = 1 << 16

_VERSION = re.compile(rb"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(rb"^\s*\.target\s+sm_(\d+)([af]?)\b", re.MULTILINE)
_PTX_HEAD = 1 << 14


def read_cubin(window: Window, head: elf.Header) -> Image:
    """Its `f` is not written anywhere one can rely on: family code has the plain arch here. Raises ElfError."""
    abi = head.ident[8]
    if abi == _OLD_ABI:
        sm, is_specific = head.flags & 0xFF, bool(head.flags & _OLD_A)
    elif abi == _NEW_ABI:
        sm = head.flags >> 8 & 0xFFFF
        is_specific = bool(head.flags & _NEW_A) or _is_specific_by_compat(window, head)
    else:
        raise elf.ElfError(f"a cubin of the unknown ABI {abi}")
    return Image("sass", sm, "a" if is_specific else "", (1, abi), "", window.size, window.size)


def read_ptx(window: Window) -> Optional[Image]:
    """None where the text is no PTX."""
    text = window.read(0, _PTX_HEAD)
    version, target = _VERSION.search(text), _TARGET.search(text)
    if not version or not target:
        return None
    isa = int(version.group(1)), int(version.group(2))
    return Image("ptx", int(target.group(1)), target.group(2).decode(), isa, "", window.size, window.size)


def _is_specific_by_compat(window: Window, head: elf.Header) -> bool:
    for section in elf.sections(window, head):
        if section.name == _COMPAT:
            return _has_attribute(window.read(section.offset, min(section.size, _LONGEST_COMPAT)))
    return False


def _has_attribute(data: bytes) -> bool:
    at = 0
    while at + 4 <= len(data):
        layout, key, value, _ = data[at : at + 4]
        if layout == _COMPAT_PLAIN and (key, value) == _COMPAT_ARCH_SPECIFIC:
            return True
        at += 4 + (struct.unpack_from("<H", data, at + 2)[0] if layout == _COMPAT_LONG else 0)
    return False
