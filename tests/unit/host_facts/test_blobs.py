from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.host_facts import wheels

from cudaup.host import blobs, lease
from cudaup.host.protocol import Refused

GREETER = wheels.GREETER
LISTED = {"sha256": GREETER.pin["sha256"], "name": GREETER.filename, "size": GREETER.pin["size"]}
ASKED = {**LISTED, "name": "greeter"}  # the content decides, whatever it is called


def put(root: Path, content: bytes, **settings: Any) -> wheels.Json:
    return blobs.put(wheels.context(root, content, **{**LISTED, **settings}))


def missing(root: Path) -> object:
    return blobs.missing(wheels.context(root, json.dumps([ASKED]).encode()))["missing"]


def incoming(root: Path) -> list[str]:
    return [path.name for path in (root / "blobs").iterdir()]


def test_a_blob_is_missing_until_it_was_put(tmp_path: Path) -> None:
    assert missing(tmp_path) == [GREETER.pin["sha256"]]
    assert put(tmp_path, GREETER.content + b"the next request") == {"stored": True}
    assert missing(tmp_path) == []
    stored = tmp_path / "blobs" / GREETER.pin["sha256"] / GREETER.filename
    assert stored.read_bytes() == GREETER.content
    assert stored.stat().st_mode & 0o777 == 0o644


def test_a_damaged_blob_can_be_put_again(tmp_path: Path) -> None:
    put(tmp_path, GREETER.content)
    stored = tmp_path / "blobs" / GREETER.pin["sha256"] / GREETER.filename
    stored.write_bytes(GREETER.content[:-1])
    assert missing(tmp_path) == [GREETER.pin["sha256"]]
    put(tmp_path, GREETER.content)
    assert stored.read_bytes() == GREETER.content


@pytest.mark.parametrize(
    ("content", "text"),
    [(GREETER.content[:-1], "got [0-9]+$"), (GREETER.content[:-1] + b"X", "wanted sha256 .*, got [0-9a-f]{64}")],
)
def test_other_bytes_are_refused_and_leave_nothing(tmp_path: Path, content: bytes, text: str) -> None:
    with pytest.raises(Refused, match=text) as refusal:
        put(tmp_path, content)
    assert refusal.value.code == "unsafe"
    assert incoming(tmp_path) == []


def test_a_name_that_leaves_the_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"name: '\.\./x.whl'"):
        put(tmp_path, GREETER.content, name="../x.whl")


def test_an_old_epoch_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    lease.take(wheels.context(tmp_path, holder="ann", run="r-1", reason="upgrade", ttl=60, take_over=False))
    late = wheels.context(tmp_path, GREETER.content, epoch=0, **LISTED)
    with pytest.raises(Refused) as refusal:
        blobs.put(late)
    assert refusal.value.code == "stale-epoch"
    assert late.stdin.tell() == 0


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    would = blobs.put(wheels.context(tmp_path / "root", GREETER.content, dry_run=True, **LISTED))["would"]
    assert would == f"store {GREETER.filename}, {GREETER.pin['size']} bytes"
    assert not (tmp_path / "root").exists()


def test_a_list_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        blobs.missing(wheels.context(tmp_path, b'{"a": 1}'))
