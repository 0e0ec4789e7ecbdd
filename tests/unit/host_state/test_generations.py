import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.host_state.machine import Machine

from cudaup.host import gc, generations, recover
from cudaup.host.layout import Layout
from cudaup.host.mounts import prepare_root
from cudaup.host.protocol import Refused

A, B, C = "0001-aaaaaa", "0002-bbbbbb", "0003-cccccc"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Three generations; A is current."""
    made = Layout(tmp_path / "cudaup")
    prepare_root(made)
    for number, each in enumerate((A, B, C), 1):
        made.generation(each).mkdir()
        generations.save(made, {"id": each, "number": number})
    generations.make_first(made, A)
    return made


def names(layout: Layout) -> tuple[str | None, str | None]:
    return generations.current_id(layout), generations.previous_id(layout)


def links(layout: Layout) -> list[tuple[int, str]]:
    """Every link by inode: a switch must move them, never make one."""
    found = [layout.current, layout.previous, *layout.links.iterdir()]
    return sorted((path.lstat().st_ino, path.readlink().name) for path in found if path.is_symlink())


def test_switches_only_move_the_links_there_are(layout: Layout) -> None:
    before = links(layout)
    seen = []
    for target in (B, C, A, C, B):
        generations.switch(layout, target)
        seen.append(names(layout))
        assert links(layout) == before
    assert seen == [(B, A), (C, B), (A, C), (C, A), (B, C)]
    assert (layout.root / "current" / "generation.json").is_file()


def test_switching_to_the_current_one_changes_nothing(layout: Layout) -> None:
    generations.switch(layout, B)
    generations.switch(layout, B)
    assert names(layout) == (B, A)


@pytest.mark.parametrize("wanted", [None, A, B])
def test_previous_can_be_put_back_as_it_was(layout: Layout, wanted: str | None) -> None:
    before = links(layout)
    generations.switch(layout, B)
    generations.switch(layout, C)
    generations.set_previous(layout, wanted)
    assert (names(layout), links(layout)) == ((C, wanted), before)


def test_no_link_is_lost_when_another_ones_name_is_taken(layout: Layout) -> None:
    before = links(layout)
    for target in (B, C, B):
        generations.switch(layout, target)
    assert [path.name for path in layout.links.iterdir()] == [C]  # it names A
    generations.set_previous(layout, None)
    assert links(layout) == before


def test_a_link_that_got_lost_is_made_anew(layout: Layout) -> None:
    (layout.links / C).unlink()
    generations.switch(layout, C)
    assert names(layout) == (C, A)


def test_numbers_count_past_a_stage_cut_short(layout: Layout) -> None:
    (layout.generations / "0007-dddddd").mkdir()
    (layout.generations / ".staging-0008-eeeeee").mkdir()
    assert generations.next_id(layout, "f" * 64) == "0008-ffffff"
    assert [path.name for path in generations.incomplete(layout)] == [".staging-0008-eeeeee", "0007-dddddd"]


def test_an_unknown_generation_is_refused_with_those_known(layout: Layout) -> None:
    with pytest.raises(Refused, match="9999") as refusal:
        generations.load(layout, "9999-zzzzzz")
    assert refusal.value.fix == f"known: {A}, {B}, {C}"


_CHILD = """
import ctypes, os, sys
from pathlib import Path
from cudaup.host import generations
from cudaup.host.layout import Layout
left = int(sys.argv[3])
def dying(function):
    def call(*args):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return function(*args)
    return call
generations.exchange = dying(generations.exchange)
generations.fsync_dir = dying(generations.fsync_dir)
generations.switch(Layout(Path(sys.argv[1])), sys.argv[2])
"""


@pytest.mark.parametrize("start", [A, B])
def test_a_switch_killed_at_any_effect_leaves_the_old_or_the_new_and_can_be_repeated(
    layout: Layout, start: str
) -> None:
    if start == B:
        generations.switch(layout, B)  # now there is a previous one
    before, was_previous, count = links(layout), generations.previous_id(layout), 0
    while True:
        argv = [sys.executable, "-c", _CHILD, str(layout.root), C, str(count)]
        code = subprocess.run(argv, check=False, env={**os.environ, "PYTHONPATH": "src"}).returncode
        assert generations.current_id(layout) in {start, C}
        assert links(layout) == before
        if code == 0:
            break
        generations.switch(layout, start)
        generations.set_previous(layout, was_previous)
        count += 1
    assert (generations.current_id(layout), count) == (C, 3 if start == A else 2)


def test_gc_keeps_what_could_be_needed_and_says_why(machine: Machine, adopted: str) -> None:
    layout = machine.ctx.layout
    for number in range(2, 8):
        machine.stage(f"000{number}-abcdef")
    for number, changes in ((2, {"failed": 5.0}), (3, {"confirmed": True, "proven": 9.0}), (4, {"confirmed": True})):
        generations.update(layout, f"000{number}-abcdef", **changes)
    generations.update(layout, "0006-abcdef", failed=5.0)
    generations.update(layout, "0007-abcdef", failed=5.0)
    generations.switch(layout, "0004-abcdef")
    user = subprocess.Popen(["sleep", "600"], cwd=layout.generation("0006-abcdef") / "venv")
    try:
        answer = gc.gc(machine.ctx)
    finally:
        user.kill()
        user.communicate()

    assert {each["id"]: each["why"] for each in answer["kept"]} == {
        adopted: "previous",
        "0003-abcdef": "last proven",
        "0004-abcdef": "current",
        "0005-abcdef": "not tried yet",
        "0006-abcdef": f"used by pid {user.pid} (cwd)",
    }
    assert answer["removed"] == ["0002-abcdef", "0007-abcdef"]
    assert answer["freed_bytes"] > 4096
    assert not layout.generation("0002-abcdef").exists()
    assert "0002-abcdef" not in [path.readlink().name for path in layout.links.iterdir()]
    assert gc.gc(machine.ctx)["removed"] == ["0006-abcdef"]


@pytest.mark.parametrize("has_record", [True, False])
def test_what_a_killed_gc_left_is_removed_once(machine: Machine, adopted: str, has_record: bool) -> None:  # noqa: FBT001 - a parameter
    layout = machine.ctx.layout
    trash = layout.generations / ".trash-0002-abcdef"
    layout.generation(machine.stage("0002-abcdef")).rename(trash)
    if not has_record:
        (trash / "generation.json").unlink()
    assert recover.recover(machine.ctx) == {"state": "settled", "actions": [f"removed half-made `{trash.name}`"]}
    assert [path.name for path in layout.generations.iterdir()] == [adopted]
