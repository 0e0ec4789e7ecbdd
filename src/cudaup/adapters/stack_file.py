"""Reads a stack file: YAML to a checked `Stack`, or every error at once with its line.

Scalars stay the text that was written (`python: 3.10` is not 3.1, `name: no` is not false); the schema knows what a
value should be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cudaup.adapters.lock_file import lock_path, read_lock
from cudaup.domain.errors import UsageError
from cudaup.domain.locking import made_from, with_wheels
from cudaup.domain.stack import Stack

MAX_BYTES = 1_000_000
MAX_DEPTH = 20

KeyPath = tuple[str | int, ...]
_WORDS = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True, kw_only=True)
class FileProblem:
    """One error, in the words of docs/stack-file.md."""

    line: int
    key: str
    wanted: str
    found: str

    def words(self, path: Path) -> str:
        where = f"{path}:{self.line}: {self.key}" if self.key else f"{path}:{self.line}"
        return f"{where}: wanted {self.wanted}, found {self.found}"


@dataclass(frozen=True)
class _Reading:
    """What the walk over the nodes has found so far: lines of keys and repeated keys."""

    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[FileProblem] = field(default_factory=list)


def load_stack(path: Path) -> Stack:
    """As it is rolled out: with the wheels of its lock. Raises UsageError also when it is not locked as it is."""
    stack = load_unlocked(path)
    if stack.packages is None:
        return stack
    lock, where = read_lock(path), str(lock_path(path))
    if lock is None:
        raise UsageError("this stack is not locked", where=str(path), wanted=where, found="none", fix="`cudaup lock`")
    if lock.made_from != made_from(stack):
        what = "the stack changed since it was locked"
        raise UsageError(what, where=where, wanted="a lock of its packages, python and toolkit", fix="`cudaup lock`")
    try:
        return with_wheels(stack, lock)
    except ValidationError as error:
        found = "; ".join(each["msg"] for each in error.errors(include_url=False))
        raise UsageError("its wheels do not fit the stack", where=where, found=found, fix="`cudaup lock`") from error


def load_unlocked(path: Path) -> Stack:
    """What the file itself says. Raises UsageError with one line per error: file, line, key, wanted, found."""
    node = _compose(path, _read(path))
    reading = _Reading()
    data = _plain(node, (), reading)
    try:
        stack = Stack.model_validate(data)
    except ValidationError as error:
        reading.problems.extend(_problem(each, reading.lines) for each in error.errors(include_url=False))
    if isinstance(data, dict) and "packages" in data and "wheels" in data:
        wanted = "packages, which a lock resolves to wheels, or wheels"
        both = FileProblem(line=reading.lines["wheels",], key="wheels", wanted=wanted, found="both")
        reading.problems.append(both)
    if reading.problems:
        _refuse(path, reading.problems)
    return stack


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        fix = "give the path of a stack file, such as one of `stacks/`"
        raise UsageError("cannot read the stack file", where=str(path), found=str(error.strerror), fix=fix) from error
    if len(raw) > MAX_BYTES:
        _refuse(path, [FileProblem(line=1, key="", wanted=f"at most {MAX_BYTES} bytes", found="more")])
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        _refuse(path, [FileProblem(line=line, key="", wanted="UTF-8 text", found=f"byte {raw[error.start]:#04x}")])


def _compose(path: Path, text: str) -> yaml.Node:
    """The file's one document. Depth and aliases are checked before anything recursive sees them."""
    try:
        problem = next(_unfit_events(text), None)
        if problem is not None:
            _refuse(path, [problem])
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        _refuse(path, [FileProblem(line=line, key="", wanted="YAML", found=error.problem or "something else")])
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        _refuse(path, [FileProblem(line=line, key="", wanted="YAML", found=f"character {error.character!r}")])
    if not isinstance(node, yaml.MappingNode):
        _refuse(path, [FileProblem(line=1, key="", wanted="a mapping of stack keys", found=_kind(node))])
    return node


def _unfit_events(text: str) -> Iterator[FileProblem]:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            yield FileProblem(line=line, key="", wanted="no aliases", found=f"*{event.anchor}")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            yield FileProblem(line=line, key="", wanted=f"at most {MAX_DEPTH} levels", found="more")


def _kind(node: yaml.Node | None) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "nothing" if node is None else f"the text {node.value}"


def _plain(node: yaml.Node, path: KeyPath, reading: _Reading) -> Any:
    """The node's data; `reading` learns the line of each key path."""
    reading.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, reading)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, number), reading) for number, item in enumerate(node.value)]
    return None if node.tag == _NULL else node.value


def _mapping(node: yaml.MappingNode, path: KeyPath, reading: _Reading) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value
        if not isinstance(key_node, yaml.ScalarNode):
            reading.problems.append(FileProblem(line=line, key=_dotted(path), wanted="a key", found="a collection"))
            continue
        if key in data:
            first = reading.lines[*path, key]
            repeated = FileProblem(line=line, key=_dotted((*path, key)), wanted=f"once (line {first})", found="again")
            reading.problems.append(repeated)
            continue
        reading.lines[*path, key] = line
        data[key] = _plain(value_node, (*path, key), reading)
    return data


def _problem(error: ErrorDetails, lines: dict[KeyPath, int]) -> FileProblem:
    path: KeyPath = error["loc"]
    wanted, found = _wanted_found(error, lines)
    return FileProblem(line=_line_of(path, lines), key=_dotted(path), wanted=wanted, found=found)


def _wanted_found(error: ErrorDetails, lines: dict[KeyPath, int]) -> tuple[str, str]:
    context = error.get("ctx", {})
    if error["type"] == "wanted_found":
        return context["wanted"], context["found"]
    if error["type"] == "missing":
        return "a value", "none"
    if error["type"] == "extra_forbidden":
        return _instead_of(error["loc"], lines), "an unknown one"
    return _WORDS.get(error["type"]) or _plain_words(error["msg"]), _short(error["input"])


def _plain_words(message: str) -> str:
    wanted = message.removeprefix("Input should be ")
    return wanted[:1].lower() + wanted[1:]


def _instead_of(path: KeyPath, lines: dict[KeyPath, int]) -> str:
    """For typing errors at the top: the known key that looks like it and is not there."""
    free = [name for name in Stack.model_fields if (name,) not in lines] if len(path) == 1 else []
    near = get_close_matches(str(path[-1]), free, n=1)
    return f"a known key (perhaps {near[0]})" if near else "a known key"


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _line_of(path: KeyPath, lines: dict[KeyPath, int]) -> int:
    """The line of the key, or of the nearest one above that is written."""
    written = next(path[:length] for length in range(len(path), -1, -1) if path[:length] in lines)
    return lines[written]


def _dotted(path: KeyPath) -> str:
    dotted = ""
    for part in path:
        dotted += f"[{part}]" if isinstance(part, int) else f".{part}"
    return dotted.removeprefix(".")


def _refuse(path: Path, problems: list[FileProblem]) -> NoReturn:
    ordered = sorted(problems, key=lambda problem: problem.line)
    raise UsageError(
        "\n".join(problem.words(path) for problem in ordered), fix="docs/stack-file.md describes every key"
    )
