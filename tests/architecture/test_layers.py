"""The house rules of the tree: which layer may import which, no cycles, nothing overgrown."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cudaup
from cudaup.domain.stack_sections import SMOKE_CASES
from cudaup.host.smoke import _BY_GENERATION

PACKAGE = Path(cudaup.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# layer -> layers of cudaup it may import
ALLOWED = {
    "domain": {"domain"},
    "app": {"app", "domain"},
    "adapters": {"adapters", "app.ports", "audit", "domain", "host.boot"},
    "ui": {"ui", "app", "domain", "lab"},
    "lab": {"lab", "domain"},
    "host": {"host", "smoke", "audit"},
    "smoke": {"smoke", "audit"},
    "audit": {"audit"},
}
WIRING = "cudaup.ui.wiring"  # the only module that knows all layers
ONE_IMPORTER = {  # an outside library has one door: a module, or the modules that share its name's beginning
    "paramiko": "cudaup.adapters.ssh",
    "ansible_runner": "cudaup.adapters.runner",
    "tenacity": "cudaup.adapters.retrying",
    "yaml": "cudaup.adapters.stack_file",
}
IMPURE = {"os", "subprocess", "socket", "shutil", "time", "random", "threading", "pathlib", "tempfile", "secrets"}


def module_name(path: Path) -> str:
    parts = ("cudaup", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def is_allowed(name: str, target: str) -> bool:
    permitted = ALLOWED.get(layer_of(name), set())
    inside = target.removeprefix("cudaup.")
    return any(inside == entry or inside.startswith(entry + ".") for entry in permitted)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_layer_imports_only_what_lies_below_it(path: Path) -> None:
    name = module_name(path)
    if name in {WIRING, "cudaup"}:
        return
    known = {module_name(other) for other in FILES}
    wrong = [t for t in imports(path) if t in known and t.count(".") > 1 and not is_allowed(name, t)]
    assert wrong == []


@pytest.mark.parametrize(("library", "door"), sorted(ONE_IMPORTER.items()))
def test_an_outside_library_has_one_door(library: str, door: str) -> None:
    users = {module_name(path) for path in FILES if any(i.split(".")[0] == library for i in imports(path))}
    assert users
    assert {user for user in users if not user.startswith(door)} == set()


@pytest.mark.parametrize("path", [p for p in FILES if layer_of(module_name(p)) in {"domain", "app"}], ids=module_name)
def test_domain_and_app_touch_nothing_outside(path: Path) -> None:
    allowed = {"pathlib", "threading"} if layer_of(module_name(path)) == "app" else set()
    roots = {i.split(".")[0] for i in imports(path)}
    assert roots & (IMPURE - allowed) == set()


@pytest.mark.parametrize(
    "path", [p for p in FILES if layer_of(module_name(p)) in {"host", "smoke", "audit"}], ids=module_name
)
def test_what_runs_on_a_host_needs_only_the_standard_library(path: Path) -> None:
    roots = {i.split(".")[0] for i in imports(path)}
    assert roots - set(sys.stdlib_module_names) - {"cudaup"} == set()


def test_no_import_cycles() -> None:
    known = {module_name(path) for path in FILES}
    graph = {module_name(p): {i for i in imports(p) if i in known} - {module_name(p)} for p in FILES}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())
    assert done == known


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_nothing_is_overgrown(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 600
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= 60]
    assert long == []


def test_only_the_two_top_levels_swallow_any_error() -> None:
    places = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                names = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else {"bare"}
                passes_on = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
                if names & {"Exception", "BaseException", "bare"} and not passes_on:
                    places.append(module_name(path))
    assert sorted(places) == ["cudaup.host.__main__", "cudaup.ui.cli"]


def test_only_the_edges_print_and_read_the_environment() -> None:
    outside = [p for p in FILES if layer_of(module_name(p)) in {"domain", "app", "adapters"}]
    wrong = []
    for path in outside:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                wrong.append((module_name(path), "print"))
            if isinstance(node, ast.Attribute) and node.attr == "environ" and layer_of(module_name(path)) != "adapters":
                wrong.append((module_name(path), "environ"))
    assert wrong == []


TREE = PACKAGE.parent.parent


def test_no_path_of_a_development_machine_and_no_registry_host_in_the_tree() -> None:
    bad = ("/wo" + "rk/", "pypi" + ".org", "python" + "hosted", "deb." + "debian")
    texts = [p for d in ("src", "tests", "docs", "playbooks", "stacks", "inventories") for p in (TREE / d).rglob("*")]
    texts += [TREE / name for name in ("README.md", "Makefile", "pyproject.toml", "CHANGELOG.md")]
    hits = []
    for path in texts:
        if path.is_file() and path.suffix in {".py", ".md", ".yml", ".yaml", ".toml", ".cu", ".sh", ""}:
            text = path.read_text(errors="replace")
            hits += [(str(path.relative_to(TREE)), word) for word in bad if word in text]
    assert hits == []


def test_a_stack_may_name_exactly_the_smoke_cases_that_the_host_program_has() -> None:
    assert set(SMOKE_CASES) == set(_BY_GENERATION)
