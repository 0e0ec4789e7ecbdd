"""Which names a shared object exports, asked one by one through its GNU hash table: the loader's own way, and cheap."""

import struct
from typing import Sequence

from cudaup.audit.elf import ElfError, Section
from cudaup.audit.window import Window

_HEADER = struct.Struct("<IIII")
_SYMBOL_SIZE = 24
_LONGEST_CHAIN = 1 << 16


class Exports:
    """Raises ElfError when the file has no usable table."""

    def __init__(self, window: Window, table: Sequence[Section]) -> None:
        self._window = window
        by_name = {section.name: section for section in table}
        try:
            self._hash, self._symbols, self._names = (by_name[n] for n in (".gnu.hash", ".dynsym", ".dynstr"))
        except KeyError as error:
            raise ElfError(f"no section {error}") from error
        data = window.read(self._hash.offset, _HEADER.size)
        if len(data) < _HEADER.size:
            raise ElfError("hash table cut short")
        self._buckets, self._first, self._words, self._shift = _HEADER.unpack(data)
        if not self._buckets or not self._words:
            raise ElfError("empty hash table")
        self._bloom_at = self._hash.offset + _HEADER.size
        self._buckets_at = self._bloom_at + 8 * self._words
        self._chains_at = self._buckets_at + 4 * self._buckets

    def has(self, name: bytes) -> bool:
        value = gnu_hash(name)
        word = self._number("<Q", self._bloom_at + 8 * ((value // 64) % self._words))
        if not (word >> (value % 64) & 1 and word >> ((value >> self._shift) % 64) & 1):
            return False
        index = self._number("<I", self._buckets_at + 4 * (value % self._buckets))
        return index >= self._first and self._is_in_chain(name, value, index)

    def _is_in_chain(self, name: bytes, value: int, start: int) -> bool:
        for index in range(start, start + _LONGEST_CHAIN):
            chained = self._number("<I", self._chains_at + 4 * (index - self._first))
            if chained | 1 == value | 1 and self._name_of(index, len(name)) == name + b"\0":
                return True
            if chained & 1:
                return False
        return False

    def _name_of(self, index: int, length: int) -> bytes:
        offset = self._number("<I", self._symbols.offset + _SYMBOL_SIZE * index)
        return self._window.read(self._names.offset + offset, length + 1)

    def _number(self, layout: str, offset: int) -> int:
        data = self._window.read(offset, struct.calcsize(layout))
        if len(data) < struct.calcsize(layout):
            raise ElfError("hash table cut short")
        return int(struct.unpack(layout, data)[0])


def gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
