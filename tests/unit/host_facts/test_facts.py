from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from cudaup.domain.facts import Facts
from cudaup.host import command, facts, gpu
from cudaup.host.protocol import Channel, Context, Json


def tree(root: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in root.rglob("*"))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\nsleep 60\n")
    (tools / "nvidia-smi").chmod(0o755)
    monkeypatch.setattr(command, "SEARCH_PATH", f"{tools}:{os.environ['PATH']}:/usr/bin:/bin")
    monkeypatch.setattr(gpu, "_SMI_LIMIT_S", 0.3)
    (tmp_path / "ml-env").mkdir()
    (tmp_path / "ml-env" / "pyvenv.cfg").write_text("version = 3.11.2\n")
    return tmp_path


def collect(root: Path, env: Path | None) -> Json:
    return facts.collect(Context(root, Channel(), io.BytesIO(), options={"env": env}))


def test_the_controller_can_read_them_and_nothing_is_written(host: Path) -> None:
    before = tree(host)
    collected = collect(host / "root", host / "ml-env")
    assert tree(host) == before
    read = Facts.model_validate(collected)
    assert read.environment is not None
    assert (read.environment.kind, read.environment.python) == ("venv", "3.11.2")
    assert read.cudaup is None
    assert [disk.path for disk in read.disks] == [str(host / "root")]
    assert any(python.version.startswith("3.") for python in read.pythons)


def test_a_hanging_nvidia_smi_is_one_problem_among_complete_facts(host: Path) -> None:
    collected = collect(host / "root", None)
    assert collected["problems"] == ["nvidia-smi: no end after 0.3 s"]
    assert (collected["gpus"], collected["environment"]) == ([], None)
    assert set(collected) == set(Facts.model_fields)
