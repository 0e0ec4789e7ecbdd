from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.host_facts import wheels
from tests.unit.host_facts.wheels import GREETER, TOOLKIT, UV, Json, spec_of, stage_context

from cudaup.host import envfile, generations, machine, manifest, stage
from cudaup.host.layout import Layout
from cudaup.host.protocol import Failed, Refused


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Layout, Json]]:
    """One generation, built under the worst umask; tests that use it change nothing."""
    root = tmp_path_factory.mktemp("staged") / "root"
    before = os.umask(0o077)
    try:
        wheels.put(root, UV, GREETER, TOOLKIT)
        yield Layout(root), stage.stage(stage_context(root, full_spec()))
    finally:
        os.umask(before)


def full_spec() -> Json:
    toolkit = {"version": "13.0", "from": "wheels"}
    env = {"CUDA_HOME": "{generation}/cuda", "NCCL_DEBUG": 'a "b"'}
    return spec_of(GREETER, TOOLKIT, toolkit=toolkit, env=env)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    wheels.put(tmp_path / "root", UV, GREETER)
    return tmp_path / "root"


def leftovers(root: Path) -> list[str]:
    return [path.name for path in (root / "generations").iterdir()]


def test_a_generation_is_numbered_and_named_by_its_digest(staged: tuple[Layout, Json]) -> None:
    layout, answer = staged
    name = f"0001-{answer['digest'][:6]}"
    assert answer == {"generation": name, "changed": True, "digest": answer["digest"], "shared_by": "hardlink"}
    record = generations.load(layout, answer["generation"])
    assert (record["kind"], record["name"], record["confirmed"], record["proven"]) == (
        "staged",
        "test-stack",
        False,
        None,
    )
    assert record["packages"] == {"greeter": "1.2", "nvidia-cuda-nvcc": "13.0.88"}


def test_its_console_scripts_run_where_it_ended_up(staged: tuple[Layout, Json]) -> None:
    layout, answer = staged
    venv = layout.generation(answer["generation"]) / "venv"
    said = subprocess.run([venv / "bin" / "greet"], capture_output=True, text=True, check=True).stdout
    assert said == f"hello from {venv}\n"


def test_it_is_sealed(staged: tuple[Layout, Json]) -> None:
    layout, answer = staged
    report = manifest.check(layout, answer["generation"], full=True)
    assert report["problems"] == []
    assert report["files"] > 20


def test_the_same_again_changes_nothing(staged: tuple[Layout, Json]) -> None:
    layout, answer = staged
    again = stage.stage(stage_context(layout.root, {**full_spec(), "name": "renamed"}))
    assert again == {"generation": answer["generation"], "changed": False, "digest": answer["digest"]}
    assert leftovers(layout.root) == [answer["generation"]]


def test_its_variables_name_real_paths_and_its_own_caches(staged: tuple[Layout, Json]) -> None:
    layout, answer = staged
    generation = layout.generation(answer["generation"])
    env = envfile.parse((generation / "env").read_text())
    assert env["CUDA_HOME"] == f"{generation}/cuda"
    assert env["NCCL_DEBUG"] == 'a "b"'
    caches = {key for key, value in env.items() if Path(value).parent == generation / "cache" and Path(value).is_dir()}
    assert caches == {
        "PYTHONPYCACHEPREFIX",
        "CUDA_CACHE_PATH",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "FLASHINFER_WORKSPACE_BASE",
    }


def test_the_toolkit_has_the_links_its_wheels_lack(staged: tuple[Layout, Json]) -> None:
    layout, answer = staged
    cuda = layout.generation(answer["generation"]) / "cuda"
    assert (cuda / "lib64" / "libcudart.so").resolve().name == "libcudart.so.13"
    assert os.access(cuda / "bin" / "nvcc", os.X_OK)


