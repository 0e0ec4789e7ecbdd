"""gc with real generations and the real cache of uv. Which generations it keeps is tested in host_state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.host_facts import wheels
from tests.unit.host_facts.wheels import GREETER, TOOLKIT, UV, Json, spec_of, stage_context

from cudaup.host import gc, generations, manifest, stage
from cudaup.host.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Generation 1 has both wheels and failed, generation 2 has one of them and waits to be tried."""
    layout = Layout(tmp_path / "root")
    wheels.put(layout.root, UV, GREETER, TOOLKIT)
    for spec in (spec_of(GREETER, TOOLKIT), spec_of(GREETER)):
        stage.stage(stage_context(layout.root, spec))
    generations.update(layout, ids(layout)[0], failed=1.0)
    return layout


def ids(layout: Layout) -> list[str]:
    return [record["id"] for record in generations.load_all(layout)]


def collect(layout: Layout, *, dry_run: bool = False) -> Json:
    return gc.gc(wheels.context(layout.root, dry_run=dry_run))


def cached(layout: Layout, name: str) -> list[Path]:
    return list(layout.uv_cache.rglob(name))


def test_with_a_generation_go_its_wheels_and_its_part_of_the_cache(layout: Layout) -> None:
    first, second = ids(layout)
    assert collect(layout, dry_run=True) == {"would": [f"remove {first}", f"remove {TOOLKIT.filename}"]}
    assert collect(layout)["freed_bytes"] > 3 * 4096
    assert ids(layout) == [second]
    assert {path.name for path in layout.blobs.rglob("*.whl")} == {UV.filename, GREETER.filename}
    assert (len(cached(layout, "nvcc")), len(cached(layout, "greeter/__init__.py"))) == (0, 1)
    again = collect(layout)
    assert (again["removed"], again["wheels"], again["freed_bytes"]) == ([], [], 0)


def test_what_a_killed_sender_left_goes(layout: Layout) -> None:
    collect(layout)
    (layout.blobs / ".incoming-abc").write_bytes(b"x" * 5000)
    assert collect(layout)["freed_bytes"] == 5000
    assert not (layout.blobs / ".incoming-abc").exists()


def test_what_stays_is_whole_its_ctimes_known_and_its_cache_used_again(layout: Layout) -> None:
    second = ids(layout)[1]
    collect(layout)
    assert manifest.check(layout, second, full=True)["problems"] == []
    (installed,) = layout.generation(second).rglob("greeter/__init__.py")
    sealed = json.loads((layout.generation(second) / "manifest.json").read_text())["files"]
    name = str(installed.relative_to(layout.generation(second)))
    assert sealed[name]["ctime_ns"] == installed.stat().st_ctime_ns
    stage.stage(stage_context(layout.root, spec_of(GREETER, env={"A": "1"})))
    assert installed.stat().st_nlink == 3


def test_what_was_removed_can_be_sent_and_staged_again(layout: Layout) -> None:
    collect(layout)
    wheels.put(layout.root, TOOLKIT)
    answer = stage.stage(stage_context(layout.root, spec_of(GREETER, TOOLKIT)))
    assert (answer["changed"], answer["generation"][:5]) == (True, "0003-")


def test_a_uv_that_cannot_clean_its_cache_gets_an_empty_one(layout: Layout) -> None:
    (layout.root / "bin" / "uv-0.0.1").write_text("#!/bin/sh\nexit 2\n")
    collect(layout)
    assert not layout.uv_cache.exists()
    assert manifest.check(layout, ids(layout)[0], full=True)["problems"] == []
