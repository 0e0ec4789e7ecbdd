"""Each case's judgement, on what it would see."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from cudaup.audit.fatbin import parse_fatbin
from cudaup.smoke import driver, imports, launch, nvcc, record

Json = dict[str, Any]
FATBINS = Path(__file__).parents[2] / "cases" / "fatbin"
GPU = {"index": 0, "compute_cap": "12.0"}
RIGHT = {
    "device": 0,
    "name": "X",
    "sm": 120,
    "binary_version": 120,
    "ptx_version": 120,
    "elements": 1024,
    "untouched": 0,
    "wrong": 0,
    "sum_is_exact": True,
    "error": "",
}


def probed(**changes: Any) -> Json:
    driver_facts = {"loaded": "590.48.01", "on_disk": "590.48.01", "library": "590.48.01", "open_module": True}
    return {"gpus": [GPU], "driver": driver_facts, "simulated": [], "problems": [], **changes}


# driver


@pytest.mark.parametrize(
    ("gpu", "verdict", "reason"),
    [
        (probed(), "pass", "driver 590.48.01, 1 GPUs answer"),
        (probed(simulated=["gpus"]), "waived", "simulated GPUs"),
        (
            probed(gpus=[], driver={"loaded": None, "library": None}, problems=["nvidia-smi: not found"]),
            "waived",
            "no NVIDIA driver is loaded here (nvidia-smi: not found)",
        ),
        (
            probed(gpus=[], problems=["nvidia-smi: no end after 10 s"]),
            "fail",
            "the driver is loaded but no GPU answers (nvidia-smi: no end after 10 s)",
        ),
        (
            probed(driver={"loaded": "590.48.01", "library": "595.71.05"}),
            "fail",
            "the loaded driver is 590.48.01, programs get 595.71.05: a reboot is due",
        ),
    ],
)
def test_the_driver_is_judged_by_what_answers(gpu: Json, verdict: str, reason: str) -> None:
    found = driver.judge(gpu)
    assert (found.verdict, found.reason) == (verdict, reason)


# launch


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        ({}, "pass", "exact values from sm_120 code"),
        ({"untouched": 1024, "wrong": 1024}, "noop", "success was returned and nothing was written"),
        ({"wrong": 1}, "fail", "1 of 1024 values are wrong"),
        ({"sum_is_exact": False}, "fail", "0 of 1024 values are wrong"),
        ({"error": "no kernel image is available"}, "fail", "no kernel image is available"),
        ({"ptx_version": 90}, "substituted", "ran sm_120 code made from compute_90"),
        ({"binary_version": 100, "ptx_version": 100}, "substituted", "ran sm_100 code"),
    ],
)
def test_a_launch_is_judged_by_values_and_code(change: Json, verdict: str, reason: str) -> None:
    found = launch.judge_devices([{**RIGHT, **change}], 1)
    assert (found.verdict, reason in found.reason) == (verdict, True)


def test_one_bad_gpu_decides() -> None:
    found = launch.judge_devices([RIGHT, {**RIGHT, "device": 1, "wrong": 3}], 2)
    assert (found.verdict, found.reason) == ("fail", "GPU 1 (X): 3 of 1024 values are wrong")
    assert len(found.evidence["devices"]) == 2


def test_a_gpu_that_cuda_does_not_see_is_missing_evidence() -> None:
    assert launch.judge_devices([RIGHT], 2).verdict == "error"


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (probed(simulated=["gpus", "driver"]), "GPUs are simulated"),
        (probed(gpus=[]), "no GPU here"),
        (probed(gpus=[], problems=["nvidia-smi: not found"]), "no GPU here (nvidia-smi: not found)"),
        (probed(), "the generation has no CUDA toolkit"),
    ],
)
def test_a_launch_is_waived_with_the_probed_reason(gpu: Json, reason: str) -> None:
    found = launch.judge({"gpu": gpu, "toolkit": None})
    assert (found.verdict, found.reason) == ("waived", reason)


# nvcc


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvcc that hands out recorded fatbins: `codes/X` is what it makes when asked for compute_X."""
    path = tmp_path / "toolkit"
    put(path / "bin" / "g++", "exit 0")
    script = f"""
        for word; do
          case $word in arch=compute_*) arch=${{word#arch=compute_}}; arch=${{arch%%,*}};; --version) exit 0;; esac
          if [ "$last" = -o ]; then out=$word; fi
          last=$word
        done
        cp {path}/codes/$arch "$out" || {{ echo "nvcc fatal: Unsupported gpu architecture" >&2; exit 1; }}"""
    put(path / "bin" / "nvcc", script)
    (path / "codes").mkdir()
    monkeypatch.setenv("PATH", f"{path / 'bin'}:/usr/bin:/bin")
    return path


def put(tool: Path, script: str) -> None:
    tool.parent.mkdir(parents=True, exist_ok=True)
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def teach(toolkit: Path, **codes: str) -> None:
    for arch, code in codes.items():
        (toolkit / "codes" / arch.removeprefix("sm_")).write_bytes((FATBINS / f"sm_{code}.fatbin").read_bytes())


