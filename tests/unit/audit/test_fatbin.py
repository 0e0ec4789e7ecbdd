from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cudaup.audit.fatbin import FatbinError, Image, parse_fatbin

CASES = Path(__file__).parents[2] / "cases" / "fatbin"
EMPTY_CONTAINER = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0)


def recorded(name: str) -> bytes:
    return (CASES / name).read_bytes()


@pytest.mark.parametrize("arch", ["75", "120", "120a", "120f"])
def test_sass_has_its_arch_and_suffix(arch: str) -> None:
    images = parse_fatbin(recorded(f"sm_{arch}.fatbin"))
    assert [(image.kind, image.arch) for image in images] == [("sass", arch)]


def test_every_image_of_a_mixed_fatbin_is_told_apart() -> None:
    assert parse_fatbin(recorded("mixed.fatbin")) == (
        Image("sass", 120, "f", (1, 8), "", 5400, 5400),
        Image("ptx", 120, "f", (9, 0), "zstd", 272, 438),
        Image("sass", 90, "a", (1, 8), "", 3696, 3696),
    )


def test_a_compressed_image_has_its_unpacked_size() -> None:
    assert parse_fatbin(recorded("lz4.fatbin"))[1] == Image("ptx", 80, "", (9, 0), "lz4", 328, 424)


def test_containers_follow_each_other_with_padding_and_may_be_empty() -> None:
    section = recorded("sm_75.fatbin") + b"\0" * 8 + EMPTY_CONTAINER + recorded("sm_120a.fatbin") + b"\0" * 16
    assert [image.arch for image in parse_fatbin(section)] == ["75", "120a"]


def test_a_fatbin_cut_anywhere_is_refused() -> None:
    whole = recorded("sm_120.fatbin")
    for length in range(0, len(whole), 97):
        with pytest.raises(FatbinError):
            parse_fatbin(whole[:length])


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (0, b"\x7fELF", "neither"),
        (4, b"\x02", "container version 2"),
        (18, b"\x02\x02", "unknown version 0x0202"),
        (20, b"\x10", "not an entry header"),  # an entry header shorter than it can be
        (8, b"\xff\xff\xff\x7f", "container ends at"),
    ],
)
def test_damage_is_named_with_its_place(offset: int, value: bytes, text: str) -> None:
    damaged = bytearray(recorded("sm_120.fatbin"))
    damaged[offset : offset + len(value)] = value
    with pytest.raises(FatbinError, match=rf"byte \d+: .*{text}|byte \d+: {text}"):
        parse_fatbin(bytes(damaged))


def test_other_bytes_after_a_container_are_not_passed_over() -> None:
    with pytest.raises(FatbinError, match="neither"):
        parse_fatbin(recorded("sm_120.fatbin") + b"text")
