"""The host's journal: append-only JSON lines, each on disk before its writer goes on.

A line torn by a power loss is ignored by readers and closed off by the next append. Room for what comes next is
allocated beforehand, so that a full disk stops no record.
"""

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from typing import Dict, Iterator, List, Optional

from cudaup.host.clock import SYSTEM_CLOCK, Clock
from cudaup.host.files import FULL, allocate, exchange, fsync_dir, give_up_one, open_own, read_own, write_atomic
from cudaup.host.layout import Layout
from cudaup.host.protocol import Json

INTENT, DONE, FAILED = "intent", "done", "failed"
_AHEAD_BYTES = 64 << 10
_LONG_BYTES = 128 << 10  # it is read whole for each intent, also in the middle of a switch


class Journal:
    def __init__(self, layout: Layout, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path, self._older, self._reserve = layout.journal, layout.older_journal, layout.ballast
        self._clock = clock
        self._begun: Dict[int, Json] = {}

    def intent(self, op: str, epoch: int, detail: Json) -> int:
        """Say what is about to be done; returns the number its outcome refers to."""
        with self._opened() as fd:
            entries = _parse(_content(fd))
            seq = max((entry["seq"] for entry in entries), default=0) + 1
            self._begun[seq] = {"seq": seq, "epoch": epoch, "op": op}
            self._append(fd, {**self._begun[seq], "phase": INTENT, "detail": detail})
        return seq

    def done(self, seq: int, detail: Optional[Json] = None) -> None:
        self._outcome(seq, DONE, detail)

    def failed(self, seq: int, detail: Optional[Json] = None) -> None:
        self._outcome(seq, FAILED, detail)

    def is_there(self) -> bool:
        return self._path.exists()

    def entries(self) -> List[Json]:
        try:
            return _parse(read_own(self._path))
        except FileNotFoundError:
            return []

    def open_intents(self) -> List[Json]:
        """Intents without an outcome, oldest first."""
        return _open_of(self.entries())

    def shorten(self) -> None:
        """A long one begins anew with what may still be asked for: open intents, and the last record of each kind.

        The whole of it stays beside it, until the next time. On a full disk it simply grows on.
        """
        with suppress(OSError), self._opened() as fd:
            if os.fstat(fd).st_size > _LONG_BYTES:
                write_atomic(self._older, b"".join(map(_line, _still_asked_for(_parse(_content(fd))))))
                exchange(self._path, self._older)

    def _outcome(self, seq: int, phase: str, detail: Optional[Json]) -> None:
        with self._opened() as fd:
            begun = self._begun.get(seq) or _intent(_parse(_content(fd)), seq)
            self._append(fd, {**begun, "phase": phase, "detail": detail or {}})

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file under a lock of its own: sequence numbers are handed out once."""
        is_new = not self._path.exists()
        fd = self._locked()
        try:
            if is_new:
                fsync_dir(self._path.parent)
            yield fd
        finally:
            os.close(fd)

    def _locked(self) -> int:
        while True:
            fd = open_own(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if self._is_the_journal(fd):
                return fd
            os.close(fd)  # it was shortened while we waited

    def _is_the_journal(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self._path.stat())
        except FileNotFoundError:  # forgotten, with everything else
            return True

    def _append(self, fd: int, entry: Json) -> None:
        stamp = {"time": self._clock.wall(), "boot_id": self._clock.boot_id(), "mono": self._clock.monotonic()}
        line = _line({**entry, **stamp})
        size = os.fstat(fd).st_size
        allocate(fd, size + _AHEAD_BYTES)
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line  # the line before was torn: close it off
        view = memoryview(line)
        while view:
            view = view[self._written(fd, view) :]
        os.fsync(fd)

    def _written(self, fd: int, view: memoryview) -> int:
        try:
            return os.write(fd, view)
        except OSError as error:  # allocated or not: btrfs and its like never write where they wrote before
            if error.errno not in FULL or not give_up_one(self._reserve):
                raise
        return self._written(fd, view)


def _still_asked_for(entries: List[Json]) -> List[Json]:
    """The last of each kind that was begun (so also the highest number), that was done, and that failed."""
    last = {(entry["op"], entry["phase"]): entry["seq"] for entry in entries}
    wanted = {*last.values(), *(entry["seq"] for entry in _open_of(entries))}
    return [entry for entry in entries if entry["seq"] in wanted]


def _intent(entries: List[Json], seq: int) -> Json:
    """What another process began, as recovery finds it."""
    found = next(entry for entry in entries if entry["seq"] == seq and entry["phase"] == INTENT)
    return {key: found[key] for key in ("seq", "epoch", "op")}


def _open_of(entries: List[Json]) -> List[Json]:
    pending: Dict[int, Json] = {}
    for entry in entries:
        if entry["phase"] == INTENT:
            pending[entry["seq"]] = entry
        else:
            pending.pop(entry["seq"], None)
    return list(pending.values())


def _line(entry: Json) -> bytes:
    return json.dumps(entry, sort_keys=True).encode() + b"\n"


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _parse(content: bytes) -> List[Json]:
    parsed = (_parse_line(line) for line in content.splitlines())
    return [entry for entry in parsed if entry is not None]


def _parse_line(line: bytes) -> Optional[Json]:
    """None for a torn line: a prefix of a JSON object never parses."""
    try:
        entry: Json = json.loads(line.decode())
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "seq" in entry else None
