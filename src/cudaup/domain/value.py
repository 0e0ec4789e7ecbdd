"""The base of every value that is saved, reviewed or sent: frozen, whole or not at all."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Unknown keys are an error: a plan or stack that says more than we understand must not be half-obeyed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Observed(BaseModel):
    """Read from a host, perhaps by a newer host program: unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")
