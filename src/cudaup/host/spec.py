"""What `stage` is asked to build, checked: it names files and directories on this host, so nothing of it is trusted."""

import hashlib
import json
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from cudaup.host.protocol import Json, Refused

_DIGESTED = ("python", "wheels", "toolkit", "env")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl\Z")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*(\d+(?:\.\d+)*)(\.\*)?\Z")


class Blob(NamedTuple):
    sha256: str
    filename: str
    size: int


class Wheel(NamedTuple):
    name: str
    version: str
    blob: Blob


class Spec(NamedTuple):
    """`toolkit` is the CUDA version the wheels bring, None for none. `digest` is as in docs/host-program.md."""

    name: str
    digest: str
    python_range: str
    wheels: List[Wheel]
    uv: Blob
    toolkit: Optional[str]
    env: Dict[str, str]

    @property
    def blobs(self) -> List[Blob]:
        return [self.uv, *(wheel.blob for wheel in self.wheels)]


def parse(content: bytes) -> Spec:
    """Raises Refused `usage` naming the key."""
    try:
        raw = json.loads(content.decode())
        toolkit = raw["toolkit"]
        return Spec(
            name=str(raw["name"]),
            digest=spec_digest(raw),
            python_range=str(raw["python"]["version"]),
            wheels=[_wheel(entry) for entry in raw["wheels"]],
            uv=blob(raw["uv"]),
            toolkit=_checked(str(toolkit["version"]), _VERSION, "toolkit.version") if toolkit else None,
            env=dict(_variables(raw["env"])),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused("usage", f"the generation spec cannot be read: {error}") from error
    except KeyError as error:
        raise Refused("usage", f"the generation spec has no key {error}") from error


def spec_digest(raw: Json) -> str:
    content = {key: raw[key] for key in _DIGESTED}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def blob(raw: Json, name_key: str = "filename") -> Blob:
    """Raises Refused `usage`: a blob's name becomes a file name."""
    sha256 = _checked(raw["sha256"], _SHA256, "sha256")
    return Blob(sha256, _checked(raw[name_key], _FILENAME, name_key), int(raw["size"]))


def is_in_range(version: str, wanted: str) -> bool:
    """Whether an interpreter's plain version satisfies a specifier such as `>=3.11,<3.12`."""
    return all(_satisfies(_numbers(version), clause.strip()) for clause in wanted.split(","))


def _satisfies(version: List[int], clause: str) -> bool:
    found = _CLAUSE.match(clause)
    if not found:
        raise Refused("usage", f"python.version: `{clause}` is not a version range such as >=3.11")
    operator, wanted, is_prefix = found.group(1), _numbers(found.group(2)), bool(found.group(3))
    if operator == "~=":
        return version >= wanted and version[: len(wanted) - 1] == wanted[:-1]
    if is_prefix:
        return (version[: len(wanted)] == wanted) == (operator == "==")
    width = max(len(version), len(wanted))
    left, right = [numbers + [0] * (width - len(numbers)) for numbers in (version, wanted)]
    return {
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
        "==": left == right,
        "!=": left != right,
    }[operator]


def _numbers(version: str) -> List[int]:
    return [int(part) for part in version.split(".")]


def _wheel(raw: Json) -> Wheel:
    name = _checked(raw["name"], _REQUIREMENT, "wheels.name")
    return Wheel(name, _checked(raw["version"], _VERSION, "wheels.version"), blob(raw))


def _variables(raw: Json) -> Iterator[List[str]]:
    for key, value in raw.items():
        if "\n" in str(value):
            raise Refused("usage", f"env.{key}: a value of more than one line")
        yield [_checked(key, _VARIABLE, "env"), str(value)]


def _checked(value: Any, pattern: "re.Pattern[str]", key: str) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        raise Refused("usage", f"{key}: {value!r} cannot be used")
    return value
