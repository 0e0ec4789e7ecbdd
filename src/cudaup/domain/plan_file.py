"""A plan as text: reviewed by people, refused when it was edited or is of another cudaup."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import ValidationError

from cudaup.domain.errors import UsageError
from cudaup.domain.plan import FleetPlan, Plan
from cudaup.domain.stack import canonical_json

SCHEMA_VERSION = 1
_AGAIN = "make a new plan with `cudaup plan`"


def dump_plan(plan: FleetPlan) -> str:
    """Rollbacks too, for the record of their run; only an upgrade is ever loaded again."""
    body = plan.model_dump(mode="json", by_alias=True)
    return json.dumps({"checksum": _checksum(body), **body}, indent=1) + "\n"


def load_plan(text: str, *, where: str) -> Plan:
    """Raises UsageError: not a plan, another schema version, edited, or inconsistent in itself."""
    body = _read_object(text, where)
    version = body.get("schema_version")
    if version != SCHEMA_VERSION:
        wanted = f"schema version {SCHEMA_VERSION}"
        raise UsageError("not a plan this cudaup reads", where=where, wanted=wanted, found=f"{version!r}", fix=_AGAIN)
    written, found = body.pop("checksum", None), _checksum(body)
    if written != found:
        raise UsageError(
            "the plan was changed after it was made",
            where=where,
            wanted=f"checksum {written}",
            found=found,
            fix=f"a plan is applied as it was reviewed; {_AGAIN}",
        )
    try:
        return Plan.model_validate_json(json.dumps(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        found = f"{key}: {first['msg']}" if key else first["msg"]
        raise UsageError("the plan contradicts itself", where=where, found=found, fix=_AGAIN) from error


def _read_object(text: str, where: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("not a plan", where=where, wanted="a JSON object", found=str(error), fix=_AGAIN) from error
    if not isinstance(body, dict):
        raise UsageError("not a plan", where=where, wanted="a JSON object", found=type(body).__name__, fix=_AGAIN)
    return body


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()
