"""The bytes a stack resolves to: every wheel by name, version, hash and size. No URLs."""

from __future__ import annotations

from typing import Annotated

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from pydantic import Field, model_validator

from cudaup.domain.problem import matching, wrong
from cudaup.domain.value import Value

Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "a SHA-256 in 64 hexadecimal digits")]


class Wheel(Value):
    """`size` in bytes. `filename` decides platform and Python tags; it must agree with name and version.

    `index`: the address of the one index it may come from; the default one when it is None.
    """

    name: str
    version: str
    filename: str
    sha256: Sha256
    size: int = Field(gt=0)
    index: str | None = None

    @model_validator(mode="after")
    def _filename_agrees(self) -> Wheel:
        try:
            name, version, _build, _tags = parse_wheel_filename(self.filename)
        except InvalidWheelFilename:
            raise wrong("a wheel's file name", self.filename) from None
        if name != canonicalize_name(self.name) or str(version) != self.version:
            raise wrong(f"the file name of {self.name} {self.version}", self.filename)
        return self
