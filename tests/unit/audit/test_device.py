"""NVIDIA's compatibility rules, as in the CUDA documentation: what runs on what."""

from __future__ import annotations

import pytest

from cudaup.audit.device import Device, UnknownDevice, cuda_of_driver, isa_of, parse_cuda, parse_sm
from cudaup.audit.fatbin import Image


def image(kind: str, arch: str, isa: tuple[int, int] = (9, 0)) -> Image:
    bare = arch.rstrip("af")
    return Image(kind, int(bare), arch[len(bare) :], isa, "", 1, 1)


@pytest.mark.parametrize(
    ("sm", "runs", "does_not"),
    [
        (120, ["120", "120a", "120f"], ["121", "121a", "121f", "90", "90a", "100f", "103f", "80", "130"]),
        (121, ["120", "121", "120f", "121a", "121f"], ["120a", "110"]),
        (103, ["100", "103", "100f", "103a", "103f"], ["100a", "107", "120"]),
        (89, ["80", "86", "89"], ["90", "75", "90a"]),
        (100, ["100", "100a", "100f"], ["103f", "101", "90"]),
        (107, ["100", "103", "107", "107a"], ["100f", "103f", "110"]),  # nothing says which family it is of
        (110, ["110", "110a", "110f"], ["101", "101f", "100f"]),
    ],
)
def test_sass_runs_within_its_major_and_suffix(sm: int, runs: list[str], does_not: list[str]) -> None:
    device = Device(sm)
    assert [arch for arch in runs + does_not if device.runs(image("sass", arch))] == runs
    assert not any(device.compiles(image("sass", arch)) for arch in runs)


@pytest.mark.parametrize(
    ("sm", "compiles", "does_not"),
    [
        (120, ["75", "90", "100", "120", "120a", "120f"], ["90a", "100a", "100f", "121", "121f"]),
        (121, ["80", "120", "121", "120f", "121f"], ["120a", "90a", "100f"]),
    ],
)
def test_ptx_is_compiled_for_newer_gpus_unless_it_has_a_suffix(
    sm: int, compiles: list[str], does_not: list[str]
) -> None:
    device = Device(sm)
    assert [arch for arch in compiles + does_not if device.compiles(image("ptx", arch))] == compiles
    assert not any(device.runs(image("ptx", arch)) for arch in compiles)


def test_lto_ir_and_unknown_kinds_neither_run_nor_compile() -> None:
    for kind in ("lto-ir", "kind-16"):
        assert not Device(120).runs(image(kind, "120"))
        assert not Device(120).compiles(image(kind, "120"))


@pytest.mark.parametrize(
    ("cuda", "isa", "is_known"),
    [
        ((13, 0), (9, 0), True),
        ((13, 0), (9, 1), False),  # NCCL 2.30.7 has ISA 9.3: a 580 driver cannot compile that
        ((13, 1), (9, 1), True),
        ((13, 5), (9, 3), True),
        ((12, 8), (8, 7), True),
        ((12, 8), (8, 8), False),
        ((12, 8), (9, 0), False),
        (None, (99, 0), True),
    ],
)
def test_ptx_newer_than_the_driver_is_of_no_use(
    cuda: tuple[int, int] | None,
    isa: tuple[int, int],
    is_known: bool,  # noqa: FBT001
) -> None:
    assert Device(120, cuda).compiles(image("ptx", "120", isa)) is is_known


@pytest.mark.parametrize(("text", "sm"), [("120", 120), ("12.0", 120), ("sm_90", 90), ("SM121", 121), ("8.9", 89)])
def test_an_architecture_is_written_in_several_ways(text: str, sm: int) -> None:
    assert parse_sm(text) == sm


@pytest.mark.parametrize("text", ["", "blackwell", "12", "120a", "12.10", "1200"])
def test_what_is_no_architecture_is_refused(text: str) -> None:
    with pytest.raises(UnknownDevice, match="no GPU architecture"):
        parse_sm(text)


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("590.48.01", (13, 1)),
        ("580.65.06", (13, 0)),
        ("595.71.05", (13, 2)),
        ("570.211.01", (12, 8)),
        ("575.1", (12, 9)),
        ("700.10", (13, 2)),  # newer than what is known here: at least the newest known
    ],
)
def test_a_driver_has_the_cuda_that_it_came_with(driver: str, cuda: tuple[int, int]) -> None:
    assert cuda_of_driver(driver) == cuda


@pytest.mark.parametrize("text", ["590", "abc", "470.1"])
def test_what_is_no_driver_is_refused(text: str) -> None:
    with pytest.raises(UnknownDevice, match="no driver version"):
        cuda_of_driver(text)


def test_cuda_versions() -> None:
    assert parse_cuda("13.1") == (13, 1)
    assert parse_cuda("12.8.93") == (12, 8)
    assert isa_of((12, 9)) == (8, 8)
    with pytest.raises(UnknownDevice, match="no CUDA version"):
        parse_cuda("11.8")
