"""The real pip client against a folder of wheels made here."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from cudaup.adapters.wheels import PipWheelStore
from cudaup.domain.errors import CudaupError
from cudaup.domain.lockfile import Wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def put(index: Path, name: str, tag: str, content: bytes = b"wheel") -> Wheel:
    """As little of a wheel as pip accepts when it downloads without dependencies."""
    filename = f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(index / filename, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        archive.writestr(f"{name}/__init__.py", content)
    whole = (index / filename).read_bytes()
    return Wheel(name=name, version="1.0", filename=filename, sha256=hashlib.sha256(whole).hexdigest(), size=len(whole))


@pytest.mark.parametrize(
    "tag",
    ["py3-none-any", "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", "cp313-cp313-manylinux_2_28_x86_64",
     "cp310-abi3-manylinux2014_x86_64"],
)  # fmt: skip
def test_a_wheel_is_fetched_for_the_hosts_platform_whatever_runs_here(index: Path, tmp_path: Path, tag: str) -> None:
    wheel = put(index, "alpha", tag)
    told: list[str] = []
    found = PipWheelStore(tmp_path / "cache").fetch([wheel], told.append)
    assert found[wheel.sha256].read_bytes() == (index / wheel.filename).read_bytes()
    assert told == [f"fetching {wheel.filename} (0.0 MB)"]


def test_the_users_own_constraints_do_not_keep_a_pinned_wheel_away(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = put(index, "alpha", "py3-none-any")
    config = tmp_path / "pip.conf"
    (tmp_path / "constraints.txt").write_text("alpha<1\n")
    config.write_text(f"[global]\nconstraint = {tmp_path / 'constraints.txt'}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    assert PipWheelStore(tmp_path / "cache").fetch([wheel], lambda _text: None)[wheel.sha256].is_file()


def test_what_is_there_already_is_not_fetched_again(index: Path, tmp_path: Path) -> None:
    wheel = put(index, "alpha", "py3-none-any")
    store = PipWheelStore(tmp_path / "cache")
    store.fetch([wheel], lambda _: None)
    (index / wheel.filename).unlink()
    told: list[str] = []
    assert store.fetch([wheel], told.append)[wheel.sha256].is_file()
    assert told == []


def test_a_damaged_copy_is_fetched_again(index: Path, tmp_path: Path) -> None:
    wheel = put(index, "alpha", "py3-none-any")
    store = PipWheelStore(tmp_path / "cache")
    path = store.fetch([wheel], lambda _: None)[wheel.sha256]
    path.write_bytes(b"x" * wheel.size)
    store.fetch([wheel], lambda _: None)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == wheel.sha256


def test_another_hash_is_refused_and_nothing_stays(index: Path, tmp_path: Path) -> None:
    wheel = put(index, "alpha", "py3-none-any").model_copy(update={"sha256": "0" * 64})
    with pytest.raises(CudaupError, match=r"cannot fetch alpha 1\.0") as caught:
        PipWheelStore(tmp_path / "cache").fetch([wheel], lambda _: None)
    assert "0" * 64 in str(caught.value)
    assert list((tmp_path / "cache" / "wheels").iterdir()) == []


def test_a_wheel_that_is_nowhere_is_named(index: Path, tmp_path: Path) -> None:
    wheel = put(index, "alpha", "py3-none-any")
    (index / wheel.filename).unlink()
    with pytest.raises(CudaupError, match="alpha") as caught:
        PipWheelStore(tmp_path / "cache").fetch([wheel], lambda _: None)
    assert "No matching distribution" in (caught.value.found or "")
