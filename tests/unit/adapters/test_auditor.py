"""Targets as they are named on the command line; URLs against a real server on loopback."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
from tests.unit.adapters.wheel_server import serving
from tests.unit.audit.cases import CASES, content

from cudaup.adapters.auditor import BinaryAuditor
from cudaup.adapters.remote_wheel import without_secrets
from cudaup.audit import wheel
from cudaup.domain.audit import Asked, GpuAsked, TargetAudit
from cudaup.domain.errors import UsageError

SM120 = Asked(sm="120", driver="590.48.01")
PADDING = os.urandom(8 << 20)  # more than a socket may hold unread


def wheel_of(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/before.bin", PADDING)
        for name in names:
            archive.writestr(f"pkg/{name}", content(name))
        archive.writestr("pkg/after.bin", PADDING)
    return stream.getvalue()


def audit(target: str, asked: Asked = SM120) -> TargetAudit:
    return BinaryAuditor().audit(target, asked)


def verdicts(found: TargetAudit) -> dict[str, str]:
    return {file.path.removeprefix("pkg/"): str(file.verdict) for file in found.files}


def test_a_file_a_wheel_and_an_environment_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(wheel_of("several.so"))
    found = [audit(str(target)) for target in (CASES / "sm_120.so", tmp_path / "a.whl", tmp_path)]
    assert [(one.kind, len(one.files)) for one in found] == [("file", 1), ("wheel", 1), ("environment", 0)]


def test_the_gpu_is_told_with_what_its_driver_compiles() -> None:
    assert BinaryAuditor().gpu(SM120) == GpuAsked(sm=120, cuda="13.1", driver="590.48.01", ptx_isa="9.1")
    assert BinaryAuditor().gpu(Asked(sm="12.1", cuda="12.8")) == GpuAsked(sm=121, cuda="12.8", ptx_isa="8.7")
    assert BinaryAuditor().gpu(Asked(sm="90")) == GpuAsked(sm=90)


@pytest.mark.parametrize("asked", [Asked(sm="x"), Asked(sm="120", driver="x"), Asked(sm="120", cuda="9")])
def test_a_gpu_driver_or_cuda_version_that_is_none_is_refused(asked: Asked) -> None:
    with pytest.raises(UsageError, match="is no"):
        BinaryAuditor().gpu(asked)


def test_a_target_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="No such file"):
        audit("no-such.so")


def test_a_remote_wheel_is_read_by_ranges_and_only_where_needed() -> None:
    data = wheel_of("several.so", "older.so")
    with serving(data) as server:
        assert verdicts(audit(server.url)) == {"several.so": "full", "older.so": "jit"}
        assert all(wanted for wanted in server.requests)
        assert server.sent < len(data) / 2


def test_a_remote_wheel_is_found_dead_only_after_it_was_read_to_its_end() -> None:
    with serving(wheel_of("relocatable.so")) as server:
        assert verdicts(audit(server.url, SM120.model_copy(update={"is_quick": True}))) == {"relocatable.so": "dead"}


def test_quick_does_not_read_on_behind_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "_SMALL", 1000)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/large.so", content("several.so") + PADDING * 3)
    with serving(stream.getvalue()) as server:
        (quick,) = audit(server.url, SM120.model_copy(update={"is_quick": True})).files
        assert (quick.verdict, quick.sass, quick.is_complete) == ("partial", 1, False)
        sent = server.sent
        (whole,) = audit(server.url).files
        assert whole.is_complete
        assert server.sent - sent > sent * 2


def test_without_ranges_the_wheel_is_downloaded() -> None:
    with serving(wheel_of("several.so"), has_ranges=False) as server:
        assert verdicts(audit(server.url)) == {"several.so": "full"}
        assert len(server.requests) == 2  # one to see that it has none


def test_a_broken_connection_goes_on_where_it_ended() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("pkg/large.so", content("several.so") + PADDING)
    with serving(stream.getvalue()) as server:
        server.breaks, server.breaks_after = 3, 200 << 10  # first the end of the file, then twice in it
        assert verdicts(audit(server.url)) == {"large.so": "full"}
        assert server.breaks == 0
        assert len(server.requests) == 5


def test_a_download_that_ends_early_is_an_error_not_a_verdict() -> None:
    with serving(wheel_of("several.so"), has_ranges=False) as server:
        server.breaks, server.breaks_after = 2, 1 << 20
        with pytest.raises(UsageError, match="1048576 of"):
            audit(server.url)


def test_what_the_server_says_is_told_without_the_secrets_of_the_url() -> None:
    with serving(b"") as server:
        server.status = 404
        with pytest.raises(UsageError, match="404") as caught:
            audit(server.url + "?token=hush")
        assert "hush" not in str(caught.value)
    assert without_secrets("https://ann:hush@host:8443/a.whl?x=hush#hush") == "https://host:8443/a.whl"


def test_a_file_that_changes_while_it_is_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(wheel_of("several.so")) as server:
        first = server.data
        original = zipfile.ZipFile.infolist

        def changed(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
            server.data = first[:-1000]
            return original(archive)

        monkeypatch.setattr(zipfile.ZipFile, "infolist", changed)
        with pytest.raises(UsageError, match="changed while it was read"):
            audit(server.url)
