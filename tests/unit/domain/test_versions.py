from __future__ import annotations

import pytest
from pydantic import ValidationError

from cudaup.domain.versions import DriverVersion, VersionRange


def test_raw_text_is_kept_and_the_version_compared() -> None:
    assert str(DriverVersion("580.65.06")) == "580.65.06"
    assert DriverVersion("580.65.06") == DriverVersion("580.65.6")
    assert len({DriverVersion("580.65.06"), DriverVersion("580.65.6")}) == 1


@pytest.mark.parametrize(
    ("wanted", "version", "is_in"),
    [
        (">=590,<591", "590.48.01", True),
        (">=590,<591", "580.159.04", False),
        (">=590,<591", "591.0", False),
        (">=580.65.06", "580.65.6", True),
        (">=580.65.06", "580.159.04", True),
        ("==580.65.06", "580.65.6", True),
        (">=580", "1000.1", True),
        (">=3.11,<3.12", "3.11.0rc1", False),
        (">=3.10,<3.12", "3.11.0rc1", True),
        (">=3.11,<3.12", "not-a-version", False),
    ],
)
def test_range(wanted: str, version: str, *, is_in: bool) -> None:
    assert VersionRange(wanted).has(version) is is_in


@pytest.mark.parametrize("raw", ["", " ", "590", "===590.48.01", ">=590;<591"])
def test_what_is_no_range_is_refused(raw: str) -> None:
    with pytest.raises(ValidationError, match="wanted a version range such as >=590,<591"):
        VersionRange(raw)


def test_what_is_no_driver_version_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"wanted a driver version such as 590\.48\.01, found N/A"):
        DriverVersion("N/A")
