"""The lock beside its stack: `mine.yml` has `mine.lock.json`. One key a line and a stable order, for reviews."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from cudaup.domain.errors import UsageError
from cudaup.domain.locking import Lock

_FIX = "write it anew: `cudaup lock`"


def lock_path(stack: Path) -> Path:
    return stack.with_suffix(".lock.json")


def read_lock(stack: Path) -> Lock | None:
    """None when there is none. Raise UsageError for a file that is no lock of this version."""
    path = lock_path(stack)
    try:
        return Lock.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError("the lock cannot be read", where=str(path), found=error.strerror or str(error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        told = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UsageError("this is no lock", where=str(path), wanted="schema 1", found=told, fix=_FIX) from error


def write_lock(stack: Path, lock: Lock) -> Path:
    """The old file or the whole new one. Raise UsageError when it cannot be written."""
    path = lock_path(stack)
    scratch = path.with_name(f".{path.name}.new")
    try:
        scratch.write_text(lock.model_dump_json(indent=1, exclude_none=True) + "\n")
        os.replace(scratch, path)  # noqa: PTH105 - the atomic step, named as such
    except OSError as error:
        raise UsageError("the lock cannot be written", where=str(path), found=error.strerror or str(error)) from error
    return path
