"""The bytes a stack resolves to: every wheel by name, version, hash and size. No URLs."""

from __future__ import annotations

import re
from typing import Annotated

from packaging.utils import parse_wheel_filename
from pydantic import Field, StringConstraints, model_validator

from cudaup.domain.value import Value

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Wheel(Value):
    """`size` in bytes. `filename` decides platform and Python tags; it must agree with name and version."""

    name: str
    version: str
    filename: str
    sha256: Sha256
    size: int = Field(gt=0)

    @model_validator(mode="after")
    def _filename_agrees(self) -> Wheel:
        name, version, _build, _tags = parse_wheel_filename(self.filename)
        if name != re.sub(r"[-_.]+", "-", self.name).lower() or str(version) != self.version:
            msg = f"file name {self.filename} is not {self.name} {self.version}"
            raise ValueError(msg)
        return self
