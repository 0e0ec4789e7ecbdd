"""What is there on the host, in the words of the model, and whether it may be there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.property.host_model import QUARANTINED, REVERTING, Generation, Lease, Model, Pending

from cudaup.host.protocol import Json


def assert_cut_short(before: Model, after: Model, seen: Model, *, by_hand: bool) -> None:
    """A killed command left the host before it, after it, or in a transit that can be finished."""
    assert seen.lease.epoch in {before.lease.epoch, after.lease.epoch, *([before.next_epoch()] if by_hand else [])}
    if before.lease.state == QUARANTINED != after.lease.state:
        assert seen.lease.state in {QUARANTINED, after.lease.state}
    links = (seen.current, seen.previous)
    if seen.pending:
        assert seen.current in {seen.pending.origin, seen.pending.target}
    elif (before.adopted, before.adopted) == (after.adopted, seen.adopted):
        assert links in {(before.current, before.previous), (after.current, after.previous)}
    is_the_same = (before.current, before.previous, before.served) == (seen.current, seen.previous, seen.served)
    if before.pending and seen.pending and not is_the_same:
        assert seen.pending.phase == REVERTING  # so that it goes on at once
    if before.served and not seen.served and seen.pending:
        assert seen.pending.phase != "armed"  # the record comes before the stop
    for name, generation in seen.generations.items():
        was = before.generations.get(name)
        if was and generation.confirmed and not was.confirmed:
            assert after.generations[name].confirmed


def assert_switched_to_what_verifies(before: Model, seen: Model) -> None:
    """Or, where that is the only way back, it is still on its way, or says in the end that it is not proven."""
    if seen.current not in {before.current, None} and not seen.generations[str(seen.current)].verifies:
        pending = seen.pending
        is_going_back = pending and (pending.phase, pending.origin) == (REVERTING, seen.current)
        assert is_going_back or seen.lease.state == QUARANTINED


def assert_one_after_the_other(before: Model, between: Model, after: Model, answers: list[str]) -> None:
    """`between` is what the second left behind; `answers` are its own, if its moment came, and the first's."""
    assert after.lease.epoch >= between.lease.epoch >= before.lease.epoch
    begun = between.pending if before.pending is None else None
    if begun and begun.epoch < between.lease.epoch and begun.phase in {"armed", "stopped"}:
        assert answers[-1].startswith("failed abandoned"), answers  # its lease was taken over
    assert not ("confirmed" in answers and any(answer.startswith("reverted") for answer in answers))
    rolled_back = any(answer.startswith("rolled-back") for answer in answers)
    if "confirmed" in answers and not rolled_back and not after.pending:
        assert after.current is not None
        assert after.last_confirmed is not None
        assert (after.current, after.generations[after.current].confirmed) == (after.last_confirmed[1], True)
    if not after.pending and before.generations[str(before.current)].confirmed:
        assert after.lease.state == QUARANTINED or after.generations[str(after.current)].confirmed


def in_words(answer: Json) -> str:
    """The model's answer to the same command."""
    if "lease" in answer:
        return f"epoch {answer['lease']['epoch']}"
    if "removed" in answer:
        return " ".join(["removed", *sorted(answer["removed"])])
    if "changed" in answer:
        return "changed" if answer["changed"] else "unchanged"
    if "ok" in answer:
        return "ok" if answer["ok"] else "not ok"
    state = str(answer.get("state", "not due"))
    return "settled" if state == "clean" else state


def read(path: Path) -> Json:
    found: Json = json.loads(path.read_text())
    return found


def read_lease(path: Path) -> Lease:
    if not path.exists():
        return Lease()
    found = read(path)
    return Lease(found["state"], found["epoch"], found["run"], found["ttl_s"], found["renewed"], found["boot_id"])


def read_transit(path: Path) -> Pending | None:
    if not path.exists():
        return None
    found = read(path)
    keys = ("from", "to", "previous", "epoch", "boot_id", "deadline", "ceiling", "phase", "ttl_s")
    return Pending(*(found[key] for key in keys))


def names(link: Path) -> str | None:
    return link.readlink().name if link.is_symlink() else None


def without_times(model: Model) -> Model:
    """To compare: the moment itself, and when a generation was proven, only have an order."""
    copy = model.copy()
    copy.at, copy.wall, copy.boot, copy.booted = 0.0, 0.0, "", 0.0
    for name, found in copy.generations.items():
        copy.generations[name] = Generation(**{**vars(found), "proven": float(bool(found.proven))})
    return copy


def listing(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything cudaup keeps, but for what is no content: locks, and files that somebody was killed over writing."""
    found: dict[str, tuple[Any, ...]] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in {"venv", "ballast"}]
        for path in (Path(place, name) for name in (*folders, *files) if not name.endswith((".new", "lock"))):
            info = path.lstat()
            stamp = (info.st_mtime_ns, info.st_size) if path.name in files else ()
            found[str(path.relative_to(folder))] = (info.st_mode, names(path), *stamp)
    return found


def picture(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Of the host without cudaup: every file with its inode, time and content."""
    found = {}
    for path in folder.rglob("*"):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        is_root = "cudaup" in path.relative_to(folder).parts
        if not is_root:
            times = (info.st_mtime_ns,) if path.parent != folder else ()
            found[str(path.relative_to(folder))] = (info.st_ino, info.st_mode, *times, names(path), content)
    return found
