"""How cudaup's host program is called on the host, and what it answers. Needs no Ansible."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, NamedTuple

INSTALLED = "/opt/cudaup/bin/cudaup-host"


class Step(NamedTuple):
    """One call. `key` names its data in the module's result."""

    key: str
    argv: list[str]
    stdin: bytes = b""


def own_copy(program: str | None, sha256: str | None, private: str) -> str | None:
    """Where `program` lies checked; None without one. Raise ValueError when its hash is another.

    It came into a directory of the login's, where other processes of that user can write; it is run as root.
    """
    if not program:
        return None
    with open(program, "rb") as stream:  # noqa: PTH123  Ansible's modules keep to what is in the oldest Python
        content = stream.read()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(f"the host program arrived as {found[:12]}, sent was {str(sha256)[:12]}: it is not run")
    copy = os.path.join(private, "cudaup-host.pyz")  # noqa: PTH118  as above
    with open(copy, "wb") as stream:  # noqa: PTH123  as above
        stream.write(content)
    return copy


def steps(params: dict[str, Any]) -> list[Step]:
    """What has to be called, in order, for the module's parameters."""
    wanted = []
    if params["program"]:
        wanted.append(Step("installed", ["host", "install"]))
    if params["adopt"]:
        wanted.append(Step("adopted", ["adopt", params["adopt"]]))
    spec = json.dumps(params["spec"], sort_keys=True).encode()
    wanted.append(Step("staged", ["stage", "--spec-bytes", str(len(spec))], spec))
    return wanted


def options(epoch: int | None, *, dry_run: bool) -> list[str]:
    """What every call gets."""
    words = [] if epoch is None else ["--epoch", str(epoch)]
    return words + (["--dry-run"] if dry_run else [])


def answer(stdout: str) -> dict[str, Any] | None:
    """The last object that is not an event; None when there is none."""
    last = None
    for line in stdout.splitlines():
        if not line.startswith("{"):
            continue
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if value.get("kind") != "event":
            last = value
    return last


def has_changed(data: dict[str, Any]) -> bool:
    """A dry run says what it would do in `would`."""
    return bool(data.get("changed") or data.get("would"))


def message(found: dict[str, Any]) -> str:
    """A refusal or failure in one line."""
    fix = found.get("fix")
    return str(found.get("text", "")) + (f" (fix: {fix})" if fix else "")