def test_nobody_else_can_write_and_everybody_can_read(staged: tuple[Layout, Json]) -> None:
    layout, answer = staged
    paths = [p for p in layout.generation(answer["generation"]).rglob("*") if not p.is_symlink()]
    modes = {path: path.stat().st_mode & 0o777 for path in paths}
    assert [path for path, mode in modes.items() if mode & 0o022 or mode & 0o444 != 0o444] == []
    assert {path.lstat().st_uid for path in paths} == {os.geteuid()}


def test_nothing_of_the_build_stays(staged: tuple[Layout, Json]) -> None:
    layout, answer = staged
    assert {path.name for path in layout.generation(answer["generation"]).iterdir()} == {
        "cache",
        "cuda",
        "env",
        "generation.json",
        "manifest.json",
        "venv",
    }
    assert (layout.root / "bin" / "uv-0.0.1").read_text() == wheels.UV_SCRIPT


def test_a_changed_generation_is_built_anew(root: Path) -> None:
    first = stage.stage(stage_context(root, spec_of(GREETER)))
    (root / "generations" / first["generation"] / "env").write_text("X=1\n")
    second = stage.stage(stage_context(root, spec_of(GREETER)))
    assert (second["changed"], second["generation"][:5]) == (True, "0002-")
    assert second["digest"] == first["digest"]


def test_generations_share_their_files(root: Path) -> None:
    """A link each in uv's cache and in two generations; a copy would have two."""
    for value in ("1", "2"):
        answer = stage.stage(stage_context(root, spec_of(GREETER, env={"VALUE": value})))
    (installed,) = (root / "generations" / answer["generation"]).rglob("greeter/__init__.py")
    assert installed.stat().st_nlink == 3


def stage_again(root: Path, number: int) -> Json:
    """A generation that differs in nothing but a variable, so all its files are in uv's cache."""
    return stage.stage(stage_context(root, spec_of(GREETER, env={"NUMBER": str(number)})))


def problems(root: Path, generation: str) -> list[str]:
    return [problem["path"] for problem in manifest.check(Layout(root), generation, full=False)["problems"]]


def installed(root: Path, generation: str) -> Path:
    (found,) = (root / "generations" / generation).rglob("greeter/__init__.py")
    return found


def name_of(root: Path, generation: str) -> str:
    return str(installed(root, generation).relative_to(root / "generations" / generation))


