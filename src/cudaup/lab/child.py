"""Forks that never come back: a child must not go on as a second warden, whatever happens in it."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn


def fork(action: Callable[[], object]) -> int:
    """Run `action` in a child that ends with it: status 0, or 1 and the traceback in the log. Returns its pid."""
    pid = os.fork()
    if pid == 0:
        with _EndOfProcess():
            action()
    return pid


class _EndOfProcess:
    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> NoReturn:
        if error is not None:
            traceback.print_exception(error)
        os._exit(0 if error is None else 1)
