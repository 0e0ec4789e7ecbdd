"""What has to be true of a resolved stack; each case is a trap that somebody fell into."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.domain.builders import make_facts, stack_json

from cudaup.domain.audit import AuditVerdict, DistributionAudit, FileAudit, GpuAsked, TargetAudit
from cudaup.domain.errors import UsageError
from cudaup.domain.locking import (
    Candidate,
    Lock,
    LockedWheel,
    Platform,
    best_wheel,
    changes,
    faults_of_content,
    faults_of_names,
    in_order,
    made_from,
    platform_of,
    require_meant,
    useless_on,
    walked_back,
    with_wheels,
)
from cudaup.domain.packages import Packages
from cudaup.domain.stack import Stack
from cudaup.domain.versions import VersionRange

HOST = Platform(glibc=36, python=(3, 11))
NIGHTLY = {"url": "https://download.pytorch.org/whl/nightly/cu130", "packages": ["torch"]}


def stack_of(*require: str, **packages: Any) -> Stack:
    """For CUDA 13.0."""
    raw = stack_json()
    del raw["wheels"]
    return Stack.model_validate({**raw, "packages": {"require": list(require) or ["torch"], **packages}})


def wheel(name: str, version: str, tags: str = "py3-none-any") -> Candidate:
    filename = f"{name.replace('-', '_')}-{version}-{tags}.whl"
    return Candidate(name=name, version=version, filename=filename, sha256="a" * 64, size=1)


def told(stack: Stack, *chosen: Candidate) -> list[str]:
    return [f"{fault.wanted} | {fault.found}" for fault in faults_of_names(stack, chosen)]


@pytest.mark.parametrize(
    ("chosen", "fault"),
    [
        (
            [wheel("torch", "2.9.1+cu128"), wheel("nvidia-nccl-cu12", "2.27.5"), wheel("nvidia-cudnn-cu13", "9.1")],
            "packages of CUDA 13 only | torch 2.9.1+cu128, nvidia-nccl-cu12 2.27.5",
        ),
        ([wheel("nvidia-nvjitlink", "13.5.37")], "nvidia-nvjitlink of toolkit 13.0 | 13.5.37"),
        (
            [wheel("flashinfer-python", "0.7.2"), wheel("flashinfer-cubin", "0.6.13")],
            "one version of all FlashInfer packages | flashinfer-python 0.7.2, flashinfer-cubin 0.6.13",
        ),
        (
            [wheel("sgl-kernel", "0.3.21"), wheel("sglang-kernel", "0.4.10")],
            "sgl-kernel or sglang-kernel | both: they own the same files",
        ),
    ],
)
def test_what_does_not_go_together_is_told(chosen: list[Candidate], fault: str) -> None:
    assert fault in told(stack_of(), *chosen)


def test_what_goes_together_is_not_told() -> None:
    chosen = [
        wheel("torch", "2.14.1"),
        wheel("nvidia-nccl-cu13", "2.30.7"),
        wheel("nvidia-cuda-nvcc", "13.0.88"),
        wheel("nvidia-cutlass-dsl-libs-cu12", "4.8.0"),
        wheel("flashinfer-python", "0.6.17"),
        wheel("flashinfer-jit-cache", "0.6.17+cu130"),
    ]
    assert told(stack_of(), *chosen) == []


@pytest.mark.parametrize("version", ["2.12.0", "2.12.0.dev20261130+cpu", "2.12.0.dev20261130+cu132"])
def test_torch_of_an_index_has_to_be_its_build(version: str) -> None:
    """A final version of another index outranks a nightly, whatever it was built for."""
    stack = stack_of("torch", indexes={"nightly": NIGHTLY})
    assert told(stack, wheel("torch", version)) == [f"a cu130 build of torch | torch {version}"]
    assert told(stack, wheel("torch", "2.12.0.dev20261130+cu130")) == []


def test_an_old_c_library_does_not_make_the_stack_walk_back_in_silence() -> None:
    host = Platform(glibc=28, python=(3, 12))
    there = [wheel("sglang", "0.5.10.post1"), wheel("torch", "2.9.1"), wheel("numpy", "1.0")]
    newest = [
        wheel("sglang", "0.5.23", "cp310-abi3-manylinux_2_34_x86_64"),
        wheel("torch", "2.14.1"),
        wheel("numpy", "2.0"),
    ]
    (fault,) = walked_back(Packages(require=("sglang", "torch>=2.9")), there, newest, host)
    assert fault.found == (
        "sglang 0.5.10.post1 instead of 0.5.23, torch 2.9.1 instead of 2.14.1: sglang 0.5.23 needs glibc 2.34"
    )
    assert walked_back(Packages(require=("numpy==1.0",)), [wheel("numpy", "1.0")], [wheel("numpy", "1.0")], host) == ()
    assert walked_back(Packages(require=("torch",)), newest, newest, host) == ()


def locked(name: str, **content: Any) -> LockedWheel:
    return LockedWheel(**wheel(name, "1.0").model_dump(exclude={"others"}), **content)


def test_what_the_binaries_ask_for_counts_whatever_they_are_called() -> None:
    wheels = [locked("torch", cuda=(13,), sass=("120",)), locked("kernels", cuda=(12,)), locked("plain")]
    (fault,) = faults_of_content(stack_of(), wheels)
    assert fault.found == "kernels 1.0 asks the loader for CUDA 12"
    (cpu,) = faults_of_content(stack_of(), [locked("torch")])
    assert cpu.found == "torch-1.0-py3-none-any.whl: a CPU build"


def test_the_platform_is_that_of_the_oldest_host() -> None:
    pythons = [{"path": f"/usr/bin/python{version[:4]}", "version": version} for version in ("3.11.2", "3.12.1")]
    old = make_facts(host={"glibc": "2.35"}, pythons=pythons[:1])
    new = make_facts(host={"glibc": "2.39"}, pythons=pythons)
    stack = stack_of().model_copy(update={"python": VersionRange(">=3.10,<3.13")})
    assert str(platform_of(stack, [old, new])) == "Python 3.11, glibc 2.35, x86_64"
    assert platform_of(stack, [new]).python == (3, 12)


@pytest.mark.parametrize(
    "other",
    [make_facts(host={"arch": "aarch64"}), make_facts(host={"glibc": None}), make_facts(pythons=[])],
)
def test_hosts_that_no_lock_fits_are_named(other: Any) -> None:
    with pytest.raises(UsageError, match="no lock fits all of these hosts"):
        platform_of(stack_of(), [make_facts(), other])


def test_an_installer_takes_the_most_special_wheel() -> None:
    names = ["py3-none-any", "cp310-abi3-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_17_x86_64"]
    found = [wheel("a", "1", tags) for tags in (*names, "cp311-cp311-manylinux_2_39_x86_64")]
    assert best_wheel(found, HOST).filename == f"a-1-{names[2]}.whl"
    assert best_wheel(found[:2], HOST).filename == f"a-1-{names[1]}.whl"


def test_changes_are_told_by_package() -> None:
    old = [wheel("a", "1"), wheel("b", "1"), wheel("c", "1"), wheel("d", "1")]
    new = [wheel("a", "1"), wheel("b", "2"), wheel("e", "1"), wheel("d", "1").model_copy(update={"sha256": "b" * 64})]
    assert changes(old, new) == ("  b 1 -> 2", "- c 1", "  d 1: another file (d-1-py3-none-any.whl)", "+ e 1")


def test_a_lock_is_of_what_was_asked_for_and_of_nothing_else() -> None:
    stack = stack_of("torch")
    assert made_from(stack) == made_from(stack.model_copy(update={"description": "other", "imports": ()}))
    assert made_from(stack) != made_from(stack_of("torch", constrain=["numpy<3"]))
    nvcc = wheel("nvidia-cuda-nvcc", "13.0.88")
    wheels = (locked("torch", sass=("120",)), LockedWheel(**nvcc.model_dump(exclude={"others"})))
    lock = Lock(made_from=made_from(stack), platform=HOST, tools={}, total_bytes=2, wheels=wheels)
    filled = with_wheels(stack, lock)
    assert str(filled.python) == f"{stack.python},==3.11.*"  # a host may have others too
    assert [(type(each).__name__, each.name) for each in filled.wheels] == [("Wheel", "torch"), ("Wheel", nvcc.name)]


def test_a_wheel_is_useless_when_all_its_gpu_code_is_dead() -> None:
    def target(*verdicts: str) -> TargetAudit:
        files = [FileAudit.model_validate({"path": f"{v}.so", "verdict": v}) for v in verdicts]
        return TargetAudit(target="a.whl", kind="wheel", gpu=GpuAsked(sm=120), files=tuple(files))

    assert useless_on(target("dead", "no-gpu-code"))
    assert not useless_on(target("dead", "full"))
    assert not useless_on(target("no-gpu-code"))
    later = DistributionAudit(distribution="a", verdict=AuditVerdict.JIT_SOURCE)
    assert not useless_on(target("dead").model_copy(update={"distributions": (later,)}))


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        ({"require": ["torch @ https://x/y.whl"]}, "wanted a name and versions"),
        ({"require": ["torch; python_version > '3'"]}, "wanted a name and versions"),
        ({"require": ["torch", "--pre"]}, "wanted a requirement such as torch==2.14.1, found --pre"),
        ({"require": ["numpy"], "indexes": {"nightly": NIGHTLY}}, "wanted a package of packages.require, found torch"),
        (
            {"require": ["torch"], "indexes": {"nightly": NIGHTLY, "other": NIGHTLY}},
            r"wanted one index for torch \(it is in nightly\)",
        ),
        (
            {"require": ["torch"], "indexes": {"a": {"url": "https://u:p@x/", "packages": ["torch"]}}},
            "without user or query",
        ),
    ],
)
def test_packages_that_cannot_be_asked_for(packages: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Packages.model_validate(packages)


def test_architectures_are_in_the_order_of_their_numbers() -> None:
    assert in_order(["120a", "90", "100f", "90", "120f (ISA 9.0)"]) == ("90", "100f", "120a", "120f (ISA 9.0)")


def test_a_python_that_the_stack_excludes_and_a_package_that_is_not_locked_are_refused() -> None:
    stack, known = stack_of(), [wheel("numpy", "1")]
    require_meant(stack, HOST, known, ["NumPy"])
    with pytest.raises(UsageError, match=r"not for this Python[\s\S]*wanted: >=3.11,<3.12[\s\S]*found:  3.12"):
        require_meant(stack, Platform(glibc=36, python=(3, 12)), known, [])
    with pytest.raises(UsageError, match=r"cannot upgrade six[\s\S]*found:  numpy"):
        require_meant(stack, HOST, known, ["numpy", "six"])
