from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cudaup.adapters.stack_file import load_stack
from cudaup.domain.stack import generation_spec
from cudaup.host import envfile, spec
from cudaup.host.protocol import Refused

DEMO = Path(__file__).parents[3] / "stacks" / "demo.yml"
PIN = {"name": "numpy", "version": "2.4.6", "filename": "numpy-2.4.6-any.whl", "sha256": "0" * 64, "size": 1}


def raw(**changes: Any) -> bytes:
    everything = {
        "name": "x",
        "python": {"version": ">=3.11"},
        "wheels": [PIN],
        "uv": PIN,
        "toolkit": None,
        "env": {},
    }
    return json.dumps({**everything, **changes}).encode()


def test_controller_and_host_give_the_demo_stack_the_same_digest() -> None:
    stack = load_stack(DEMO)
    parsed = spec.parse(json.dumps(generation_spec(stack), indent=3).encode())
    assert parsed.digest == stack.digest()
    assert parsed.toolkit == "13.0"
    assert len(parsed.blobs) == len(stack.wheels) + 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"wheels": [{**PIN, "filename": "../../etc/cron.d/x.whl"}]}, "filename: '../../etc"),
        ({"wheels": [{**PIN, "filename": "numpy/../../../x.whl"}]}, "filename: 'numpy/"),
        ({"wheels": [{**PIN, "filename": "numpy-2.4.6.tar.gz"}]}, "filename: 'numpy-2"),
        ({"wheels": [{**PIN, "sha256": "../0"}]}, "sha256: '../0'"),
        ({"wheels": [{**PIN, "name": "-r /etc/shadow"}]}, "wheels.name"),
        ({"wheels": [{**PIN, "version": "1 --index-url http://elsewhere"}]}, "wheels.version"),
        ({"env": {"A": "1\nLD_PRELOAD=x"}}, "env.A: a value of more than one line"),
        ({"env": {"A B": "1"}}, "env: 'A B'"),
        ({"toolkit": {"version": "../13"}}, "toolkit.version"),
        ({"uv": {}}, "no key 'sha256'"),
        ({"wheels": 3}, "cannot be read"),
    ],
)
def test_what_would_leave_its_place_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(Refused, match=text) as refusal:
        spec.parse(raw(**change))
    assert refusal.value.code == "usage"


def test_no_json_is_refused() -> None:
    with pytest.raises(Refused, match="cannot be read"):
        spec.parse(b"{")


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("3.11.2", ">=3.11,<3.12", True),
        ("3.12.0", ">=3.11,<3.12", False),
        ("3.9.18", ">=3.11", False),  # as text 3.9 would be more
        ("3.11.2", "==3.11.*", True),
        ("3.12.1", "!=3.12.*", False),
        ("3.11.0", "==3.11", True),
        ("3.11.2", "==3.11", False),
        ("3.11.2", "~=3.11.1", True),
        ("3.12.0", "~=3.11.1", False),
        ("3.12.0", "~=3.11", True),
        ("3.11.2", "> 3.11.2", False),
        ("3.11.2", "<=3.11.2", True),
    ],
)
def test_python_ranges_compare_numbers(version: str, wanted: str, fits: bool) -> None:  # noqa: FBT001 - a table
    assert spec.is_in_range(version, wanted) is fits


def test_an_unknown_range_is_refused() -> None:
    with pytest.raises(Refused, match="`three` is not a version range"):
        spec.is_in_range("3.11", ">=3.8,three")


@pytest.mark.parametrize("value", ["", "plain", "two words", 'a "b" \\ c', "$HOME `id`", "\\", "x=y # no comment", "é"])
def test_an_env_file_gives_back_what_went_in(value: str) -> None:
    assert envfile.parse(envfile.render({"KEY": value, "OTHER": "1"})) == {"KEY": value, "OTHER": "1"}


def test_an_env_file_is_quoted_as_systemd_reads_it() -> None:
    assert envfile.render({"B": "2", "A": 'say "$x"'}) == 'A="say \\"\\$x\\""\nB="2"\n'
