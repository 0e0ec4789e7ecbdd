"""What the collection promises about itself: licences, and how the host program is called."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import cudaup
from cudaup.adapters.runner import playbooks_directory
from cudaup.domain.rules import host as rules_host
from cudaup.host.layout import DEFAULT_ROOT, Layout

_STACK = playbooks_directory() / "collections" / "ansible_collections" / "cudaup" / "stack"


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def is_under_the_gpl(path: Path) -> bool:
    return path.read_text().startswith("# SPDX-License-Identifier: GPL-3.0-or-later\n")


def test_whoever_imports_ansibles_own_code_says_it_is_gpl() -> None:
    sources = [*Path(cudaup.__file__).parent.rglob("*.py"), *_STACK.rglob("*.py")]
    users = {
        path
        for path in sources
        if any(
            name.split(".")[0] == "ansible" and not name.startswith("ansible.module_utils") for name in imported(path)
        )
    }
    assert users == {path for path in sources if is_under_the_gpl(path)}
    assert {path.parent.name for path in users} == {"connection", "action"}


@pytest.fixture
def host_program() -> ModuleType:
    path = _STACK / "plugins" / "module_utils" / "_host_program.py"
    spec = importlib.util.spec_from_file_location("host_program_util", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_module_rules_and_host_program_mean_the_same_place(host_program: ModuleType) -> None:
    layout = Layout(DEFAULT_ROOT)
    assert (str(layout.program), str(layout.root)) == (host_program.INSTALLED, rules_host.DEFAULT_ROOT)


def test_prepare_installs_adopts_and_stages_in_this_order(host_program: ModuleType) -> None:
    steps = host_program.steps({"program": "/tmp/p", "adopt": "/root/ml-env", "spec": {"b": 1, "a": 2}})  # noqa: S108  a name
    assert [(step.key, step.argv) for step in steps] == [
        ("installed", ["host", "install"]),
        ("adopted", ["adopt", "/root/ml-env"]),
        ("staged", ["stage", "--spec-bytes", "16"]),
    ]
    assert steps[-1].stdin == b'{"a": 2, "b": 1}'


def test_what_runs_as_root_is_a_checked_copy_of_what_was_sent(host_program: ModuleType, tmp_path: Path) -> None:
    sent, private = tmp_path / "sent", tmp_path / "private"
    private.mkdir()
    sent.write_bytes(b"archive")
    digest = hashlib.sha256(b"archive").hexdigest()
    copy = Path(host_program.own_copy(str(sent), digest, str(private)))
    sent.write_bytes(b"changed after it was looked at")
    assert (copy.parent, copy.read_bytes()) == (private, b"archive")
    with pytest.raises(ValueError, match="it is not run"):
        host_program.own_copy(str(sent), digest, str(private))
    assert host_program.own_copy(None, digest, str(private)) is None


def test_what_was_not_asked_for_is_not_called(host_program: ModuleType) -> None:
    steps = host_program.steps({"program": None, "adopt": None, "spec": {}})
    assert [step.key for step in steps] == ["staged"]


def test_the_epoch_and_a_dry_run_go_with_every_call(host_program: ModuleType) -> None:
    assert host_program.options(3, dry_run=True) == ["--epoch", "3", "--dry-run"]
    assert host_program.options(None, dry_run=False) == []


def test_the_answer_is_the_last_object_that_is_no_event(host_program: ModuleType) -> None:
    lines = ['{"kind": "event"}', "noise", '{"kind": "refused", "code": "stale-epoch"}', '{"kind": "event"}', "{broken"]
    assert host_program.answer("\n".join(lines)) == {"kind": "refused", "code": "stale-epoch"}
    assert host_program.answer("noise") is None
