"""Runs on the controller's disk: a folder each; an append to the journal is on the disk when it returns."""

from __future__ import annotations

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
    """One run's `journal.jsonl`. Thread-safe; a torn last line (power loss) is dropped on reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()

    def append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, sort_keys=True).encode() + b"\n"
        with self._lock:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(fd, line)
                os.fsync(fd)
            finally:
                os.close(fd)

    def read(self) -> list[Mapping[str, Any]]:
        """Raises UsageError naming file and line when a line other than the last cannot be read."""
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

    def create(self, run_id: str, plan_text: str) -> FileJournal:
        folder = self._runs / run_id
        folder.mkdir(mode=0o700, parents=True)
        (folder / "plan.json").write_text(plan_text)
        return FileJournal(folder / "journal.jsonl")
