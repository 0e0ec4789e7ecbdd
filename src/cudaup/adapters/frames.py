"""The broker's wire format: one kind byte, four length bytes, the payload. Standard library only."""

from __future__ import annotations

import socket
import struct
from enum import Enum

_HEAD = struct.Struct(">cI")
_LIMIT = 64 * 1024 * 1024
CHUNK = 64 * 1024


class FrameKind(Enum):
    """REQUEST, STDIN and STDIN_END go to the broker, the rest comes back; DONE or FAILED is last."""

    REQUEST = b"R"
    STDIN = b"I"
    STDIN_END = b"E"
    STDOUT = b"O"
    STDERR = b"S"
    DONE = b"D"
    FAILED = b"F"


def send(to: socket.socket, kind: FrameKind, payload: bytes = b"") -> None:
    to.sendall(_HEAD.pack(kind.value, len(payload)) + payload)


def receive(of: socket.socket) -> tuple[FrameKind, bytes] | None:
    """None when the other side is gone. Raises ValueError for what is not a frame."""
    head = _exactly(of, _HEAD.size)
    if head is None:
        return None
    letter, length = _HEAD.unpack(head)
    if length > _LIMIT:
        raise ValueError(f"a frame of {length} bytes")
    payload = _exactly(of, length)
    return None if payload is None else (FrameKind(letter), payload)


def _exactly(of: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = of.recv(min(size - len(data), CHUNK))
        if not part:
            return None
        data += part
    return bytes(data)
