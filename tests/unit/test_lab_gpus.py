from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cudaup.lab import gpus

RTX = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def smi(upper: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(upper / "usr/bin/nvidia-smi"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture
def rtx(tmp_path: Path) -> Path:
    gpus.install(tmp_path, "pro6000x8", "lab/h1")
    return tmp_path


@pytest.fixture
def h200(tmp_path: Path) -> Path:
    gpus.install(tmp_path, "h200x2", "lab/h1")
    return tmp_path


def test_fields_come_in_the_order_asked(rtx: Path) -> None:
    lines = smi(rtx, "--query-gpu=memory.total,index,name,compute_cap", "--format=csv").stdout.splitlines()
    assert lines[0] == "memory.total [MiB], index, name, compute_cap"
    assert lines[1:] == [f"97887 MiB, {index}, {RTX}, 12.0" for index in range(8)]


def test_header_and_units_can_be_left_out(rtx: Path) -> None:
    told = smi(rtx, "--query-gpu=memory.used,memory.total,driver_version", "--format=csv,noheader,nounits").stdout
    assert told == "0, 97887, 590.48.01\n" * 8


def test_a_recorded_host_tells_what_was_recorded(h200: Path) -> None:
    told = smi(h200, "--query-gpu=name,compute_cap,pci.bus_id,vbios_version", "--format=csv,noheader").stdout
    assert told.splitlines()[1] == "NVIDIA H200, 9.0, 00000000:00:07.0, 96.00.A5.00.1A"


def test_an_unknown_field_fails_by_name(rtx: Path) -> None:
    failed = smi(rtx, "--query-gpu=name,frobs", "--format=csv")
    assert (failed.returncode, failed.stdout) == (2, 'Field "frobs" is not a valid field to query.\n\n')


@pytest.mark.parametrize(
    "arguments", [[], ["--frob"], ["--query-gpu=name"], ["topo"], ["--query-gpu=name", "--format=json"]]
)
def test_unknown_arguments_fail(rtx: Path, arguments: list[str]) -> None:
    failed = smi(rtx, *arguments)
    assert failed.returncode == 2
    assert "Invalid combination of input arguments" in failed.stdout


def test_users_of_a_gpu_can_be_written_in(rtx: Path) -> None:
    query = ("--query-compute-apps=used_gpu_memory,pid", "--format=csv")
    assert smi(rtx, *query).stdout == "used_gpu_memory [MiB], pid\n"
    with (rtx / "etc/cudaup-simulated/nvidia-smi/compute-apps.csv").open("a") as stream:
        stream.write("41, /usr/bin/python3, 512 MiB\n")
    assert smi(rtx, *query).stdout == "used_gpu_memory [MiB], pid\n512 MiB, 41\n"


def test_uuids_are_the_hosts_own_and_the_same_everywhere(tmp_path: Path) -> None:
    told = []
    for folder, identity in (("a", "lab/h1"), ("b", "lab/h1"), ("c", "lab/h2")):
        gpus.install(tmp_path / folder, "pro6000x8", identity)
        uuids = smi(tmp_path / folder, "--query-gpu=uuid", "--format=csv,noheader").stdout.split()
        assert len(set(uuids)) == 8
        told.append(uuids)
    assert told[0] == told[1]
    assert not set(told[0]) & set(told[2])


def test_everything_is_marked_as_simulated(rtx: Path) -> None:
    simulated = rtx / "etc/cudaup-simulated"
    assert (simulated / "what").read_text().split() == ["driver", "gpus"]
    assert "Open Kernel Module for x86_64  590.48.01" in (simulated / "root/proc/driver/nvidia/version").read_text()
    assert (simulated / "root/sys/module/nvidia/version").read_text() == "590.48.01\n"
    [library] = rtx.glob("usr/lib/*/libnvidia-ml.so.1")
    assert library.resolve().name == "libnvidia-ml.so.590.48.01"
