from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.unit.domain.builders import make_stack, stack_json

from cudaup.adapters.stack_file import load_stack
from cudaup.domain.errors import UsageError

ROOT = Path(__file__).parents[3]
ACCEPTABLE = "pass or waived (nothing else proves the stack)"
FIX = "  fix:    docs/stack-file.md describes every key"


def refusal(path: Path, text: str | bytes) -> list[str]:
    """The lines of the error, without the folder."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UsageError) as caught:
        load_stack(path)
    return str(caught.value).replace(f"{path.parent}/", "").splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stack.yml"


def test_a_stack_is_read_whole(path: Path) -> None:
    path.write_text(yaml.safe_dump(stack_json()))
    assert load_stack(path) == make_stack()


@pytest.mark.parametrize("path", sorted((ROOT / "stacks").glob("*.yml")), ids=lambda path: path.name)
def test_the_stacks_we_ship_are_valid(path: Path) -> None:
    assert load_stack(path).name


def test_scalars_stay_the_text_they_are(path: Path) -> None:
    text = yaml.safe_dump({**stack_json(), "description": "D"}).replace("description: D", "description: no")
    path.write_text(text.replace("name: cu130-demo", "name: 3.10"))
    stack = load_stack(path)
    assert (stack.name, stack.description) == ("3.10", "no")


ALL_WRONG = """\
name: Demo Stack
descripton: a typo
driver: "590"
gpus: {arch: "12", count: zero}
python: ">=3.11,<3.12"
toolkit:
  version: 13.0
  from: conda
environment: {path: root/ml-env}
env:
  CUDA_HOME: "{generation}/cuda"
  LIBRARY: "{home}/lib"
wheels:
  - name: six
    version: 1.17.0
    filename: six-1.17.0-py3-none-any.whl
    sha256: 12
    size: 0
smoke:
  cases: [nvcc, imports]
  accept: {imports: [substituted]}
  cases: [nvcc]
timers: {ttl_s: 60, ceiling_s: 50}
hooks:
  drain: {command: drain-me, timeout_s: 5}
  stop: {command: [], timeout_s: 5}
  bench: {command: [bench], timeout_s: soon, on: controller}
"""


def test_all_errors_come_at_once_each_with_its_line(path: Path) -> None:
    assert refusal(path, ALL_WRONG) == [
        "stack.yml:1: name: wanted lower-case letters, digits, dots and dashes, found Demo Stack",
        "stack.yml:1: uv: wanted a value, found none",
        "stack.yml:2: descripton: wanted a known key (perhaps description), found an unknown one",
        "stack.yml:3: driver: wanted a version range such as >=590,<591, found 590",
        "stack.yml:4: gpus.arch: wanted a compute capability such as 12.0, found 12",
        "stack.yml:4: gpus.count: wanted a whole number, found zero",
        "stack.yml:8: toolkit.from: wanted 'wheels', found conda",
        "stack.yml:9: environment.path: wanted an absolute path, without ., .. or / at its end, found root/ml-env",
        "stack.yml:12: env.LIBRARY: wanted no placeholder but {generation}, found {home}",
        "stack.yml:17: wheels[0].sha256: wanted a SHA-256 in 64 hexadecimal digits, found 12",
        "stack.yml:18: wheels[0].size: wanted greater than 0, found 0",
        f"stack.yml:21: smoke.accept.imports[0]: wanted {ACCEPTABLE}, found substituted",
        "stack.yml:22: smoke.cases: wanted once (line 20), found again",
        "stack.yml:23: timers.ttl_s: wanted less than ceiling_s (50), found 60",
        "stack.yml:25: hooks.drain.command: wanted a list, found drain-me",
        "stack.yml:26: hooks.stop.command: wanted a program and its arguments, found an empty list",
        "stack.yml:27: hooks.bench.timeout_s: wanted a number, found soon",
        "stack.yml:27: hooks.bench.on: wanted host, as hooks on the controller are not there yet, found controller",
        FIX,
    ]


LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "stack.yml:1: wanted a mapping of stack keys, found nothing"),
        ("- a\n", "stack.yml:1: wanted a mapping of stack keys, found a list"),
        ("just words\n", "stack.yml:1: wanted a mapping of stack keys, found the text just words"),
        (LAUGHS, "stack.yml:2: wanted no aliases, found *a"),
        ("a: " + "[" * 100_000, "stack.yml:1: wanted at most 20 levels, found more"),
        ("a: 1\nb: [1\nc: 2\n", "stack.yml:3: wanted YAML, found expected ',' or ']', but got ':'"),
        ("a: 1\n---\na: 2\n", "stack.yml:2: wanted YAML, found but found another document"),
        ("a: 1\nb: \x07\n", "stack.yml:2: wanted YAML, found character 7"),
        (b"a: 1\nb: \xff\n", "stack.yml:2: wanted UTF-8 text, found byte 0xff"),
        ("#" * 1_000_001, "stack.yml:1: wanted at most 1000000 bytes, found more"),
    ],
)
def test_what_is_no_stack_at_all(path: Path, text: str | bytes, line: str) -> None:
    assert refusal(path, text) == [line, FIX]


def test_a_key_must_be_a_scalar(path: Path) -> None:
    assert "stack.yml:1: wanted a key, found a collection" in refusal(path, "? [a, b]\n: 1\n")


def test_yaml_tags_make_no_objects(path: Path) -> None:
    lines = refusal(path, "name: !!python/object/apply:os.getcwd []\n")
    assert "stack.yml:1: name: wanted text, found an empty list" in lines


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yml: cannot read the stack file\n  found:  No such file"):
        load_stack(tmp_path / "none.yml")
