"""Wheels read where they lie, also the ones that mean harm."""

from __future__ import annotations

import io
import os
import resource
import struct
import zipfile
from pathlib import Path

import pytest
from tests.unit.audit.cases import CASES, SM120, audited, content, without_section_table

from cudaup.audit import wheel, window
from cudaup.audit.device import Device
from cudaup.audit.target import of_wheel
from cudaup.audit.wheel import Wheel, WheelError, audit_wheel

RECORD = "pkg/a.so,sha256=x,1\npkg/kernels/k.cu,sha256=y,2\npkg-1.0.dist-info/RECORD,,\n"


def packed(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream


def verdicts(found: Wheel) -> dict[str, str]:
    return {file.path: file.verdict for file in found.files}


def test_each_binary_of_a_wheel_is_judged_as_on_disk() -> None:
    names = [path.name for path in CASES.iterdir() if path.suffix in {".so", ".cubin", ".ptx"}]
    found = audit_wheel(packed({f"pkg/{name}": content(name) for name in names}), SM120)
    assert {file.path: file for file in found.files} == {
        f"pkg/{n}": audited(n)._replace(path=f"pkg/{n}") for n in names
    }


@pytest.mark.parametrize("name", ["several.so", "relocatable.so", "elsewhere.so", "partial.so", "stub.so", "none.so"])
def test_a_large_member_is_streamed_to_the_same_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "_SMALL", 1000)
    monkeypatch.setattr(window, "_PASSING_STEP", 777)
    (streamed,) = audit_wheel(packed({name: content(name)}), SM120).files
    assert streamed == audited(name)


def test_a_damaged_large_member_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "_SMALL", 1000)
    (streamed,) = audit_wheel(packed({"a.so": content("several.so")[:30000]}), Device(75)).files
    assert streamed.verdict == "unreadable"


def test_quick_stops_at_code_for_the_gpu_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "_SMALL", 1000)
    stream = packed({"several.so": content("several.so"), "older.so": content("older.so")})
    found = {file.path: file for file in audit_wheel(stream, SM120, is_quick=True).files}
    several = found["several.so"]
    assert (several.verdict, several.sass, several.containers, several.is_complete) == ("partial", 1, 1, False)
    assert (found["older.so"].verdict, found["older.so"].is_complete) == ("jit", True)


def test_equal_members_are_read_once() -> None:
    found = audit_wheel(packed({"lib/a.so": content("sm_120.so"), "lib/a.so.0": content("sm_120.so")}), SM120)
    assert [(file.path, file.same_as, file.sass) for file in found.files] == [
        ("lib/a.so", None, 1),
        ("lib/a.so.0", "lib/a.so", 1),
    ]


def test_sources_without_code_are_compiled_later() -> None:
    members = {"pkg/kernels/k.cu": b"", "pkg-1.0.dist-info/RECORD": RECORD.encode()}
    assert [tuple(one) for one in of_wheel(audit_wheel(packed(members), SM120), SM120).distributions] == [
        ("pkg", "jit-source")
    ]
    with_code = {**members, "pkg/a.so": content("sm_120.so")}
    assert of_wheel(audit_wheel(packed(with_code), SM120), SM120).distributions == []


@pytest.mark.parametrize("name", ["../../evil.so", "/etc/evil.so", "pkg/../../evil.so"])
def test_a_path_outside_the_wheel_is_refused_and_the_rest_audited(name: str) -> None:
    found = audit_wheel(packed({name: content("sm_120.so"), "b.so": content("several.so")}), SM120)
    assert verdicts(found) == {name: "unreadable", "b.so": "full"}
    assert found.files[0].notes == ("its path leads out of the wheel",)


def test_a_zip_bomb_is_refused_and_the_rest_audited() -> None:
    stream = packed({"bomb.so": bytes(100 << 20), "b.so": content("sm_120.so")})
    found = audit_wheel(stream, SM120)
    assert verdicts(found) == {"bomb.so": "unreadable", "b.so": "full"}
    assert "a zip bomb" in found.files[0].notes[0]


def test_members_that_share_their_bytes_are_a_bomb() -> None:
    """As in overlapping-file bombs: the directory names the same bytes many times."""
    one = packed({"a.so": content("several.so")}).getvalue()
    end = one.rindex(b"PK\5\6")
    start = struct.unpack_from("<I", one, end + 16)[0]
    directory = one[start:end] * 50
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 50, 50, len(directory), start, 0)
    with pytest.raises(WheelError, match="a zip bomb"):
        audit_wheel(io.BytesIO(one[:start] + directory + tail), SM120)


def test_a_directory_that_says_it_is_huge_is_refused() -> None:
    data = bytearray(packed({"a.so": b"x"}).getvalue())
    struct.pack_into("<I", data, data.rindex(b"PK\5\6") + 12, 1 << 30)
    with pytest.raises(WheelError, match="too large"):
        audit_wheel(io.BytesIO(bytes(data)), SM120)


def test_a_member_with_a_wrong_checksum_is_unreadable_and_the_rest_audited() -> None:
    stream = packed({"a.so": content("sm_120.so"), "b.so": content("several.so")}, zipfile.ZIP_STORED)
    data = bytearray(stream.getvalue())
    data[data.index(content("sm_120.so")) + 9000] ^= 0xFF
    found = audit_wheel(io.BytesIO(bytes(data)), SM120)
    assert verdicts(found) == {"a.so": "unreadable", "b.so": "full"}
    assert "damaged in the wheel" in found.files[0].notes[0]


@pytest.mark.parametrize("length", [0, 10, 1000])
def test_what_is_no_archive_is_refused(length: int) -> None:
    with pytest.raises(WheelError, match="not a wheel"):
        audit_wheel(io.BytesIO(packed({"a.so": content("sm_120.so")}).getvalue()[:length]), SM120)


def test_memory_stays_bounded_while_a_large_member_streams(tmp_path: Path) -> None:
    path = tmp_path / "large.whl"
    block = os.urandom(1 << 20)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("large.so", "w") as member,
    ):
        member.write(without_section_table(content("none.so")))
        for _ in range(64):
            member.write(block)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with path.open("rb") as stream:
        (found,) = audit_wheel(stream, SM120).files
    assert (found.verdict, found.size > 64 << 20) == ("no-gpu-code", True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000
