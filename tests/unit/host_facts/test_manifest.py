from __future__ import annotations

import json
import os
import shutil
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
    manifest.seal(layout.generation(ID), manifest.Digests())
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


def test_an_edit_that_hides_behind_size_and_time_is_found(layout: Layout) -> None:
    same_size_and_time(layout.generation(ID) / PACKAGE, "value = 2\n")
    assert problems(layout) == [(PACKAGE, "changed")]


def test_a_ctime_that_moved_is_no_problem_and_is_written_down_once_asked(layout: Layout) -> None:
    package = layout.generation(ID) / PACKAGE
    before = package.stat().st_ctime_ns
    os.link(package, layout.root / "sibling")
    (layout.root / "sibling").unlink()
    assert package.stat().st_ctime_ns != before
    assert problems(layout) == []
    assert sealed_ctime(layout, PACKAGE) == before
    renew(layout)
    assert sealed_ctime(layout, PACKAGE) == package.stat().st_ctime_ns
    assert problems(layout) == []


def test_what_changed_is_not_forgiven_by_a_renewal(layout: Layout) -> None:
    same_size_and_time(layout.generation(ID) / PACKAGE, "value = 2\n")
    renew(layout)
    assert problems(layout) == [(PACKAGE, "changed")]


def test_only_the_full_mode_sees_a_disk_that_rots(layout: Layout) -> None:
    """Nobody wrote, so no time moved."""
    package = layout.generation(ID) / PACKAGE
    same_size_and_time(package, "value = 2\n")
    path = layout.generation(ID) / "manifest.json"
    sealed = json.loads(path.read_text())
    sealed["files"][PACKAGE]["ctime_ns"] = package.stat().st_ctime_ns
    path.write_text(json.dumps(sealed))
    assert problems(layout) == []
    assert problems(layout, full=True) == [(PACKAGE, "changed")]


def test_an_edit_through_a_sibling_is_found_in_both(layout: Layout) -> None:
    """Each hard link is the same file: the other generation is edited with it, and its size and time with it."""
    sibling = layout.generation("0002-abcdef")
    shutil.copytree(layout.generation(ID), sibling, symlinks=True, copy_function=os.link)
    manifest.seal(sibling, manifest.Digests())
    same_size_and_time(sibling / PACKAGE, "value = 2\n")
    for each in (ID, "0002-abcdef"):
        report = manifest.check(layout, each, full=False)
        assert [(problem["path"], problem["problem"]) for problem in report["problems"]] == [(PACKAGE, "changed")]


def renew(layout: Layout) -> None:
    (layout.generation(ID) / "generation.json").write_text(json.dumps({"id": ID, "number": 1}))
    manifest.renew(layout, manifest.Digests())


def sealed_ctime(layout: Layout, name: str) -> int:
    return int(json.loads((layout.generation(ID) / "manifest.json").read_text())["files"][name]["ctime_ns"])


def test_an_interpreter_that_was_upgraded_under_it_is_named(layout: Layout) -> None:
    interpreter = layout.root.parent / "python3.11"
    interpreter.touch()  # as reinstalling the same package does
    assert problems(layout) == []
    same_size_and_time(interpreter, "The interpreter")
    assert problems(layout) == [(str(interpreter), "the interpreter changed")]


def test_another_interpreter_behind_the_same_link_is_named(layout: Layout) -> None:
    old, new = layout.root.parent / "python3.11", layout.root.parent / "python3.12"
    old.rename(new)
    old.symlink_to(new)
    assert problems(layout) == [(str(old), "no longer the interpreter"), (str(new), "another interpreter")]
    old.unlink()
    assert problems(layout) == [(str(old), "no longer the interpreter")]


def test_the_library_that_the_interpreter_is_made_of_belongs_to_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "root")
    for folder in ("usr/bin", "usr/lib64"):
        (tmp_path / folder).mkdir(parents=True)
    make_environment(layout.generation(ID) / "venv", tmp_path / "usr/bin/python3.11")
    (tmp_path / "usr/bin/python3.11").write_bytes(b"\x7fELF\0libpython3.11.so.1.0\0libc.so.6\0")
    library = tmp_path / "usr/lib64/libpython3.11.so.1.0"
    library.write_text("its code")
    manifest.seal(layout.generation(ID), manifest.Digests())
    assert problems(layout) == []
    library.write_text("new code")
    assert problems(layout) == [(str(library), "the interpreter changed")]


def test_an_interpreter_inside_the_environment_is_a_file_like_others(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "root")
    venv = layout.generation(ID) / "venv"
    make_environment(venv, tmp_path / "python3.11")
    relink(venv / "bin/python", "python3.11")
    (venv / "bin/python3.11").write_text("conda brings its own")
    manifest.seal(layout.generation(ID), manifest.Digests())
    (venv / "bin/python3.11").write_text("conda brought another")
    assert problems(layout) == [("venv/bin/python3.11", "changed")]


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
    manifest.seal(layout.generation(ID), manifest.Digests())
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
