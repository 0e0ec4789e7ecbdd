"""Bytes by offset, wherever they are: in memory, in a file, or passing by in a stream. Memory stays bounded."""

import os
from typing import IO, List, NamedTuple, Pattern, Protocol

_FIRST_STEP, _LONGEST_STEP = 1 << 8, 1 << 20
_OVERLAP = 15  # a match may lie across two blocks; no pattern is longer than 16 bytes

_HEAD, _TAIL = 8 << 20, 8 << 20  # what of a stream is kept: where the linker puts what describes the rest
_PASSING_STEP = 1 << 18


class Window(Protocol):
    """Offsets must grow where the bytes pass by in a stream."""

    size: int

    def read(self, offset: int, size: int) -> bytes:
        """Fewer bytes at the end."""

    def find(self, pattern: Pattern[bytes], start: int, end: int) -> int:
        """Where the first match lies that ends before `end`, or -1. Patterns have at most 16 bytes."""


class Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def find(self, pattern: Pattern[bytes], start: int, end: int) -> int:
        match = pattern.search(self._data, min(start, self.size), min(end, self.size))
        return match.start() if match else -1


class File:
    """Read, not mapped: a file that shrinks underneath is a short read, not a SIGBUS."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._block, self._at = b"", 0

    def read(self, offset: int, size: int) -> bytes:
        start = offset - self._at
        if start >= 0 and start + size <= len(self._block):
            return self._block[start : start + size]
        if offset >= self.size:  # perhaps more than any system call takes
            return b""
        return os.pread(self._descriptor, size, offset)

    def find(self, pattern: Pattern[bytes], start: int, end: int) -> int:
        step, offset, end = _FIRST_STEP, start, min(end, self.size)
        while offset < end:
            block = os.pread(self._descriptor, min(step, end - offset), offset)
            match = pattern.search(block)
            if match:
                self._block, self._at = block, offset
                return offset + match.start()
            if len(block) <= _OVERLAP:
                return -1
            offset += len(block) - (_OVERLAP if offset + len(block) < end else 0)
            step = min(step * 4, _LONGEST_STEP)
        return -1


class Span(NamedTuple):
    start: int
    data: bytes


class Passing:
    """A stream read once. Its beginning, its end and the ranges asked for in time are kept, and can be read later."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self.size = size
        self._at, self._block = 0, b""
        self._kept: List[Span] = []
        self._tail: List[Span] = []
        self._wanted: List[range] = []

    def keep(self, start: int, size: int) -> None:
        """Ask for a range that lies ahead. What is behind already, or larger than the beginning, is not kept."""
        self._wanted.append(range(start, start + min(size, _HEAD)))

    def read(self, offset: int, size: int) -> bytes:
        while offset + size > self._at + len(self._block) and self._more(offset):
            pass
        return self._block[offset - self._at : offset - self._at + size]

    def find(self, pattern: Pattern[bytes], start: int, end: int) -> int:
        offset, end = start, min(end, self.size)
        while offset < end:
            match = pattern.search(self._block, max(offset - self._at, 0), max(end - self._at, 0))
            if match:
                return self._at + match.start()
            offset = max(offset, self._at + len(self._block) - _OVERLAP)
            if not self._more(offset):
                return -1
        return -1

    def finish(self) -> "Kept":
        """Read on to the end, and what was kept."""
        while self._more(self.size):
            pass
        return self.kept()

    def kept(self) -> "Kept":
        return Kept([*self._kept, *self._tail], self.size)

    def _more(self, needed: int) -> bool:
        """The next piece, behind what is still needed of the last. False at the end."""
        data = self._stream.read(_PASSING_STEP)
        if not data:
            return False
        end = self._at + len(self._block)
        self._remember(Span(end, data))
        start = min(max(needed, self._at), end)
        self._block, self._at = self._block[start - self._at :] + data, start
        return True

    def _remember(self, span: Span) -> None:
        end = span.start + len(span.data)
        if span.start < _HEAD or any(want.start < end and span.start < want.stop for want in self._wanted):
            self._kept.append(span)
        else:
            self._tail.append(span)
            if len(self._tail) > _TAIL // _PASSING_STEP:
                self._tail.pop(0)


class Kept:
    """What was remembered of a stream. Reading what was not raises KeyError."""

    def __init__(self, spans: List[Span], size: int) -> None:
        self._spans = spans
        self.size = size

    def read(self, offset: int, size: int) -> bytes:
        parts = []
        while size > 0 and offset < self.size:
            span = next((s for s in self._spans if s.start <= offset < s.start + len(s.data)), None)
            if span is None:
                raise KeyError(offset)
            part = span.data[offset - span.start : offset - span.start + size]
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)

    def find(self, pattern: Pattern[bytes], start: int, end: int) -> int:
        match = pattern.search(self.read(start, min(end, self.size) - start)) if start < self.size else None
        return start + match.start() if match else -1
