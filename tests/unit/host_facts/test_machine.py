from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cudaup.host import command, machine

RECORDED = Path(__file__).parents[2] / "cases" / "h200x2-580.159.04-ubuntu24.04"


def put_tool(path: Path, said: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)


def test_recorded_os_release() -> None:
    assert machine.parse_os_release((RECORDED / "os-release.txt").read_text()) == {
        "id": "ubuntu",
        "version_id": "24.04",
        "pretty": "Ubuntu 24.04.3 LTS",
    }


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Python 3.11.2", "3.11.2"),
        ("Python 3.15.0a1+", "3.15.0"),
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022", "12.2.0"),
        ("g++ (GCC) 11.5.0 20240719 (Red Hat 11.5.0-2)", "11.5.0"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)\nTarget: x86_64-pc-linux-gnu", "18.1.3"),
        ("g++ (crosstool-NG 1.25.0.95_7622b49) 12.2.0", "12.2.0"),
        ("no version here", None),
    ],
)
def test_versions_as_tools_tell_them(said: str, version: str | None) -> None:
    assert machine.parse_version(said) == version


def test_a_toolkit_has_the_version_of_its_nvcc(tmp_path: Path) -> None:
    (tmp_path / "version.json").write_text('{"cuda": {"version": "12.8.1"}, "cuda_nvcc": {"version": "12.8.93"}}')
    assert machine.toolkit(tmp_path, []) == {"path": str(tmp_path), "version": "12.8.93"}


def test_a_toolkit_without_its_list_is_asked(tmp_path: Path) -> None:
    put_tool(tmp_path / "bin" / "nvcc", (RECORDED / "nvcc_--version.txt").read_text())
    assert machine.toolkit(tmp_path, []) == {"path": str(tmp_path), "version": "13.0.88"}


def test_interpreters_are_real_ones_and_each_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path(sys.executable).resolve()
    for name in ("python3", "python3.11", "python3.11-config"):
        (tmp_path / name).symlink_to(real)
    put_tool(tmp_path / "python3.12", "Python 3.12.1")  # a wrapper that would choose one
    monkeypatch.setattr(machine, "SEARCH_PATH", f"{tmp_path}:{tmp_path}")
    assert machine.python_paths() == [real]


def test_one_compiler_of_two_names_is_called_gxx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tool(tmp_path / "real-g++", "g++ 12")
    for name in ("c++", "g++"):
        (tmp_path / name).symlink_to("real-g++")
    monkeypatch.setattr(machine, "SEARCH_PATH", str(tmp_path))
    assert machine.compiler_paths() == [tmp_path / "g++"]


def test_a_disk_is_where_the_path_would_lie(tmp_path: Path) -> None:
    found = machine.disk(tmp_path / "not" / "there" / "yet")
    assert found["path"] == f"{tmp_path}/not/there/yet"
    assert (tmp_path / found["path"]).is_relative_to(found["mount"])
    assert 0 < found["free_bytes"] <= found["total_bytes"]


def test_a_host_tells_who_it_is() -> None:
    host = machine.host()
    assert host["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host["glibc"][:2] == "2."
    assert host["clock_synced"] in {True, False}


def test_a_tool_that_says_nothing_useful_has_no_entry(tmp_path: Path) -> None:
    put_tool(tmp_path / "python3.9", "hello")
    problems: list[str] = []
    assert machine.versioned(tmp_path / "python3.9", problems) is None
    assert machine.versioned(tmp_path / "gone", problems) is None
    assert problems == [f"{tmp_path}/gone: not found"]


def test_tools_of_sbin_are_found_over_a_short_path() -> None:
    assert "/usr/sbin" in command.SEARCH_PATH.split(":")
