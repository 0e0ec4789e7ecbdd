import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.host_state.machine import Machine

from cudaup.host import adopt, adoptable, adoption, forget, generations, manifest, recover
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


def link(path: Path) -> Path:
    made = path.with_name("linked")
    made.symlink_to(path)
    return made


def below_link(path: Path) -> Path:
    made = path.parent / "alias"
    made.symlink_to(path.parent)
    return made / path.name


def file(path: Path) -> Path:
    return path / "pyvenv.cfg"


def no_environment(path: Path) -> Path:
    (path / "pyvenv.cfg").unlink()
    return path


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (link, "it is a link to"),
        (below_link, "one of its parents is a link"),
        (file, "not a directory"),
        (no_environment, "no Python environment"),
        (lambda _: Path("/proc"), "a mount point"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_adopted_is_refused_with_the_reason(
    machine: Machine, prepare: Callable[[Path], Path], reason: str
) -> None:
    machine.systemd.stop("ml.service")
    path = prepare(machine.path)
    with pytest.raises(Refused, match=reason) as refusal:
        adopt.adopt(machine.call(path=str(path)))
    assert refusal.value.code == "unsafe"
    assert list(machine.ctx.layout.generations.iterdir()) == []


def test_a_foreign_or_immutable_directory_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root could make one, so what the system says about it is made up."""
    owner = machine.path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(Refused, match=f"belongs to uid {owner}, not to {owner + 1}"):
        adoptable.require(machine.path)
    monkeypatch.undo()
    adoptable.require(machine.path)
    monkeypatch.setattr(adoptable, "_flags", lambda path: 0x10 if path == machine.folder else 0)
    with pytest.raises(Refused, match=f"`{machine.folder}` has the immutable"):
        adoptable.require(machine.path)


def test_a_second_path_is_refused(machine: Machine, adopted: str) -> None:
    with pytest.raises(Refused, match=str(machine.path)) as refusal:
        adopt.adopt(machine.call(path="/somewhere/else"))
    assert (refusal.value.code, generations.current_id(machine.ctx.layout)) == ("unsupported", adopted)


_CHILD = """
import sys
from pathlib import Path
from cudaup.host import adopt, adoptable, adoption, files, generations
from cudaup.host.protocol import Context, Channel
import io, os
left = int(sys.argv[3])
def dying(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return function(*args, **kwargs)
    return call
for module, names in ((adopt, "exchange fsync_dir"), (generations, "fsync_dir write_json"), (adoption, "write_json")):
    for name in names.split():
        setattr(module, name, dying(getattr(module, name)))
for name in ("symlink_to", "mkdir", "replace"):
    setattr(Path, name, dying(getattr(Path, name)))
adopt.adopt(Context(Path(sys.argv[1]), Channel(), io.BytesIO(), options={"path": sys.argv[2]}))
"""


def test_killed_at_any_effect_the_path_is_never_missing_and_recover_settles_it(machine: Machine) -> None:
    before, count, outcomes = picture(machine.path), 0, set()
    while True:
        argv = [sys.executable, "-c", _CHILD, str(machine.ctx.root), str(machine.path), str(count)]
        code = subprocess.run(
            argv, check=False, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": "src"}
        ).returncode
        assert code in {0, 9}
        assert (machine.path / "bin" / "python").exists()
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
        if code == 0:
            break
        count += 1
    assert outcomes == {True, False}
    assert count > 10
