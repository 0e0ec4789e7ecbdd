"""What happened, as values. Workers emit them, views print them; nothing else reports progress."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from cudaup.domain.value import Value


class Kind(StrEnum):
    """A no-op is not a success, so it has a kind of its own."""

    STARTED = "started"
    DONE = "done"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    NOTE = "note"


class Event(Value):
    """`host` is empty for the run itself; `time` is seconds since the epoch."""

    time: float
    host: str
    step: str
    kind: Kind
    text: str = ""
    data: dict[str, Any] = Field(default_factory=dict)
