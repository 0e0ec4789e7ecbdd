"""A delay line in user space: every frame that enters one TAP leaves the other one so much later."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import NoReturn

from cudaup.lab import kernel

_FRAME = 65536
Taps = tuple[int, int]


def open_taps(one: str, other: str) -> Taps:
    return kernel.open_tap(one), kernel.open_tap(other)


def serve(taps: Taps, delay_s: float, clock: Callable[[], float] = time.monotonic) -> NoReturn:
    """The delay line's process; it ends by a signal, and its TAPs go with it."""
    other = {taps[0]: taps[1], taps[1]: taps[0]}
    waiting: deque[tuple[float, int, bytes]] = deque()  # one delay for all, so they leave in the order they came
    while True:
        timeout_s = max(0.0, waiting[0][0] - clock()) if waiting else None
        for tap in select.select(taps, [], [], timeout_s)[0]:
            waiting += [(clock() + delay_s, other[tap], frame) for frame in _read_all(tap)]
        while waiting and waiting[0][0] <= clock():
            _, tap, frame = waiting.popleft()
            _write(tap, frame)


def _read_all(tap: int) -> list[bytes]:
    frames = []
    try:
        while True:
            frames.append(os.read(tap, _FRAME))
    except BlockingIOError:
        return frames


def _write(tap: int, frame: bytes) -> None:
    try:
        os.write(tap, frame)
    except OSError:
        return  # an interface that is down or full loses frames, as any does