def compile_for(toolkit: Path | None, sm: str | None) -> tuple[str, str]:
    work = str(toolkit.parent) if toolkit else "/nowhere"
    found = nvcc.judge({"toolkit": str(toolkit) if toolkit else None, "sm": sm, "work": work})
    return found.verdict, found.reason


def test_code_for_every_arch_asked_for_passes(toolkit: Path) -> None:
    teach(toolkit, sm_120="120", sm_120a="120a", sm_120f="120f")
    assert compile_for(toolkit, "120") == ("pass", "SASS for 120, 120a, 120f, read back from the binary")


def test_one_suffix_asked_for_is_the_only_one(toolkit: Path) -> None:
    teach(toolkit, sm_120f="120f")
    assert compile_for(toolkit, "120f") == ("pass", "SASS for 120f, read back from the binary")


def test_a_silent_sm_75_fails(toolkit: Path) -> None:
    teach(toolkit, sm_120="75", sm_120a="120a", sm_120f="120f")
    assert compile_for(toolkit, "120") == ("fail", "sm_120: wanted SASS of sm_120, found sass 75")


def test_a_lost_suffix_fails(toolkit: Path) -> None:
    teach(toolkit, sm_120a="120")
    assert compile_for(toolkit, "120a") == ("fail", "sm_120a: wanted SASS of sm_120a, found sass 120")


def test_a_compiler_that_refuses_is_quoted(toolkit: Path) -> None:
    verdict, reason = compile_for(toolkit, "120a")
    assert verdict == "fail"
    assert reason.endswith("nvcc fatal: Unsupported gpu architecture")


def test_what_is_no_fatbin_fails(toolkit: Path) -> None:
    (toolkit / "codes" / "120a").write_text("hello")
    assert compile_for(toolkit, "120a")[1].startswith("sm_120a: no fatbin: byte 0")


def test_without_a_host_compiler_nothing_can_be_compiled(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toolkit / "bin" / "g++").unlink()
    monkeypatch.setenv("PATH", str(toolkit / "bin"))
    assert compile_for(toolkit, "120")[0] == "waived"


@pytest.mark.parametrize(("sm", "reason"), [("120", "has no CUDA toolkit"), (None, "names no GPU architecture")])
def test_without_toolkit_or_arch_it_is_waived(sm: str | None, reason: str) -> None:
    verdict, text = compile_for(None, sm)
    assert (verdict, reason in text) == ("waived", True)


def test_extra_ptx_is_not_what_was_asked_for() -> None:
    mixed = parse_fatbin((FATBINS / "mixed.fatbin").read_bytes())
    assert nvcc.judge_images("120f", mixed) == "wanted SASS of sm_120f, found sass 120f, ptx 120f, sass 90a"
    assert nvcc.judge_images("120f", []) == "wanted SASS of sm_120f, found nothing"


@pytest.mark.parametrize(("sm", "archs"), [("89", ["89"]), ("90", ["90", "90a"]), ("100", ["100", "100a", "100f"])])
def test_an_arch_has_the_suffixes_that_exist_for_it(sm: str, archs: list[str]) -> None:
    assert nvcc.archs_of(sm) == archs


# imports: run by the interpreter of the tests, whose own environment plays the generation


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "venv" / "site"
    site.mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site


def test_modules_of_the_generation_import(site: Path, empty: Path) -> None:
    (site / "one.py").write_text("print('a banner')\n")
    (site / "namespace").mkdir()
    found = imports.judge(["one", "namespace"], site.parent, empty)
    assert (found.verdict, found.reason) == ("pass", "2 imported, each in a process of its own")
    assert found.evidence["imported"] == {"one": f"{site}/one.py", "namespace": f"{site}/namespace"}


def test_a_module_from_elsewhere_fails(site: Path, empty: Path) -> None:
    found = imports.judge(["json"], site.parent, empty)
    assert found.verdict == "fail"
    assert found.reason.startswith("json: came from `")


def test_a_module_that_works_only_after_another_fails(site: Path, empty: Path) -> None:
    (site / "first.py").write_text("import sys\nsys.first = True\n")
    (site / "second.py").write_text("import sys\nsys.first\n")
    found = imports.judge(["first", "second", "gone"], site.parent, empty)
    assert found.verdict == "fail"
    second, gone = found.reason.split("; ")
    assert second == "second: AttributeError: module 'sys' has no attribute 'first'"
    assert gone == "gone: ModuleNotFoundError: No module named 'gone'"


def test_a_crash_is_missing_evidence(site: Path, empty: Path) -> None:
    (site / "crash.py").write_text("import os\nos.abort()\n")
    found = imports.judge(["crash"], site.parent, empty)
    assert (found.verdict, found.reason) == ("error", "crash: killed by signal 6")


