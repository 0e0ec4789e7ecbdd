"""Files that nvcc made: what they carry, what a GPU runs of it, and what damage does."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import pytest
from tests.unit.audit.cases import CASES, CUOBJDUMP, SM120, audited, content, of_bytes, without_section_table

from cudaup.audit import binary, elf, fatbin
from cudaup.audit.binary import read_passing
from cudaup.audit.device import Device
from cudaup.audit.file import audit_path
from cudaup.audit.window import Bytes, Passing

EMPTY_CONTAINER = struct.pack("<4sHHQ", b"\x50\xed\x55\xba", 1, 16, 0)
BLIND = {"elsewhere.so", "hidden.so"}  # cuobjdump looks in one section only


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("sm_120.so", {"sass 120": 1}),
        ("sm_120a.so", {"sass 120a": 1}),
        ("sm_120f.so", {"sass 120f": 1}),
        ("family_ptx.so", {"ptx 120f": 1, "sass 120f": 1}),
        ("several.so", {"ptx 90": 2, "sass 100f": 2, "sass 120a": 2, "sass 80": 2, "sass 90a": 2}),
        ("older.so", {"ptx 80": 1, "sass 80": 1}),
        ("lz4.so", {"ptx 120": 1, "sass 120": 1, "sass 80": 1}),
        ("zstd.so", {"ptx 120": 1, "sass 120": 1, "sass 80": 1}),
        ("partial.so", {"sass 120": 1, "sass 90": 2}),
        ("relocatable.so", {"sass 90": 1}),
        ("elsewhere.so", {"sass 120": 1, "sass 75": 1}),
        ("hidden.so", {"sass 120": 1, "sass 75": 1}),
        ("none.so", {}),
        ("sm_90a.cubin", {"sass 90a": 1}),
        ("sm_120.cubin", {"sass 120": 1}),
        ("sm_120a.cubin", {"sass 120a": 1}),
        ("sm_120a.ptx", {"ptx 120a": 1}),
    ],
)
def test_images_are_counted_by_kind_and_arch(name: str, entries: dict[str, int]) -> None:
    assert audited(name).entries == entries


@pytest.mark.parametrize("name", sorted(set(CUOBJDUMP) - BLIND))
def test_cuobjdump_lists_the_same_images(name: str) -> None:
    """It prints SASS for a family with the plain arch."""
    printed: dict[str, int] = {}
    for image, count in (audited(name).entries or {}).items():
        known = image.removesuffix("f") if image.startswith("sass") else image
        printed[known] = printed.get(known, 0) + count
    assert printed == (CUOBJDUMP[name] or {})


@pytest.mark.parametrize(
    ("name", "verdict", "counts"),
    [
        ("sm_120.so", "full", (1, 0, 1)),
        ("sm_120f.so", "full", (1, 0, 1)),
        ("several.so", "full", (2, 0, 2)),
        ("partial.so", "partial", (1, 0, 2)),
        ("older.so", "jit", (0, 1, 1)),
        ("relocatable.so", "dead", (0, 0, 1)),
        ("elsewhere.so", "partial", (1, 0, 2)),
        ("hidden.so", "partial", (1, 0, 2)),
        ("loose.so", "dead", (0, 0, 1)),
        ("none.so", "no-gpu-code", (0, 0, 0)),
        ("sm_90a.cubin", "dead", (0, 0, 1)),
        ("sm_120a.ptx", "jit", (0, 1, 1)),
    ],
)
def test_the_verdict_counts_containers(name: str, verdict: str, counts: tuple[int, int, int]) -> None:
    found = audited(name)
    assert (found.verdict, (found.sass, found.jit, found.containers)) == (verdict, counts)


@pytest.mark.parametrize(
    ("name", "sm", "verdict"),
    [
        ("sm_120.so", 121, "full"),
        ("sm_120a.so", 121, "dead"),
        ("sm_120f.so", 121, "full"),
        ("sm_120.so", 90, "dead"),
        ("several.so", 86, "full"),
        ("several.so", 103, "full"),
        ("several.so", 75, "dead"),
        ("several.so", 110, "jit"),  # its PTX for 90
    ],
)
def test_another_gpu_another_verdict(name: str, sm: int, verdict: str) -> None:
    assert audited(name, Device(sm)).verdict == verdict


def test_ptx_that_the_driver_does_not_know_does_not_save_a_file() -> None:
    assert audited("older.so", Device(120, (13, 0))).verdict == "jit"
    assert audited("older.so", Device(120, (12, 9))).verdict == "dead"  # made by 13.0: ISA 9.0


def test_code_for_device_linking_does_not_count_beside_linked_code() -> None:
    assert audited("relocatable.so").apart == 1
    assert audited("relocatable.so", Device(90)).verdict == "full"


def test_containers_in_other_sections_are_told() -> None:
    assert (audited("elsewhere.so").outside, audited("hidden.so").outside) == (1, 1)
    assert audited("hidden.so", Device(75)).outside == 0  # not dead, so the rest was not scanned
    assert audited("hidden.so", Device(75), scan_all=True).outside == 1


def test_a_cubin_outside_any_container_is_told_and_does_not_count() -> None:
    assert audited("loose.so").loose == ["120a"]


def test_an_almost_empty_image_is_suspicious() -> None:
    assert (audited("stub.so").verdict, audited("stub.so").stubs) == ("full", 1)
    assert audited("stub.so", Device(90)).stubs == 0
    assert audited("zstd.so").stubs == 0


def test_packing_and_ptx_isa_are_told() -> None:
    assert audited("lz4.so").packing == {"lz4": 1, "none": 2}
    assert audited("zstd.so").packing == {"zstd": 3}
    assert audited("family_ptx.so").ptx_archs == ["120f (ISA 9.0)"]


def test_needed_libraries_are_read() -> None:
    assert audited("other_torch.so").needs == ("libc10.so", "libcudart.so.12")


def test_a_file_without_a_section_table_is_searched_whole() -> None:
    found = of_bytes(without_section_table(content("several.so")))
    assert (found.verdict, found.containers, found.notes) == ("full", 2, [])


def test_section_counts_beyond_16_bits_are_in_section_zero() -> None:
    data = bytearray(content("partial.so"))
    table = struct.unpack_from("<Q", data, 0x28)[0]
    count, names = struct.unpack_from("<HH", data, 0x3C)
    struct.pack_into("<HH", data, 0x3C, 0, 0xFFFF)
    struct.pack_into("<QI", data, table + 0x20, count, names)
    found = of_bytes(bytes(data))
    assert (found.verdict, found.containers, found.notes) == ("partial", 2, [])


def test_a_section_without_bytes_in_the_file_is_passed_over() -> None:
    data = bytearray(content("sm_120.so"))
    table = struct.unpack_from("<Q", data, 0x28)[0]
    number = next(n for n in range(40) if struct.unpack_from("<I", data, table + 64 * n + 4)[0] == 8)
    struct.pack_into("<QQ", data, table + 64 * number + 0x18, 0, 1 << 60)
    assert of_bytes(bytes(data)).verdict == "full"


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b"", "byte 0: empty file"),
        (b"text", "byte 0: neither an ELF file, a fatbin nor PTX"),
        (b"\x7fELF", "byte 0: ELF header cut short"),
        (b"\x7fELF\x01\x01" + bytes(60), "byte 0: not a 64-bit little-endian ELF file"),
    ],
)
def test_what_is_no_binary_is_unreadable(data: bytes, note: str) -> None:
    assert (of_bytes(data).verdict, of_bytes(data).notes) == ("unreadable", [note])


def test_a_truncated_file_is_never_dead_nor_full() -> None:
    whole = content("several.so")
    verdicts = {of_bytes(whole[:length]).verdict for length in range(64, len(whole), 509)}
    assert verdicts <= {"unreadable", "partial"}


def test_a_container_that_lies_about_its_size_is_told() -> None:
    data = bytearray(content("partial.so"))
    first = data.find(b"\x50\xed\x55\xba")
    struct.pack_into("<Q", data, first + 8, 1 << 62)
    found = of_bytes(bytes(data))
    assert (found.verdict, found.containers) == ("unreadable", 1)
    assert f"byte {first}: container ends at" in found.notes[0]


def test_an_unknown_kind_and_arch_are_reported_and_do_not_run() -> None:
    data = bytearray(content("sm_120.so"))
    entry = data.find(b"\x50\xed\x55\xba") + 16
    struct.pack_into("<H", data, entry, 77)
    struct.pack_into("<I", data, entry + 0x1C, 999)
    assert (of_bytes(bytes(data)).verdict, of_bytes(bytes(data)).entries) == ("dead", {"kind-77 999": 1})


def test_an_unknown_version_is_unreadable_not_dead() -> None:
    for offset, value in ((4, 2), (18, 0x0202)):
        data = bytearray(content("sm_120.so"))
        struct.pack_into("<H", data, data.find(b"\x50\xed\x55\xba") + offset, value)
        found = of_bytes(bytes(data))
        assert found.verdict == "unreadable"
        assert "version" in found.notes[0]


def section_at(data: bytes, name: str) -> int:
    """Where the row of that section is in the table."""
    found = next(s for s in elf.sections(Bytes(data), elf.header(Bytes(data))) if s.name == name)
    table, count = struct.unpack_from("<Q", data, 0x28)[0], struct.unpack_from("<H", data, 0x3C)[0]
    return next(
        at
        for at in range(table, table + 64 * count, 64)
        if struct.unpack_from("<Q", data, at + 0x18)[0] == found.offset
    )


def test_sections_that_overlap_are_read_once() -> None:
    data = bytearray(content("partial.so"))
    place = data[section_at(bytes(data), ".nv_fatbin") + 0x18 :][:16]
    for other in (".eh_frame", ".init", ".text"):
        at = section_at(bytes(data), other)
        data[at : at + 4] = data[section_at(bytes(data), ".nv_fatbin") :][:4]  # its name
        data[at + 0x18 : at + 0x28] = place
    assert of_bytes(bytes(data)).containers == 2


@pytest.mark.parametrize("filling", [b"\x50\xed\x55\xba" * 2, EMPTY_CONTAINER])
def test_a_file_full_of_headers_is_not_kept_whole(filling: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatbin, "_MOST_PARTS", 1000)
    monkeypatch.setattr(fatbin, "_MOST_DAMAGES", 1000)
    reading = binary.read(Bytes(filling * 5000))
    assert 1000 < len(reading.containers) + len(reading.damages) < 1010
    assert "the rest is not read" in reading.damages[-1].text


def test_what_cannot_be_opened_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "link.so").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.so")
    (tmp_path / "folder.so").mkdir()
    notes = {n: audit_path(str(tmp_path / n), n, SM120).notes for n in ("link.so", "pipe.so", "folder.so")}
    assert notes["link.so"] == ("No such file or directory",)
    assert {audit_path(str(tmp_path / n), n, SM120).verdict for n in notes} == {"unreadable"}


def test_a_file_on_disk_and_the_same_bytes_in_memory_are_judged_alike() -> None:
    for path in CASES.glob("*.so"):
        assert audited(path.name)._replace(path="given", notes=()) == of_bytes(path.read_bytes())._replace(notes=())


@pytest.mark.parametrize("path", sorted((CASES / "found").iterdir()), ids=lambda path: path.name)
def test_what_fuzzing_found_gets_an_answer(path: Path) -> None:
    of_bytes(path.read_bytes())
    audit_path(str(path), path.name, SM120, scan_all=True)
    read_passing(Passing(io.BytesIO(path.read_bytes()), path.stat().st_size), lambda _part: False)
