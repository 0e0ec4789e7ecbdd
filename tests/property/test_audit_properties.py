"""Binaries and wheels that nobody made: any bytes get an answer, and what was written is what is read."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.audit.cases import CASES, SM120, content, of_bytes

from cudaup.audit.binary import read_passing
from cudaup.audit.fatbin import Container, FatbinError, Image, parse_fatbin, search, walk
from cudaup.audit.file import FileAudit, described
from cudaup.audit.verdict import VERDICTS
from cudaup.audit.wheel import WheelError, audit_wheel
from cudaup.audit.window import Bytes, Passing

KINDS = {"ptx": 1, "sass": 2, "lto-ir": 8, "kind-16": 16}
FLAGS = {"": 0, "a": 0x100000, "f": 0x200000, "lz4": 0x2000, "zstd": 0x8000}
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
SEEDS = sorted(
    path.name for path in CASES.iterdir() if path.suffix in {".so", ".cubin", ".ptx"} and "stub" not in path.name
)

images = st.builds(
    Image,
    kind=st.sampled_from(sorted(KINDS)),
    sm=st.sampled_from([75, 90, 100, 103, 107, 110, 120, 121, 999]),
    suffix=st.sampled_from(["", "a", "f"]),
    version=st.tuples(st.integers(1, 20), st.integers(0, 9)),
    packing=st.sampled_from(["", "lz4", "zstd"]),
    stored=st.integers(0, 64).map(lambda n: n * 8),
    unpacked=st.integers(1, 1 << 40),
)
runs = st.lists(st.lists(images, max_size=4), min_size=1, max_size=5)


def written(run: list[list[Image]], padding: int) -> bytes:
    """A section as nvcc lays it out: containers with zeros between them."""
    parts = []
    for container in run:
        body = b"".join(entry(image) for image in container)
        parts.append(struct.pack("<4sHHQ", b"\x50\xed\x55\xba", 1, 16, len(body)) + body)
    return bytes(8 * padding).join(parts)


def entry(image: Image) -> bytes:
    flags = FLAGS[image.suffix] | FLAGS[image.packing]
    major, minor = image.version
    head = (KINDS[image.kind], 0x0101, 72, image.stored, 0, 0, minor, major, image.sm, 0, 0, flags, 0, image.unpacked)
    return ENTRY.pack(*head) + bytes(8) + b"\x50\xed\x55\xba\x01\0\x10\0"[:8] * (image.stored // 8)


@given(runs, st.integers(0, 3))
def test_what_was_written_is_read(run: list[list[Image]], padding: int) -> None:
    """The payloads look like containers: they must be passed over, not searched."""
    assert parse_fatbin(written(run, padding)) == tuple(image for container in run for image in container)


@given(runs, st.integers(0, 20), st.binary(max_size=40))
def test_containers_are_found_among_other_data(run: list[list[Image]], before: int, after: bytes) -> None:
    data = b"\xff" * 8 * before + written(run, 2) + after
    found = [part for part in search(Bytes(data), 0, len(data)) if isinstance(part, Container)]
    assert [list(part.images) for part in found] == run
    assert all(part.offset % 8 == 0 for part in found)


@given(runs, st.data())
def test_a_run_cut_anywhere_is_refused_or_ends_at_a_container(run: list[list[Image]], data: st.DataObject) -> None:
    whole = written(run, 1)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    ends = {part.end for part in walk(Bytes(whole), 0, len(whole)) if isinstance(part, Container)}
    try:
        parse_fatbin(cut)
    except FatbinError:
        assert len(cut) not in ends
    else:
        assert not cut[max(end for end in ends if end <= len(cut)) :].strip(b"\0")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real binary with some of its bytes, or eight at once, made into something else; or cut; or with a hole."""
    data = bytearray(content(draw(st.sampled_from(SEEDS))))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.one_of(st.integers(0, 63), st.integers(0, len(data) - 1), _interesting(bytes(data))))
        new = draw(st.one_of(st.binary(min_size=1, max_size=2), st.sampled_from(_EXTREMES)))
        data[at : at + len(new)] = new
    cut = draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))
    return bytes(data[:cut])


_EXTREMES = [struct.pack("<Q", n) for n in (0, 1, 1 << 31, 1 << 32, (1 << 63) - 1, (1 << 64) - 1, 1 << 40)]


def _interesting(data: bytes) -> st.SearchStrategy[int]:
    """Where the headers are: section table, dynamic segment, containers."""
    places = [0]
    if data[:4] == b"\x7fELF":
        table = struct.unpack_from("<Q", data, 0x28)[0]
        places += [table, struct.unpack_from("<Q", data, 0x20)[0]]
    at = data.find(b"\x50\xed\x55\xba")
    if at >= 0:
        places.append(at)
    return st.tuples(st.sampled_from(places), st.integers(0, 400)).map(lambda at: min(sum(at), len(data) - 1))


def is_sound(found: FileAudit) -> bool:
    counts = found.sass + found.jit <= found.containers and found.stubs <= found.sass
    runs_something = found.sass + found.jit > 0
    return found.verdict in VERDICTS and counts and runs_something == (found.verdict in {"full", "partial", "jit"})


@settings(max_examples=300, deadline=None)
@given(damaged())
def test_damaged_binaries_get_an_answer(data: bytes) -> None:
    assert is_sound(of_bytes(data))


@settings(max_examples=150, deadline=None)
@given(damaged(), st.integers(16, 5000))
def test_damaged_binaries_get_an_answer_as_a_stream_too(data: bytes, piece: int) -> None:
    stream = Passing(Pieces(data, piece), len(data))
    assert is_sound(described("x", len(data), read_passing(stream, lambda _part: False), SM120))


class Pieces(io.BytesIO):
    """Gives less than it is asked for, as a decompressor does."""

    def __init__(self, data: bytes, piece: int) -> None:
        super().__init__(data)
        self._piece = piece

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(self._piece, size) if size and size > 0 else self._piece)


def a_wheel() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("partial.so", "sm_120a.cubin"):
            archive.writestr(f"p/{name}", content(name))
        archive.writestr("p-1.0.dist-info/RECORD", "p/partial.so,,\n")
    return stream.getvalue()


WHEEL = a_wheel()
DIRECTORY = WHEEL.index(b"PK\1\2")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=8)), max_size=5), st.booleans())
def test_a_damaged_wheel_gets_an_answer_or_is_refused(edits: list[tuple[int, bytes]], at_the_end: Any) -> None:
    data = bytearray(WHEEL)
    for offset, new in edits:
        at = min((DIRECTORY if at_the_end else 0) + offset, len(data) - len(new))
        data[at : at + len(new)] = new
    try:
        found = audit_wheel(io.BytesIO(bytes(data)), SM120)
    except WheelError:
        return
    assert all(is_sound(file) for file in found.files)
