"""How the host program answers: JSON lines on standard output, exactly one that is not an event, last."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Dict, Optional

from cudaup.host.clock import SYSTEM_CLOCK, Clock
from cudaup.host.layout import Layout
from cudaup.host.systemd import Systemd

Json = Dict[str, Any]

EXIT_RESULT = 0
EXIT_REFUSED = 3
EXIT_FAILED = 4
EXIT_BROKEN = 70


class Refused(Exception):
    """Nothing was changed. `code` is one of those in docs/host-program.md."""

    def __init__(self, code: str, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.fix = fix


class Failed(Exception):
    """Something was tried; `data["state"]` says in which state the host is now."""

    def __init__(self, code: str, text: str, data: Optional[Json] = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.data = data or {}


class CutShort(OSError):
    """A change that had begun when the disk failed it: something of it may be done."""


class Channel:
    """Writes the objects. A reader that went away must never stop a revert, so write errors are swallowed."""

    def __init__(self, token: str = "") -> None:
        self._prefix = token + " " if token else ""

    def send(self, obj: Json) -> None:
        try:
            sys.stdout.write(self._prefix + json.dumps(obj, sort_keys=True) + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            return

    def event(self, step: str, state: str, text: str = "", **data: Any) -> None:
        self.send({"kind": "event", "step": step, "state": state, "text": text, "data": data})


@dataclass(frozen=True)
class Context:
    """One call: where cudaup lives on this host, who asks, and what came with the request.

    `epoch` is the caller's lease epoch, None when called by hand. `stdin` is data after the request.
    """

    root: Path
    channel: Channel
    stdin: BinaryIO
    epoch: Optional[int] = None
    dry_run: bool = False
    options: Json = field(default_factory=dict)
    clock: Clock = SYSTEM_CLOCK
    systemd: Systemd = field(default_factory=Systemd)

    @property
    def layout(self) -> Layout:
        return Layout(self.root)