def test_an_edit_in_place_reaches_the_cache_but_no_new_generation(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = stage_again(root, 1)["generation"]
    edited, time = installed(root, first), installed(root, first).stat().st_mtime_ns
    content = edited.read_text()
    edited.write_text(content.replace("hello", "jelly"))  # same length; and vim and others keep the inode as well
    os.utime(edited, ns=(time, time))
    (cached,) = (root / "uv-cache").rglob("greeter/__init__.py")
    assert "jelly" in cached.read_text()

    second = stage_again(root, 2)["generation"]
    assert f"uv's cache is damaged ({name_of(root, first)})" in capsys.readouterr().out
    assert installed(root, second).read_text() == content
    assert problems(root, second) == []
    assert problems(root, first) == [name_of(root, first)]
    assert installed(root, stage_again(root, 3)["generation"]).stat().st_ino == installed(root, second).stat().st_ino


def test_a_new_sibling_moves_ctimes_and_stage_writes_them_down(root: Path) -> None:
    first = stage_again(root, 1)["generation"]
    before = installed(root, first).stat().st_ctime_ns
    stage_again(root, 2)
    sealed = json.loads((root / "generations" / first / "manifest.json").read_text())["files"]
    now = installed(root, first).stat().st_ctime_ns
    assert now != before
    assert sealed[name_of(root, first)]["ctime_ns"] == now


def test_a_wheel_that_is_not_what_it_records_is_named(root: Path) -> None:
    liar = wheels.Wheel("liar", "1", {"liar.py": "x = 1\n"}, recorded={"liar.py": "x = 2\n"})
    wheels.put(root, liar)
    with pytest.raises(Failed, match=r"not what its wheels recorded: venv/lib/python3[.0-9]*/site-packages/liar\.py\Z"):
        stage.stage(stage_context(root, spec_of(GREETER, liar)))
    assert leftovers(root) == []


def test_where_files_cannot_be_shared_nothing_is_copied_in_silence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr("cudaup.host.uv.os.link", cannot)
    monkeypatch.setattr("cudaup.host.uv.fcntl.ioctl", cannot)
    with pytest.raises(Refused, match="cannot share files with") as refusal:
        stage.stage(stage_context(root, spec_of(GREETER)))
    assert refusal.value.code == "unsupported"
    assert leftovers(root) == []


def test_what_a_killed_stage_left_is_removed(root: Path) -> None:
    (root / "generations" / ".staging-0001-aaaaaa" / "venv").mkdir(parents=True)
    answer = stage.stage(stage_context(root, spec_of(GREETER)))
    assert leftovers(root) == [answer["generation"]]


def test_a_cache_that_may_not_be_on_the_disk_is_not_believed(root: Path) -> None:
    with pytest.raises(Failed):
        stage.stage(stage_context(root, spec_of(GREETER, toolkit={"version": "13.0", "from": "wheels"})))
    for cached in (root / "uv-cache").rglob("greeter/__init__.py"):
        cached.write_text("")  # as a power loss leaves it
    answer = stage.stage(stage_context(root, spec_of(GREETER)))
    (installed,) = (root / "generations" / answer["generation"]).rglob("greeter/__init__.py")
    assert "hello" in installed.read_text()
    assert not (root / "uv-cache.unsynced").exists()


def test_a_dry_run_says_what_it_would_do(root: Path) -> None:
    would = stage.stage(stage_context(root, spec_of(GREETER), dry_run=True))["would"]
    assert would.startswith("build a generation of 1 wheels with /")
    assert leftovers(root) == []


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"wheels": [TOOLKIT.pin]}, "not-found", f"not on this host: {TOOLKIT.filename}"),
        ({"python": {"version": ">=4"}}, "unsupported", r"no Python >=4 here; found: /.*\(3\."),
    ],
)
def test_what_cannot_be_built_is_refused_first(root: Path, changes: Json, code: str, text: str) -> None:
    with pytest.raises(Refused, match=text) as refusal:
        stage.stage(stage_context(root, spec_of(GREETER, **changes)))
    assert refusal.value.code == code
    assert leftovers(root) == []


@pytest.mark.parametrize("short", [{"free_bytes": 1 << 20}, {"free_inodes": 10}])
def test_a_full_disk_is_refused_with_numbers(root: Path, monkeypatch: pytest.MonkeyPatch, short: Json) -> None:
    real = machine.disk(root)
    monkeypatch.setattr(machine, "disk", lambda _path: {**real, "total_inodes": 1 << 30, **short})
    with pytest.raises(Refused, match=r"needs \d+ MiB and \d+ inodes, \d+ MiB and \d+ inodes free") as refusal:
        stage.stage(stage_context(root, spec_of(GREETER)))
    assert refusal.value.code == "no-space"


def test_a_blob_that_rotted_fails_and_leaves_nothing(root: Path) -> None:
    stored = root / "blobs" / GREETER.pin["sha256"] / GREETER.filename
    content = bytearray(stored.read_bytes())
    content[content.index(b"hello")] ^= 1
    stored.write_bytes(content)
    with pytest.raises(Failed, match="uv pip") as failure:
        stage.stage(stage_context(root, spec_of(GREETER)))
    assert failure.value.data == {"state": "unchanged"}
    assert leftovers(root) == []


def test_a_toolkit_that_no_wheel_brings_fails(root: Path) -> None:
    with pytest.raises(Failed, match="no wheel brought a CUDA toolkit"):
        stage.stage(stage_context(root, spec_of(GREETER, toolkit={"version": "13.0", "from": "wheels"})))
    assert leftovers(root) == []


@pytest.mark.parametrize("length", [0, -1, 1 << 30])
def test_a_spec_has_a_sane_length(root: Path, length: int) -> None:
    options: dict[str, Any] = {"spec_bytes": length}
    with pytest.raises(Refused, match="--spec-bytes"):
        stage.stage(wheels.context(root, b"{}", **options))
