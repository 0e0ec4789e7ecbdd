"""Whole environments: what loaders pick, and what does not fit together."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.unit.audit.cases import CASES, SM120

from cudaup.audit.abi import cuda_majors
from cudaup.audit.device import Device
from cudaup.audit.distributions import Distribution, named, recorded, shared
from cudaup.audit.route import Route, sgl_kernel_routes
from cudaup.audit.target import Target, audit_environment

SITE = "lib/python3.12/site-packages"


class Env:
    """An environment of real binaries under other names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = root / SITE
        self.site.mkdir(parents=True)

    def put(self, case: str, where: str) -> None:
        target = self.site / where
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CASES / case, target)

    def distribution(self, name: str, *owned: str, digest: str = "sha256=x") -> None:
        folder = self.site / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "RECORD").write_text("".join(f"{path},{digest},1\n" for path in owned))

    def audit(self, device: Device = SM120) -> Target:
        return audit_environment(str(self.root), device)


@pytest.fixture
def env(tmp_path: Path) -> Env:
    return Env(tmp_path / "env")


def faults(target: Target) -> list[tuple[str, str]]:
    return [(fault.kind, fault.text) for fault in target.faults]


def test_each_binary_is_judged_by_its_path(env: Env) -> None:
    env.put("several.so", "pkg/ops.so")
    env.put("sm_90a.cubin", "pkg/data/k.cubin")
    env.put("none.so", "pkg/lib/libplain.so.1.2")
    (env.site / "pkg/readme.so.txt").write_text("no binary")
    assert {file.path.removeprefix(f"{SITE}/"): file.verdict for file in env.audit().files} == {
        "pkg/ops.so": "full",
        "pkg/data/k.cubin": "dead",
        "pkg/lib/libplain.so.1.2": "no-gpu-code",
    }


def test_files_and_folders_count_once_whatever_links_there_are(env: Env) -> None:
    env.put("several.so", "pkg/ops.so.1")
    (env.site / "pkg/ops.so").symlink_to("ops.so.1")
    os.link(env.site / "pkg/ops.so.1", env.site / "pkg/zzz.so")
    (env.root / "lib64").symlink_to("lib")
    (env.site / "pkg/loop").symlink_to("..")
    (env.site / "pkg/outside").symlink_to("/")
    assert len(env.audit().files) == 1
    assert env.audit().files[0].path in {f"{SITE}/pkg/ops.so.1", f"{SITE}/pkg/zzz.so"}


def test_a_link_to_nowhere_and_a_very_deep_tree_are_told_and_the_rest_is_audited(env: Env) -> None:
    env.put("several.so", "pkg/ops.so")
    (env.site / "pkg/gone.so").symlink_to("nowhere.so")
    deep = env.site / "d"
    for _ in range(110):
        deep /= "d"
    deep.mkdir(parents=True)
    found = {file.path.removeprefix(f"{SITE}/"): file for file in env.audit().files}
    assert found["pkg/ops.so"].verdict == "full"
    assert found["pkg/gone.so"].notes == ("No such file or directory",)
    assert [f.notes for path, f in found.items() if path.startswith("d/")] == [("deeper than 100 folders: not read",)]


def test_a_root_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        audit_environment(str(tmp_path / "none"), SM120)


def with_sgl_kernel(env: Env, sm90: str = "several.so", sm100: str = "sm_120a.so") -> None:
    env.put(sm90, "sgl_kernel/sm90/common_ops.abi3.so")
    env.put(sm100, "sgl_kernel/sm100/common_ops.abi3.so")
    (env.site / "sgl_kernel/load_utils.py").write_text("")


@pytest.mark.parametrize(("sm", "picks"), [(120, "sm100"), (121, "sm100"), (90, "sm90"), (89, "sm100")])
def test_the_loader_of_sgl_kernel_is_followed(env: Env, sm: int, picks: str) -> None:
    with_sgl_kernel(env)
    (route,) = env.audit(Device(sm)).routes
    assert route.picks == f"{SITE}/sgl_kernel/{picks}/common_ops.abi3.so"
    other = "sm90" if picks == "sm100" else "sm100"
    assert route.others == [f"{SITE}/sgl_kernel/{other}/common_ops.abi3.so"]


def test_the_loader_falls_back_to_the_package_and_takes_compiled_files_first() -> None:
    paths = ["sgl_kernel/load_utils.py", "sgl_kernel/common_ops.py", "sgl_kernel/common_ops.abi3.so"]
    assert sgl_kernel_routes(paths, SM120) == [
        Route("sgl_kernel", "sgl_kernel/common_ops.abi3.so", ["sgl_kernel/common_ops.py"], "the loader's fallback")
    ]
    (none,) = sgl_kernel_routes(["x/sgl_kernel/load_utils.py", "x/sgl_kernel/sm90/common_ops.so"], SM120)
    assert (none.picks, none.others) == (None, ["x/sgl_kernel/sm90/common_ops.so"])
    assert sgl_kernel_routes(["other/load_utils.py"], SM120) == []


