"""Waiting for what happens in other processes: asked again and again, never longer than said."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.05)
