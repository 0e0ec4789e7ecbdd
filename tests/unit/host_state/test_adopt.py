import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.host_state.machine import Machine

from cudaup.host import adopt, adoption, forget, generations, lease, manifest, recover
from cudaup.host.protocol import Refused


def picture(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """Every file by name: inode, mtime, mode, and where a link leads."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        info = path.lstat()
        link = str(path.readlink()) if path.is_symlink() else ""
        found[str(path.relative_to(folder))] = (info.st_ino, info.st_mtime_ns, info.st_mode, link)
    return found


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_path_becomes_a_link_and_the_directory_stays_the_same_one(machine: Machine) -> None:
    before = picture(machine.path)
    answer = adopt.adopt(machine.call(path=str(machine.path)))
    layout, generation = machine.ctx.layout, answer["generation"]

    assert machine.path.readlink() == layout.current / "venv"
    assert picture(Path(answer["aside"])) == before
    assert generations.tree(layout, generation) == Path(answer["aside"])
    assert (generations.current_id(layout), answer["units"]) == (generation, ["ml.service"])
    assert manifest.check(layout, generation, full=True)["ok"]
    run = subprocess.run(
        [machine.path / "bin" / "python", "-c", "import demo; print(demo.VERSION)"], capture_output=True, check=True
    )
    assert run.stdout == b"1.0\n"

    again = adopt.adopt(machine.call(path=str(machine.path)))
    assert again == {**answer, "changed": False}


def test_forget_gives_everything_back(machine: Machine) -> None:
    before = picture(machine.folder / "ml-env")
    adopt.adopt(machine.call(path=str(machine.path)))
    machine.stage("0002-abcdef")
    forget.forget(machine.ctx)

    assert picture(machine.folder / "ml-env") == before
    assert names_in(machine.folder) == ["ml-env", "opt", "systemd"]
    assert [*(machine.folder / "opt").iterdir(), *(machine.folder / "systemd").rglob("*")] == []
    assert forget.forget(machine.ctx) == {"changed": False, "undone": []}


def test_forget_is_refused_while_a_process_uses_what_would_go(machine: Machine, adopted: str) -> None:
    folder = machine.ctx.layout.generation(machine.stage("0002-abcdef"))
    user = subprocess.Popen(["sleep", "600"], cwd=folder / "venv")
    try:
        with pytest.raises(Refused, match=f"pid {user.pid} `sleep 600`") as refusal:
            forget.forget(machine.ctx)
    finally:
        user.kill()
        user.communicate()
    assert (refusal.value.code, generations.current_id(machine.ctx.layout)) == ("busy", adopted)


def test_forget_touches_nothing_when_somebody_replaced_the_link(machine: Machine, adopted: str) -> None:
    machine.path.unlink()
    machine.path.symlink_to("/elsewhere")
    with pytest.raises(Refused, match="not the link that was left") as refusal:
        forget.forget(machine.ctx)
    assert (refusal.value.code, str(machine.path.readlink())) == ("unsafe", "/elsewhere")
    assert f".ml-env.{adopted}" in refusal.value.fix


def test_a_new_directory_at_the_path_is_not_taken_for_the_old_one(machine: Machine, adopted: str) -> None:
    machine.path.unlink()
    machine.path.mkdir()
    with pytest.raises(Refused, match="not the link that was left"):
        forget.forget(machine.ctx)
    assert (machine.folder / f".ml-env.{adopted}" / "pyvenv.cfg").is_file()


def test_what_lies_aside_comes_back_when_somebody_removed_the_link(machine: Machine) -> None:
    before = picture(machine.path)
    adopt.adopt(machine.call(path=str(machine.path)))
    machine.path.unlink()
    forget.forget(machine.ctx)
    assert picture(machine.path) == before
    assert names_in(machine.folder) == ["ml-env", "opt", "systemd"]


def test_recovery_does_not_take_a_removed_link_for_a_half_made_adopt(machine: Machine, adopted: str) -> None:
    machine.path.unlink()
    with pytest.raises(Refused, match="not the link that was left"):
        recover.recover(machine.ctx)
    assert (machine.folder / f".ml-env.{adopted}" / "pyvenv.cfg").is_file()
    assert generations.current_id(machine.ctx.layout) == adopted


def test_forget_keeps_the_new_environment_when_the_old_one_is_gone(machine: Machine, adopted: str) -> None:
    """Whoever moved it away can bring it back; until then what runs is all there is."""
    aside = machine.folder / f".ml-env.{adopted}"
    aside.rename(machine.folder / "rescued")
    with pytest.raises(Refused, match="the adopted directory is not at") as refusal:
        forget.forget(machine.ctx)
    assert (str(aside) in refusal.value.fix, machine.path.is_symlink(), machine.ctx.root.is_dir()) == (True, True, True)
    (machine.folder / "rescued").rename(aside)
    assert forget.forget(machine.ctx)["changed"]


def test_forget_has_nothing_to_give_back_where_somebody_moved_the_directory_home(
    machine: Machine, adopted: str
) -> None:
    before = picture(machine.folder / f".ml-env.{adopted}")
    machine.path.unlink()
    (machine.folder / f".ml-env.{adopted}").rename(machine.path)
    forget.forget(machine.ctx)
    assert picture(machine.path) == before
    assert names_in(machine.folder) == ["ml-env", "opt", "systemd"]


def test_a_quarantine_has_to_be_cleared_before_the_evidence_is_forgotten(machine: Machine, adopted: str) -> None:
    lease.quarantine(machine.ctx, "its smoke does not pass")
    with pytest.raises(Refused, match="its smoke does not pass") as refusal:
        forget.forget(machine.ctx)
    assert (refusal.value.code, generations.current_id(machine.ctx.layout)) == ("quarantined", adopted)
    lease.clear(machine.ctx)
    assert forget.forget(machine.ctx)["changed"]


@pytest.mark.usefixtures("adopted")
def test_a_failed_generation_and_its_evidence_go_too(machine: Machine) -> None:
    layout = machine.ctx.layout
    machine.stage("0002-abcdef")
    generations.update(layout, "0002-abcdef", failed=1.0)
    layout.failed.mkdir(exist_ok=True)
    (layout.failed / "0002-abcdef.json").write_text("{}")
    forget.forget(machine.ctx)
    assert not layout.root.exists()
    assert machine.path.is_dir()
    assert not machine.path.is_symlink()


def test_what_an_earlier_forget_left_is_swept_and_a_link_of_such_a_name_is_not_followed(machine: Machine) -> None:
    ours, link = (machine.ctx.root.with_name(f"cudaup.forgotten-{number}") for number in (1, 2))
    ours.mkdir()
    link.symlink_to(machine.path)
    forget.forget(machine.ctx)
    assert (ours.exists(), link.is_symlink(), (machine.path / "pyvenv.cfg").is_file()) == (False, True, True)


def test_a_directory_that_was_replaced_while_it_was_sealed_is_left_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal = manifest.seal

    def seal_slowly(*arguments: Any) -> None:
        seal(*arguments)
        machine.path.rename(machine.folder / "moved")
        machine.path.mkdir()

    monkeypatch.setattr(manifest, "seal", seal_slowly)
    with pytest.raises(Refused, match="was replaced while it was read"):
        adopt.adopt(machine.call(path=str(machine.path)))
    assert (list(machine.path.iterdir()), machine.path.is_symlink()) == ([], False)
    assert names_in(machine.folder) == ["ml-env", "moved", "opt", "systemd"]
    assert (adoption.read(machine.ctx.layout), generations.current_id(machine.ctx.layout)) == (None, None)


def test_a_second_path_is_refused(machine: Machine, adopted: str) -> None:
    with pytest.raises(Refused, match=str(machine.path)) as refusal:
        adopt.adopt(machine.call(path="/somewhere/else"))
    assert (refusal.value.code, generations.current_id(machine.ctx.layout)) == ("unsupported", adopted)


_CHILD = """
import importlib, io, os, sys
from pathlib import Path
from cudaup.host import files, systemd
from cudaup.host.protocol import Context, Channel
verb, root, path, left = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
systemd.Systemd.unit_dir = Path(sys.argv[5])  # and never the real one
systemd._run = lambda *_: systemd.CallResult(True, "")
def dying(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return function(*args, **kwargs)
    return call
for name in ("symlink", "mkdir", "replace", "rename", "unlink", "rmdir"):
    setattr(os, name, dying(getattr(os, name)))
files._renameat2 = dying(files._renameat2)
module = importlib.import_module("cudaup.host." + verb)
getattr(module, verb)(Context(root, Channel(), io.BytesIO(), options={"path": path}))
"""


def killed_at(effect: int, verb: str, machine: Machine) -> bool:
    """Whether `verb` was killed before that effect on the disk; it ends by itself when it has not so many."""
    places = [machine.ctx.root, machine.path, effect, machine.systemd.unit_dir]
    argv = [sys.executable, "-c", _CHILD, verb, *map(str, places)]
    environ = {**os.environ, "PYTHONPATH": "src"}
    code = subprocess.run(argv, check=False, stdout=subprocess.DEVNULL, env=environ).returncode
    assert code in {0, 9}
    assert (machine.path / "bin" / "python").exists()
    return code == 9


def test_killed_at_any_effect_the_path_is_never_missing_and_recover_settles_it(machine: Machine) -> None:
    before, count, outcomes = picture(machine.path), 0, set()
    while True:
        is_killed = killed_at(count, "adopt", machine)
        recover.recover(machine.ctx)
        is_adopted = machine.path.is_symlink()
        outcomes.add(is_adopted)
        if is_adopted:
            assert manifest.check(machine.ctx.layout, str(generations.current_id(machine.ctx.layout)), full=True)["ok"]
            known = adoption.read(machine.ctx.layout)
            assert known is not None
            adopt.put_back(machine.ctx.layout, known)
            adopt.settle(machine.ctx)
        assert picture(machine.path) == before
        assert names_in(machine.folder) == ["ml-env", "opt", "systemd"]
        assert recover.recover(machine.ctx) == {"state": "clean", "actions": []}
        if not is_killed:
            break
        count += 1
    assert outcomes == {True, False}
    assert count > 10


@pytest.mark.parametrize("verb", ["adopt", "forget"])
def test_killed_at_any_effect_forget_gives_everything_back(machine: Machine, verb: str) -> None:
    """Half-made or half-undone, and a whole one when the killed verb was forget."""
    before, count, is_killed = picture(machine.path), 0, True
    while is_killed:
        if verb == "forget":
            adopt.adopt(machine.call(path=str(machine.path)))
            machine.stage("0002-abcdef")
        is_killed = killed_at(count, verb, machine)
        forget.forget(machine.ctx)
        assert picture(machine.path) == before
        assert names_in(machine.folder) == ["ml-env", "opt", "systemd"]
        assert [*(machine.folder / "opt").iterdir(), *(machine.folder / "systemd").rglob("*")] == []
        count += 1
    assert count > 10
