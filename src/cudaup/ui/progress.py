"""Progress as plain lines on standard error, one a step: host first, then what happened."""

from __future__ import annotations

import sys
from threading import Lock

from cudaup.domain.events import Event, Kind

_MARK = {Kind.STARTED: "...", Kind.DONE: "ok", Kind.UNCHANGED: "same", Kind.FAILED: "FAILED", Kind.NOTE: "   "}


class ProgressLines:
    """Called from many threads; whole lines only. With `is_verbose` also what hosts and plays report underway."""

    def __init__(self, *, is_verbose: bool = False) -> None:
        self._lock = Lock()
        self._is_verbose = is_verbose

    def __call__(self, event: Event) -> None:
        if event.kind is Kind.STARTED and not self._is_verbose:
            return
        if event.kind is Kind.NOTE and not self._is_verbose and not _worth_a_line(event):
            return
        with self._lock:
            sys.stderr.write(line_of(event) + "\n")
            sys.stderr.flush()


def line_of(event: Event) -> str:
    """The first line of the text; the report at the end has the whole."""
    first = event.text.partition("\n")[0]
    return f"{event.host or 'all':<12} {event.step:<20} {_MARK[event.kind]:<6} {first}".rstrip()


def _worth_a_line(event: Event) -> bool:
    """A switch is watched step by step; the rest is told when it is done."""
    return event.host == "" or event.data.get("state") == "done"
