from __future__ import annotations

import pytest
from tests.unit.domain.builders import make_wheel

from cudaup.domain.platforms import fits, glibc_minor, have_common_platform, needed_glibc


@pytest.mark.parametrize(
    ("tag", "python", "glibc", "is_fit"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", (3, 11), 28, True),
        ("cp311-cp311-manylinux_2_28_x86_64", (3, 11), 27, False),
        ("cp311-cp311-manylinux_2_28_x86_64", (3, 12), 36, False),
        ("cp310-abi3-manylinux2014_x86_64", (3, 12), 36, True),
        ("cp310-abi3-manylinux2014_x86_64", (3, 9), 36, False),
        ("cp310-abi3-manylinux2014_x86_64", (3, 12), 16, False),
        ("py3-none-any", (3, 11), 17, True),
        ("py2-none-any", (3, 11), 36, False),
        ("py3-none-linux_x86_64", (3, 11), 17, True),
        ("py3-none-manylinux_2_17_aarch64", (3, 11), 36, False),
        ("py3-none-win_amd64", (3, 11), 36, False),
    ],
)
def test_fit_on_x86_64(tag: str, python: tuple[int, int], glibc: int, *, is_fit: bool) -> None:
    assert fits(make_wheel(tag=tag), python, glibc, "x86_64") is is_fit


@pytest.mark.parametrize(
    ("tag", "needed"),
    [
        ("cp311-cp311-manylinux_2_34_x86_64", 34),
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.manylinux_2_28_x86_64", 17),
        ("cp311-cp311-manylinux2010_x86_64", 12),
        ("cp311-cp311-manylinux_2_34_aarch64", None),
        ("py3-none-any", None),
    ],
)
def test_oldest_glibc_a_wheel_takes(tag: str, needed: int | None) -> None:
    assert needed_glibc(make_wheel(tag=tag), "x86_64") == needed


def test_glibc_of_another_c_library_is_unknown() -> None:
    assert [glibc_minor(text) for text in ("2.36", "2.5", "musl 1.2", "1.2", None)] == [36, 5, None, None, None]


def test_wheels_of_two_machines_have_no_common_platform() -> None:
    x86, arm = make_wheel(tag="py3-none-linux_x86_64"), make_wheel(tag="py3-none-linux_aarch64")
    assert have_common_platform([x86], [(3, 11)])
    assert have_common_platform([arm], [(3, 11)])
    assert not have_common_platform([x86, arm], [(3, 11)])


def test_wheels_of_two_pythons_have_no_common_platform() -> None:
    both = [make_wheel(tag="cp311-cp311-linux_x86_64"), make_wheel("six", tag="cp312-cp312-linux_x86_64")]
    assert not have_common_platform(both, [(3, 11), (3, 12)])
