"""Versions compared as versions, with the text they were written in: `str(Version("580.65.06"))` is `580.65.6`."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import ConfigDict, RootModel, field_validator

from cudaup.domain.problem import wrong


class DriverVersion(RootModel[str]):
    """An NVIDIA driver's version. `580.65.06` equals `580.65.6`."""

    model_config = ConfigDict(frozen=True)

    @field_validator("root")
    @classmethod
    def _is_version(cls, raw: str) -> str:
        if parse_version(raw) is None:
            raise wrong("a driver version such as 590.48.01", raw)
        return raw

    def __str__(self) -> str:
        return self.root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DriverVersion) and Version(self.root) == Version(other.root)

    def __hash__(self) -> int:
        return hash(Version(self.root))


class VersionRange(RootModel[str]):
    """A specifier such as `>=590,<591`. `===` is refused: it compares text."""

    model_config = ConfigDict(frozen=True)

    @field_validator("root")
    @classmethod
    def _is_specifier(cls, raw: str) -> str:
        try:
            SpecifierSet(raw)
        except InvalidSpecifier:
            raise wrong("a version range such as >=590,<591", raw) from None
        if not raw.strip() or "===" in raw:
            raise wrong("a version range such as >=590,<591 (=== compares text)", raw)
        return raw

    def __str__(self) -> str:
        return self.root

    def has(self, version: DriverVersion | str) -> bool:
        """Whether `version` is in the range; what cannot be read as a version never is."""
        parsed = parse_version(str(version))
        return parsed is not None and SpecifierSet(self.root).contains(parsed, prereleases=True)


def parse_version(raw: str) -> Version | None:
    try:
        return Version(raw)
    except InvalidVersion:
        return None
