"""Runs on the controller's disk: a folder each; an append to the journal is on the disk when it returns."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from cudaup.adapters.folders import own_folder
from cudaup.domain.errors import UsageError


def state_directory(environ: Mapping[str, str]) -> Path:
    return own_folder(environ, "STATE", ".local/state")


class FileJournal:
    """One run's `journal.jsonl`. Thread-safe; a torn last line (power loss) is dropped on reading.

    `trouble` says why it is kept in memory only from some record on. The hosts' own journals have the truth, so what is
    under way is finished and reported; whoever holds the run begins nothing new.
    """

    def __init__(self, path: Path, trouble: str = "") -> None:
        self._path = path
        self._lock = Lock()
        self._kept: list[Mapping[str, Any]] = []
        self.trouble = trouble

    def append(self, record: Mapping[str, Any]) -> None:
        with self._lock:
            self._kept.append(record)
            try:
                if not self.trouble:
                    self._write(json.dumps(record, sort_keys=True).encode() + b"\n")
            except OSError as error:
                self.trouble = str(error)

    def _write(self, line: bytes) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.write(fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self) -> list[Mapping[str, Any]]:
        """Raises UsageError naming file and line when a line other than the last cannot be read."""
        if self.trouble:
            return list(self._kept)
        lines = self._path.read_bytes().split(b"\n")
        whole = lines[:-1]  # what follows the last newline is torn, or nothing
        records: list[Mapping[str, Any]] = []
        for number, line in enumerate(whole, 1):
            try:
                records.append(json.loads(line))
            except ValueError as error:
                raise UsageError(
                    "the run's journal is damaged",
                    where=f"{self._path}:{number}",
                    wanted="one JSON object a line",
                    found=str(error),
                    fix="keep the file as evidence; `cudaup status` reads the state from the hosts themselves",
                ) from error
        return records


class RunStore:
    """Makes and finds runs under the state directory."""

    def __init__(self, directory: Path) -> None:
        self._runs = directory / "runs"

    def create(self, run_id: str, plan_text: str, *, is_incident: bool = False) -> FileJournal:
        """Raises UsageError where runs cannot be kept; not in an incident, which must not wait for a disk."""
        folder = self._runs / run_id
        try:
            folder.mkdir(mode=0o700, parents=True)
            (folder / "plan.json").write_text(plan_text)
        except OSError as error:
            if is_incident:
                return FileJournal(folder / "journal.jsonl", str(error))
            fix = "free space, or name another folder in CUDAUP_STATE"
            raise UsageError("the run cannot be kept", where=str(folder), found=str(error), fix=fix) from error
        return FileJournal(folder / "journal.jsonl")