def test_symbols_that_this_torch_does_not_export_are_an_abi_fault(env: Env) -> None:
    env.put("libc10.so", "torch/lib/libc10.so")
    env.put("fits.so", "pkg/fits.so")
    env.put("other_torch.so", "pkg/other.so")
    found = env.audit()
    (fault,) = [fault for fault in found.faults if fault.kind == "abi"]
    assert fault.paths == [f"{SITE}/pkg/other.so"]
    assert fault.text == "torch here does not export _ZN3c106Device4moveEl: built for another torch"


def test_without_torch_nothing_is_said_about_it(env: Env) -> None:
    env.put("other_torch.so", "pkg/other.so")
    assert faults(env.audit()) == []


def test_libraries_of_another_cuda_than_torch_s_are_told(env: Env) -> None:
    env.put("other_torch.so", "torch/lib/libtorch_cuda.so")  # needs libcudart.so.12
    env.put("other_torch.so", "pkg/same.so")
    assert [kind for kind, _ in faults(env.audit()) if kind == "cuda-major"] == []
    patched = (env.site / "pkg/same.so").read_bytes().replace(b"libcudart.so.12", b"libcudart.so.13")
    (env.site / "pkg/newer.so").write_bytes(patched)
    assert [text for kind, text in faults(env.audit()) if kind == "cuda-major"] == [
        f"needs libraries of CUDA 13, torch here is of CUDA 12: {SITE}/pkg/newer.so"
    ]


@pytest.mark.parametrize(
    ("needs", "majors"),
    [
        (["libcudart.so.13", "libcublas.so.13", "libc.so.6"], [13]),
        (["libcudart.so.11.0", "libnvrtc.so.12"], [11, 12]),
        (["libcufft.so.12", "libcudart_static.so.9", "libcuda.so.1"], []),  # other libraries count otherwise
    ],
)
def test_cuda_majors_come_from_the_runtime_nvrtc_and_cublas(needs: list[str], majors: list[int]) -> None:
    assert cuda_majors(needs) == majors


def test_two_cuda_majors_and_two_owners_are_told(env: Env) -> None:
    shared_file = "nvidia/nccl/lib/libnccl.so.2"
    env.put("several.so", shared_file)
    env.distribution("nvidia_nccl_cu12", shared_file, digest="sha256=a")
    env.distribution("nvidia_nccl_cu13", shared_file, digest="sha256=b")
    env.distribution("nvidia_cublas_cu12", "nvidia/cublas/lib/libcublas.so.12")
    assert faults(env.audit()) == [
        (
            "two-cuda-majors",
            "CUDA 12: nvidia-cublas-cu12, nvidia-nccl-cu12; CUDA 13: nvidia-nccl-cu13; of both: nvidia-nccl",
        ),
        (
            "two-owners",
            f"nvidia-nccl-cu12 and nvidia-nccl-cu13 own 1 files in common; installed last wins: {SITE}/{shared_file}",
        ),
    ]


def test_equal_files_of_two_owners_are_told_differently() -> None:
    owned = [("a.py", "sha256=x"), ("b.py", "sha256=y"), ("a.pyc", "sha256=z")]
    others = [("a.py", "sha256=x"), ("a.pyc", "sha256=1"), ("c.py", "")]
    (found,) = shared([Distribution("one", "1", owned), Distribution("two", "1", others)])
    assert (found.owners, found.paths, found.differing) == (("one", "two"), ["a.py"], [])


def test_packages_that_another_brought_along_are_not_distributions(env: Env) -> None:
    env.distribution("setuptools", "setuptools/_vendor/wheel-1.0.dist-info/RECORD")
    vendored = env.site / "setuptools/_vendor/wheel-1.0.dist-info"
    vendored.mkdir(parents=True)
    (vendored / "RECORD").write_text("wheel-1.0.dist-info/RECORD,,\n")
    assert faults(env.audit()) == []


def test_a_known_compiler_is_jit_source_even_with_libraries_of_its_own(env: Env) -> None:
    env.put("several.so", "triton/backends/libcupti.so")
    env.distribution("triton", "triton/backends/libcupti.so")
    env.distribution("flashinfer_python", "flashinfer/data/csrc/a.cu")
    env.distribution("plain", "plain/a.py")
    assert [one.distribution for one in env.audit().distributions] == ["flashinfer-python", "triton"]


def test_a_record_is_read_as_it_is_written() -> None:
    assert recorded('"a,b.so",sha256=x,1\n../../../bin/tool,sha256=y,2\n\nodd\nc.py,,\n', SITE) == [
        (f"{SITE}/a,b.so", "sha256=x"),
        ("bin/tool", "sha256=y"),
        (f"{SITE}/c.py", ""),
    ]
    assert named(f"{SITE}/Flash_Attn.4-4.0b1.dist-info") == ("flash-attn-4", "4.0b1")
    assert named("other") == ("", "")


def test_a_dead_file_says_what_that_costs(env: Env) -> None:
    env.put("older.so", "sgl_kernel/flash_ops.abi3.so")
    (file,) = env.audit(Device(75)).as_json()["files"]
    assert file["cost"].startswith("FlashAttention 3 fails at its first call")
    (file,) = env.audit().as_json()["files"]
    assert (file["verdict"], file["cost"]) == ("jit", "")
