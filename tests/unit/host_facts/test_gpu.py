from __future__ import annotations

import time
from pathlib import Path

import pytest

from cudaup.host import command, gpu

RECORDED = Path(__file__).parents[2] / "cases" / "h200x2-580.159.04-ubuntu24.04"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def put_tool(folder: Path, name: str, script: str) -> None:
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing but what the test puts there (and a shell's own tools)."""
    monkeypatch.setattr(command, "SEARCH_PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_recorded_gpus() -> None:
    assert gpu.parse_gpus(recorded("nvidia-smi_query-gpu.csv"))[1] == {
        "index": 1,
        "uuid": "GPU-00000000-0000-0000-0000-000000000002",
        "name": "NVIDIA H200",
        "compute_cap": "9.0",
        "memory_mib": 143771,
        "bus_id": "00000000:00:07.0",
    }


def test_headers_colours_and_chatter_are_no_gpus() -> None:
    text = "\x1b[4mindex, uuid, name, compute_cap, memory.total [MiB], pci.bus_id\x1b[0m\n" + "warning: low power\n"
    line = "\x1b[4m0\x1b[0m, GPU-1, NVIDIA GB10, 12.1, [N/A], 0000000F:01:00.0\n"
    found = gpu.parse_gpus(text + line)
    assert [(each["index"], each["name"], each["memory_mib"]) for each in found] == [(0, "NVIDIA GB10", None)]


def test_a_process_name_may_hold_commas() -> None:
    text = "pid, process_name, used_gpu_memory [MiB]\n4711, serve --devices 0,1, 512 MiB\n4712, [Not Found], [N/A]\n"
    assert gpu.parse_gpu_users(text) == [
        {"pid": 4711, "name": "serve --devices 0,1", "memory_mib": 512},
        {"pid": 4712, "name": "[Not Found]", "memory_mib": None},
    ]


def test_no_processes_is_an_empty_answer() -> None:
    assert gpu.parse_gpu_users("") == []


def test_recorded_module_version_keeps_its_text_and_says_it_is_the_open_one() -> None:
    assert gpu.parse_module_version(recorded("proc_driver_nvidia_version.txt")) == ("580.159.04", True)


def test_the_closed_module() -> None:
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.06  Wed Jun 26 06:46:07 UTC 2024\n"
    assert gpu.parse_module_version(text) == ("535.183.06", False)


def test_no_module() -> None:
    assert gpu.parse_module_version("") == (None, None)


def test_gpus_are_asked_for_by_name(tools: Path) -> None:
    put_tool(tools, "nvidia-smi", f"""echo "$@" > {tools}/asked; echo '0, GPU-1, NVIDIA X, 12.0, 97887 MiB, 0:1'""")
    problems: list[str] = []
    assert [each["compute_cap"] for each in gpu.gpus(problems)] == ["12.0"]
    assert problems == []
    asked = (tools / "asked").read_text().split()
    assert asked == ["--query-gpu=index,uuid,name,compute_cap,memory.total,pci.bus_id", "--format=csv,noheader"]


def test_a_hanging_tool_is_a_problem_and_not_a_hang(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_SMI_LIMIT_S", 0.2)
    put_tool(tools, "nvidia-smi", "sleep 600 & sleep 600")
    problems: list[str] = []
    began = time.monotonic()
    assert gpu.gpus(problems) == []
    assert problems == ["nvidia-smi: no end after 0.2 s"]
    assert time.monotonic() - began < 2


def test_a_failing_tool_is_quoted(tools: Path) -> None:
    put_tool(tools, "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch' >&2; exit 18")
    problems: list[str] = []
    assert gpu.gpu_users(problems) == []
    assert problems == ["nvidia-smi: exit code 18: Failed to initialize NVML: Driver/library version mismatch"]


def test_a_missing_tool_is_a_problem(tools: Path) -> None:
    assert tools.is_dir()
    problems: list[str] = []
    gpu.gpus(problems)
    assert problems == ["nvidia-smi: not found"]


def test_the_three_driver_versions_are_three_facts(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tools / "simulated" / "root"
    library = root / "usr" / "lib" / "x86_64-linux-gnu"
    library.mkdir(parents=True)
    (library / "libnvidia-ml.so.590.48.02").touch()
    (library / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.590.48.02")
    (root / "proc" / "driver" / "nvidia").mkdir(parents=True)
    (root / "proc" / "driver" / "nvidia" / "version").write_text(recorded("proc_driver_nvidia_version.txt"))
    (tools / "simulated" / "what").write_text("gpus driver\n")
    monkeypatch.setattr(gpu, "_SIMULATED", tools / "simulated")
    put_tool(tools, "modinfo", 'test "$1 $2 $3" = "-F version nvidia" && echo 595.71.05')
    assert gpu.driver() == {
        "loaded": "580.159.04",
        "on_disk": "595.71.05",
        "library": "590.48.02",
        "open_module": True,
    }
    assert gpu.simulated() == ["gpus", "driver"]