def test_the_working_directory_is_no_source_of_modules(
    site: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.parent / "local.py").touch()
    monkeypatch.chdir(site.parent)
    assert imports.judge(["local"], site.parent, empty).verdict == "fail"


# record


def install(site: Path, name: str, **files: str) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    rows = [f"{name}-1.0.dist-info/RECORD,,\n", "__pycache__/gone.cpython-311.pyc,,\n"]
    for stem, text in files.items():
        path = site / f"{stem}.py"
        path.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f"{stem}.py,sha256={digest},{len(text)}\n")
    (info / "RECORD").write_text("".join(rows))


def test_untouched_packages_are_as_recorded(tmp_path: Path) -> None:
    install(tmp_path, "a", one="1", two="22")
    install(tmp_path, "b", three="333")
    found = record.judge([tmp_path])
    assert (found.verdict, found.reason) == ("pass", "5 files as recorded")
    assert (found.evidence["packages"], found.evidence["files"]) == (2, 5)


def test_changed_and_missing_files_are_named_with_their_package(tmp_path: Path) -> None:
    install(tmp_path, "a", one="1", two="22")
    (tmp_path / "one.py").write_text("2")
    (tmp_path / "two.py").unlink()
    found = record.judge([tmp_path])
    assert found.verdict == "fail"
    assert found.reason == f"{tmp_path}/one.py: changed (a-1.0); {tmp_path}/two.py: No such file or directory (a-1.0)"


def test_two_packages_with_one_file_fail_unless_it_is_the_known_one(tmp_path: Path) -> None:
    install(tmp_path, "a", build_backend="1")
    install(tmp_path, "b", build_backend="2")
    assert record.judge([tmp_path]).verdict == "pass"
    install(tmp_path, "c", shared="1")
    install(tmp_path, "d", shared="2")
    found = record.judge([tmp_path])
    assert found.reason == f"{tmp_path}/shared.py: c-1.0 and d-1.0 each bring their own"


def test_the_known_shared_file_has_to_be_one_of_the_two(tmp_path: Path) -> None:
    install(tmp_path, "a", build_backend="1")
    install(tmp_path, "b", build_backend="2")
    (tmp_path / "build_backend.py").write_text("3")
    assert record.judge([tmp_path]).verdict == "fail"


def test_an_environment_without_records_proves_nothing(tmp_path: Path) -> None:
    assert record.judge([tmp_path]).verdict == "fail"


def conda_install(env: Path, name: str, entries: list[Json]) -> None:
    (env / "conda-meta").mkdir(exist_ok=True)
    (env / "conda-meta" / f"{name}.json").write_text(json.dumps({"paths_data": {"paths": entries}}))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_what_is_no_python_package_is_as_conda_recorded(tmp_path: Path) -> None:
    install(tmp_path / "lib" / "site", "a", one="1")
    (tmp_path / "lib" / "libcudart.so").write_text("12.8")
    files = [
        {"_path": "lib/libcudart.so", "path_type": "hardlink", "sha256": sha256("12.8")},
        {"_path": "lib/libcudart.so.12", "path_type": "softlink", "sha256": sha256("12.8")},
        {"_path": "lib/site/__pycache__/one.cpython-311.pyc", "path_type": "hardlink", "sha256": sha256("x")},
        {"_path": "bin/demo", "path_type": "unix_python_entry_point"},
    ]
    conda_install(tmp_path, "cuda-cudart-12.8.90-0", files)
    found = record.judge([tmp_path / "lib" / "site"], [tmp_path / "conda-meta"])
    assert (found.verdict, found.reason) == ("pass", "3 files as recorded")
    (tmp_path / "lib" / "libcudart.so").write_text("13.0")
    found = record.judge([tmp_path / "lib" / "site"], [tmp_path / "conda-meta"])
    assert found.reason == f"{tmp_path}/lib/libcudart.so: changed (cuda-cudart-12.8.90-0)"


def test_a_file_that_conda_wrote_the_path_into_is_as_conda_or_as_pip_recorded(tmp_path: Path) -> None:
    install(tmp_path, "a", one="made by pip")
    entry = {
        "_path": "one.py",
        "path_type": "hardlink",
        "sha256": sha256("made"),
        "sha256_in_prefix": sha256("in /env"),
    }
    conda_install(tmp_path, "a-1.0-py_0", [entry])
    for content, verdict in (("in /env", "pass"), ("made by pip", "pass"), ("made", "fail")):
        (tmp_path / "one.py").write_text(content)
        assert record.judge([tmp_path], [tmp_path / "conda-meta"]).verdict == verdict
    conda_install(tmp_path, "b-1.0-py_0", [{**entry, "sha256_in_prefix": sha256("another")}])
    found = record.judge([tmp_path], [tmp_path / "conda-meta"])
    assert found.reason == f"{tmp_path}/one.py: a-1.0 and a-1.0-py_0 and b-1.0-py_0 each bring their own"
