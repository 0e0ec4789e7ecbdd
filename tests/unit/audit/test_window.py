"""The same bytes asked for by offset in memory, in a file and in a stream."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

from cudaup.audit import window
from cudaup.audit.window import Bytes, File, Passing

DATA = bytes(range(256)) * 40 + b"needle" + bytes(3000) + b"needle"
NEEDLE = re.compile(b"needle")
FIRST, SECOND = 10240, 13246


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every match lies across blocks somewhere, and not everything is kept."""
    monkeypatch.setattr(window, "_PASSING_STEP", 10243)
    monkeypatch.setattr(window, "_FIRST_STEP", 73)
    monkeypatch.setattr(window, "_LONGEST_STEP", 1000)


def test_a_file_is_searched_across_blocks_and_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(DATA)
    descriptor = os.open(tmp_path / "f", os.O_RDONLY)
    for source in (File(descriptor), Bytes(DATA)):
        assert {source.find(NEEDLE, start, source.size) for start in range(1000)} == {FIRST}
        assert source.find(NEEDLE, FIRST + 1, source.size) == SECOND
        assert source.find(NEEDLE, FIRST + 1, source.size - 1) == -1
        assert source.find(NEEDLE, 0, FIRST + 5) == -1
        assert source.read(FIRST, 6) == b"needle"
        assert source.read(len(DATA) - 2, 10) == b"le"
    os.close(descriptor)


def test_a_file_that_shrinks_is_a_short_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(DATA)
    descriptor = os.open(path, os.O_RDONLY)
    source = File(descriptor)
    os.truncate(path, 100)
    assert source.find(NEEDLE, 0, source.size) == -1
    assert source.read(90, 20) == DATA[90:100]
    os.close(descriptor)


def test_a_stream_is_read_forwards_once() -> None:
    stream = Passing(io.BytesIO(DATA), len(DATA))
    assert stream.read(0, 4) == DATA[:4]
    assert stream.find(NEEDLE, 0, stream.size) == FIRST
    assert stream.read(FIRST, 6) == b"needle"
    assert stream.read(FIRST, 300) == DATA[FIRST : FIRST + 300]
    assert stream.find(NEEDLE, FIRST + 1, stream.size) == SECOND
    assert stream.find(NEEDLE, SECOND + 1, stream.size) == -1


def test_beginning_end_and_asked_ranges_of_a_stream_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_PASSING_STEP", 64)
    monkeypatch.setattr(window, "_HEAD", 256)
    monkeypatch.setattr(window, "_TAIL", 128)
    stream = Passing(io.BytesIO(DATA), len(DATA))
    assert stream.read(0, 16) == DATA[:16]
    stream.keep(5000, 100)
    kept = stream.finish()
    assert kept.read(100, 50) == DATA[100:150]
    assert kept.read(5000, 100) == DATA[5000:5100]
    assert kept.read(len(DATA) - 20, 100) == DATA[-20:]
    for forgotten in range(512, 4900, 64):
        with pytest.raises(KeyError):
            kept.read(forgotten, 1)
