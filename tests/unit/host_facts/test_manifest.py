from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cudaup.host import manifest
from cudaup.host.layout import Layout
from cudaup.host.protocol import Refused

ID = "0001-abcdef"
PACKAGE = "venv/lib/python3.11/site-packages/package.py"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "root")
    make_environment(layout.generation(ID) / "venv", tmp_path / "python3.11")
    (layout.generation(ID) / "env").write_text("A=1\n")
    (layout.generation(ID) / "cache" / "pycache").mkdir(parents=True)
    manifest.seal(layout.generation(ID))
    return layout


def make_environment(venv: Path, interpreter: Path) -> None:
    interpreter.write_text("the interpreter")
    site = venv / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (site / "package.py").write_text("value = 1\n")
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(interpreter)
    (venv / "bin" / "python3").symlink_to("python")


def problems(layout: Layout, *, full: bool = False) -> list[tuple[str, str]]:
    report = manifest.check(layout, ID, full=full)
    assert report["ok"] is (report["problems"] == [])
    return [(problem["path"], problem["problem"]) for problem in report["problems"]]


def same_size_and_time(path: Path, text: str) -> None:
    info = path.stat()
    path.write_text(text)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def relink(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


CHANGES: list[tuple[str, Callable[[Path], object], tuple[str, str]]] = [
    ("a file edited in place", lambda g: (g / PACKAGE).write_text("value = 22\n"), (PACKAGE, "changed")),
    ("a file of the same size, newer", lambda g: os.utime(g / PACKAGE, (0, 1)), (PACKAGE, "changed")),
    ("a file gone", lambda g: (g / PACKAGE).unlink(), (PACKAGE, "missing")),
    ("a new file", lambda g: (g / "venv/lib/sitecustomize.py").touch(), ("venv/lib/sitecustomize.py", "extra")),
    ("a link turned", lambda g: relink(g / "venv/bin/python", "/bin/sh"), ("venv/bin/python", "changed")),
    ("a file made a link", lambda g: relink(g / PACKAGE, "/dev/null"), (PACKAGE, "changed")),
    ("a mode", lambda g: (g / PACKAGE).chmod(0o666), (PACKAGE, "changed")),
    ("the env file", lambda g: (g / "env").write_text("A=2 \n"), ("env", "changed")),
]


def test_an_untouched_generation_is_whole(layout: Layout) -> None:
    assert problems(layout) == []
    assert problems(layout, full=True) == []
    assert manifest.check(layout, ID, full=False)["files"] == 10  # five directories, two files, two links, python


@pytest.mark.parametrize(("change", "expected"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES])
def test_a_change_is_named(layout: Layout, change: Callable[[Path], object], expected: tuple[str, str]) -> None:
    change(layout.generation(ID))
    assert expected in problems(layout)


def test_only_the_full_mode_sees_an_edit_that_hides(layout: Layout) -> None:
    same_size_and_time(layout.generation(ID) / PACKAGE, "value = 2\n")
    assert problems(layout) == []
    assert problems(layout, full=True) == [(PACKAGE, "changed")]


def test_the_interpreter_belongs_to_it(layout: Layout) -> None:
    interpreter = layout.root.parent / "python3.11"
    interpreter.write_text("another interpreter")
    assert problems(layout) == [(str(interpreter), "changed")]


def test_caches_records_and_bytecode_do_not_count(layout: Layout) -> None:
    generation = layout.generation(ID)
    (generation / "cache" / "pycache" / "x.pyc").touch()
    (generation / "generation.json").write_text("{}")
    (generation / "venv/lib/python3.11/site-packages/__pycache__").mkdir()
    (generation / "venv/lib/python3.11/site-packages/__pycache__/package.cpython-311.pyc").touch()
    assert problems(layout) == []


def test_a_cache_directory_deeper_down_counts(layout: Layout) -> None:
    (layout.generation(ID) / "venv" / "cache").mkdir()
    assert problems(layout) == [("venv/cache", "extra")]


def test_an_adopted_environment_is_looked_at_where_it_lies(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "root")
    aside = tmp_path / "ml-env.adopted"
    make_environment(aside, tmp_path / "python3.11")
    layout.generation(ID).mkdir(parents=True)
    (layout.generation(ID) / "venv").symlink_to(aside)
    manifest.seal(layout.generation(ID))
    assert problems(layout) == []
    (aside / "lib/python3.11/site-packages/package.py").write_text("patched\n")
    assert problems(layout) == [(PACKAGE, "changed")]
    aside.rename(tmp_path / "lost")
    assert (PACKAGE, "missing") in problems(layout)


def test_without_a_manifest_nothing_is_verified(layout: Layout) -> None:
    (layout.generation(ID) / "manifest.json").unlink()
    with pytest.raises(Refused, match="never finished") as refusal:
        manifest.check(layout, ID, full=False)
    assert refusal.value.code == "not-found"


def test_a_damaged_manifest_is_said(layout: Layout) -> None:
    (layout.generation(ID) / "manifest.json").write_text('{"venv"')
    with pytest.raises(Refused, match="damaged") as refusal:
        manifest.check(layout, ID, full=False)
    assert refusal.value.code == "not-verified"
