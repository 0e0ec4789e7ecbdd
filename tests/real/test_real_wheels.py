"""The audit against wheels as they are on the index, and against cuobjdump. Gigabytes, cached: `make test-real`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from cudaup.adapters.auditor import BinaryAuditor
from cudaup.adapters.wheels import cache_directory
from cudaup.audit.device import Device
from cudaup.audit.file import audit_path
from cudaup.domain.audit import Asked, FileAudit, TargetAudit

pytestmark = pytest.mark.timeout(1800)

CACHE = cache_directory(os.environ) / "real-wheels"
SM120 = Asked(sm="120", driver="590.48.01")
SGLANG, SGL, NCCL = "sglang-kernel==0.4.10", "sgl-kernel==0.3.21", "nvidia-nccl-cu13==2.32.3"
TORCH, CUOBJDUMP = "torch==2.14.1", "nvidia-cuda-cuobjdump==13.5.37"
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
COMPARED = {  # the files that carry code; the second copy of a name in a wheel has the same bytes or is like the first
    SGLANG: [
        "sgl_kernel/sm100/common_ops",
        "sgl_kernel/flashmla_ops",
        "sgl_kernel/flash_ops",
        "sgl_kernel/spatial_ops",
    ],
    SGL: ["sgl_kernel/sm90/common_ops", "sgl_kernel/flashmla_ops", "sgl_kernel/flash_ops", "lib/mscclpp_nccl.so.0.6.0"],
    NCCL: ["nvidia/nccl/lib/libnccl.so.2"],
    TORCH: ["torch/lib/libtorch_cuda.so", "torch/lib/libtorch_cuda_linalg.so", "torch/lib/libtorch_nvshmem.so"],
}


def fetched(requirement: str) -> Path:
    """From the cache, or by pip from wherever it is configured to look."""
    folder = CACHE / requirement
    if not any(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.12", *(f"--platform={name}_x86_64" for name in PLATFORMS)]
        subprocess.run([*command, "--dest", str(folder), requirement], check=True, timeout=1200)
    return next(folder.glob("*.whl"))


def audited(requirement: str) -> TargetAudit:
    return BinaryAuditor().audit(str(fetched(requirement)), SM120)


def counted(found: TargetAudit) -> dict[str, tuple[str, int, int]]:
    return {file.path: (str(file.verdict), file.sass, file.containers) for file in found.files if file.containers}


@pytest.fixture(scope="module")
def cuobjdump() -> Path:
    target = CACHE / "cuobjdump"
    with zipfile.ZipFile(fetched(CUOBJDUMP)) as archive:
        name = next(name for name in archive.namelist() if name.endswith("bin/cuobjdump"))
        target.write_bytes(archive.read(name))
    target.chmod(0o755)
    return target


def test_sglang_kernel_0_4_10() -> None:
    found = audited(SGLANG)
    assert counted(found) == {
        "sgl_kernel/flash_ops.abi3.so": ("dead", 0, 372),
        "sgl_kernel/flashmla_ops.abi3.so": ("dead", 0, 57),
        "sgl_kernel/infllm_ops.cpython-310-x86_64-linux-gnu.so": ("full", 4, 4),
        "sgl_kernel/spatial_ops.abi3.so": ("full", 1, 1),
        "sgl_kernel/sm100/common_ops.abi3.so": ("full", 35, 35),
        "sgl_kernel/sm90/common_ops.abi3.so": ("full", 35, 35),
    }
    assert found.cuda_majors == [13]
    assert [route.picks for route in found.routes] == ["sgl_kernel/sm100/common_ops.abi3.so"]


def test_sgl_kernel_0_3_21() -> None:
    found = audited(SGL)
    counts = {path: count for path, count in counted(found).items() if path.startswith("sgl_kernel/")}
    assert counts == {
        "sgl_kernel/flash_ops.abi3.so": ("dead", 0, 182),
        "sgl_kernel/flashmla_ops.abi3.so": ("dead", 0, 11),
        "sgl_kernel/spatial_ops.abi3.so": ("full", 1, 1),
        "sgl_kernel/sm100/common_ops.abi3.so": ("full", 74, 74),
        "sgl_kernel/sm90/common_ops.abi3.so": ("full", 74, 74),
    }
    assert found.cuda_majors == [12]
    same = {file.path: file.same_as for file in found.files if file.path.startswith("lib/mscclpp.so")}
    assert same == {
        "lib/mscclpp.so": None,
        "lib/mscclpp.so.0": "lib/mscclpp.so",
        "lib/mscclpp.so.0.6.0": "lib/mscclpp.so",
    }


def test_nccl_2_32_3() -> None:
    assert counted(audited(NCCL)) == {"nvidia/nccl/lib/libnccl.so.2": ("partial", 56, 76)}


def test_torch_2_14_1() -> None:
    found = audited(TORCH)
    assert counted(found)["torch/lib/libtorch_cuda.so"] == ("full", 475, 475)
    assert found.cuda_majors == [13]


@pytest.mark.parametrize("requirement", sorted(COMPARED))
def test_cuobjdump_lists_the_same_images(requirement: str, cuobjdump: Path, tmp_path: Path) -> None:
    streamed = {file.path: file for file in audited(requirement).files}
    with zipfile.ZipFile(fetched(requirement)) as archive:
        for start in COMPARED[requirement]:
            name = next(name for name in archive.namelist() if name.startswith(start))
            path = tmp_path / "file.so"
            with archive.open(name) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            on_disk = audit_path(str(path), name, Device(120, (13, 1)))
            assert on_disk.entries == streamed[name].entries
            assert printed(streamed[name]) == listed(cuobjdump, path), name


def printed(file: FileAudit) -> Counter[str]:
    """cuobjdump prints SASS for a family with the plain arch."""
    counts: Counter[str] = Counter()
    for image, count in (file.entries or {}).items():
        counts[image.removesuffix("f") if image.startswith("sass") else image] += count
    return counts


def listed(cuobjdump: Path, path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for option, kind in (("--list-elf", "sass"), ("--list-ptx", "ptx")):
        done = subprocess.run([str(cuobjdump), option, str(path)], capture_output=True, text=True, check=False)
        counts.update(f"{kind} {a}" for a in re.findall(r"sm_(\d+[af]?)\.(?:cubin|ptx)$", done.stdout, re.MULTILINE))
    return counts
