"""`cudaup audit` as a person runs it."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from tests.unit.audit.cases import CASES

from cudaup.ui.cli import main

PROMISE = (
    "An audit says that code is there, never that it works: whether the host-side code ever launches it on this GPU "
    "cannot be seen here."
)


def ended(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    """Like sgl-kernel: dead FA3, two math modes of which one would be dead, and a copy."""
    path = tmp_path / "sgl_kernel-0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(CASES / "relocatable.so", "sgl_kernel/flash_ops.abi3.so")
        archive.write(CASES / "several.so", "sgl_kernel/sm100/common_ops.abi3.so")
        archive.write(CASES / "sm_90a.cubin", "sgl_kernel/sm90/common_ops.abi3.so")
        archive.write(CASES / "older.so", "sgl_kernel/older.so")
        archive.write(CASES / "older.so", "sgl_kernel/older.so.1")
        archive.write(CASES / "none.so", "sgl_kernel/plain.so")
        archive.writestr("sgl_kernel/load_utils.py", "")
    return str(path)


def test_the_table_tells_the_dead_first_and_what_that_costs(wheel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["audit", wheel, "--sm", "120", "--driver", "590.48.01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{wheel} on SM120, driver 590.48.01, CUDA 13.1: PTX up to ISA 9.1",
        "  in sgl_kernel/",
        "  DEAD    flash_ops.abi3.so         0 of 1          90",
        "      FlashAttention 3 fails at its first call; another attention backend is needed",
        "      1 containers for device linking are in it; they are never loaded",
        "  (DEAD)  sm90/common_ops.abi3.so   0 of 1          90a",
        "      not taken by its loader on this GPU",
        "  jit     older.so                  0 + 1 JIT of 1  80; PTX 80",
        "  jit     older.so.1                0 + 1 JIT of 1  80; PTX 80",
        "      the same bytes as sgl_kernel/older.so",
        "  full    sm100/common_ops.abi3.so  2 of 2          80 90a 100f 120a; PTX 90",
        "  loader of sgl_kernel: takes sgl_kernel/sm100/common_ops.abi3.so (precise math for SM120): full, 2 of 2",
        "  2 dead; 2 jit; 1 full; 1 no-gpu-code",
        "",
        PROMISE,
    ]


def test_a_required_dead_file_is_exit_3_and_is_named(wheel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["audit", wheel, "--sm", "12.0", "--require", "common_ops"]) == 0
    assert ended(["audit", wheel, "--sm", "12.0", "--require", "flash_ops"]) == 3
    assert "REQUIRED flash_ops: dead (sgl_kernel/flash_ops.abi3.so)" in capsys.readouterr().out
    assert ended(["audit", wheel, "--sm", "90", "--require", "flash_ops"]) == 0


def test_json_has_everything_once(wheel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["audit", wheel, "--sm", "120", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["kind"]) == (1, "audit")
    (target,) = found["targets"]
    assert target["gpu"] == {"sm": 120, "cuda": None, "driver": None, "ptx_isa": None}
    files = {file["path"]: file for file in target["files"]}
    assert len(files) == 6
    assert files["sgl_kernel/older.so"]["ptx_archs"] == ["80 (ISA 9.0)"]
    assert files["sgl_kernel/flash_ops.abi3.so"]["entries"] == {"sass 90": 1}


def test_the_gpu_comes_from_the_stack(capsys: pytest.CaptureFixture[str]) -> None:
    stack = str(Path(__file__).parents[3] / "stacks" / "demo.yml")
    assert ended(["audit", str(CASES / "sm_120.so"), "-s", stack]) == 0
    assert "on SM120, any driver" in capsys.readouterr().out


def test_a_stack_s_gate_is_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo = Path(__file__).parents[3] / "stacks" / "demo.yml"
    stack = tmp_path / "gated.yml"
    stack.write_text(demo.read_text() + "\naudit:\n  require: [sm_90a.cubin]\n")
    assert ended(["audit", str(CASES / "sm_90a.cubin"), "-s", str(stack)]) == 3
    assert "REQUIRED sm_90a.cubin: dead" in capsys.readouterr().out
    assert ended(["audit", str(CASES / "sm_90a.cubin"), "-s", str(stack), "--sm", "90"]) == 0


def test_many_loose_cubins_are_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(50):
        shutil.copy(CASES / "sm_90a.cubin", tmp_path / f"k{number}.cubin")
    assert ended(["audit", str(tmp_path), "--sm", "120"]) == 0
    out = capsys.readouterr().out
    assert "./ (50 files)" in out
    assert "0 of 50" in out
    assert len(out.splitlines()) < 8


def test_an_unreadable_target_is_told_and_the_others_are_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.whl"
    bad.write_bytes(b"PK")
    assert ended(["audit", str(bad), str(CASES / "sm_120.so"), "--sm", "120"]) == 1
    out = capsys.readouterr().out
    assert f"{bad}: CANNOT BE AUDITED" in out
    assert "full  " in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.so"], "for which GPU?"),
        (["--sm", "120"], "what is to be audited?"),
        (["x.so", "-i", "h,", "--sm", "120"], "found:  both"),
        (["x.so", "--sm", "12"], "'12' is no GPU architecture"),
        (["x.so", "--sm", "120", "--driver", "590.1", "--cuda", "13.1"], "which of the two?"),
    ],
)
def test_mistakes_are_exit_1(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["audit", *arguments]) == 1
    assert said in capsys.readouterr().err
