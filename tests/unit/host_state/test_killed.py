"""What random commands and kills have found, each with the right answer."""

import errno
import itertools
import shutil
from collections.abc import Callable, Iterator

import pytest
from tests.unit.host_state.machine import TIMES
from tests.unit.host_state.quick import ADOPTED, UNIT, Killed, QuickMachine, effects_of
from tests.unit.host_state.test_adopt import names_in, picture

from cudaup.host import (
    activate,
    adopt,
    confirm,
    deadman,
    ending,
    forget,
    generations,
    lease,
    locks,
    manifest,
    recover,
    rollback,
    stage,
    status,
    transit,
)
from cudaup.host.protocol import Failed, Json, Refused


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuickMachine]:
    """Nothing is adopted yet."""
    found = QuickMachine(monkeypatch)
    yield found
    found.close()


def staged(quick: QuickMachine, number: int = 1) -> str:
    return str(stage.stage(quick.spec_call(None, number))["generation"])


def activated(quick: QuickMachine) -> tuple[int, str, str]:
    """Epoch, the old generation and the new one, which waits for its confirmation."""
    old, new = str(generations.current_id(quick.ctx.layout)), staged(quick)
    epoch = quick.take_lease()
    activate.activate(quick.call(epoch, generation=new, **TIMES))
    return epoch, old, new


def kills(quick: QuickMachine, call: Callable[[], Json]) -> Iterator[int]:
    """Once killed before each of its effects; the state after each is the caller's to look at and to put back."""
    number = 0
    while True:
        number += 1
        try:
            with effects_of(quick.folder, number):
                call()
        except Killed:
            yield number
        else:
            assert number > 5
            return


def edit(quick: QuickMachine, generation: str, name: str = "pyvenv.cfg") -> None:
    """Of a file that no package recorded: only `verify` knows it."""
    with (generations.tree(quick.ctx.layout, generation) / name).open("a") as file:
        file.write("# edited\n")


@pytest.mark.parametrize("by", ["timer", "recover"])
def test_going_back_to_what_was_edited_meanwhile_is_not_proven(quick: QuickMachine, by: str) -> None:
    _epoch, old, _new = activated(quick)
    edit(quick, old)
    quick.clock.now += 60
    calls: dict[str, Callable[[], Json]] = {
        "timer": lambda: deadman.fire(quick.ctx),
        "recover": lambda: recover.recover(quick.call(boot=False)),
    }
    assert calls[by]()["state"] == "reverted-unproven"
    now = lease.read(quick.ctx.layout)
    assert (now.state, "pyvenv.cfg: changed" in now.reason) == ("quarantined", True)
    assert generations.current_id(quick.ctx.layout) == old  # there is no other way
    assert quick.runs_in() == ADOPTED


@pytest.mark.parametrize("has_room", [True, False])
def test_going_back_gives_the_service_its_drop_in_again(
    quick: QuickMachine,
    has_room: bool,  # noqa: FBT001 - a parameter
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An adopt was killed before it made one, or somebody tidied up."""
    old, new = str(generations.current_id(quick.ctx.layout)), staged(quick)
    shutil.rmtree(quick.systemd.unit_dir / f"{UNIT}.d")
    if has_room:
        assert rollback.rollback(quick.call(to=new))["state"] == "rolled-back-proven"
        assert (quick.systemd.unit_dir / f"{UNIT}.d" / "cudaup.conf").is_file()
        assert quick.runs_in() == new
    else:
        monkeypatch.setattr("cudaup.host.units.write_atomic", _no_space)
        answer = rollback.rollback(quick.call(to=new))
        assert (answer["state"], "its environment lacks" in answer["problems"][0]) == ("rolled-back-unproven", True)
        lease.clear(quick.ctx)
        assert rollback.rollback(quick.call(to=old))["state"] == "rolled-back-proven"
        assert quick.runs_in() == ADOPTED


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "full")


def test_what_a_failed_generation_compiled_is_not_kept(quick: QuickMachine) -> None:
    """Half a file of a disk that was full would fail each later attempt (seen by the sweep)."""
    layout, new = quick.ctx.layout, staged(quick)
    torn = layout.generation(new) / "cache" / "pycache" / "torn.pyc"
    torn.parent.mkdir()
    torn.write_bytes(b"half")
    quick.systemd.faults[new] = "start"
    with pytest.raises(Failed, match="does not start"):
        activate.activate(quick.call(None, generation=new, **TIMES))
    assert (torn.exists(), torn.parent.parent.exists()) == (False, True)


def test_a_recovery_at_boot_in_the_middle_of_a_boot_stops_what_still_runs(quick: QuickMachine) -> None:
    """Some unit with our drop-in was started by hand: it pulls the recovery in while the service runs."""
    _epoch, old, new = activated(quick)
    quick.clock.now += 60
    assert quick.runs_in() == new
    assert recover.recover(quick.call(boot=True))["state"] == "in-transit"
    assert (generations.current_id(quick.ctx.layout), quick.runs_in()) == (old, new)
    assert deadman.fire(quick.ctx)["state"] == "reverted-proven"
    assert quick.runs_in() == ADOPTED


def test_a_recovery_killed_at_boot_is_finished_by_a_timer(quick: QuickMachine) -> None:
    _epoch, old, new = activated(quick)
    finished = 0

    def reboot() -> Json:
        quick.systemd.stop(UNIT)
        quick.systemd.end_timer()
        quick.clock.reboot()
        return recover.recover(quick.call(boot=True))

    for _number in kills(quick, reboot):
        quick.systemd.start(UNIT)  # the boot goes on without it
        pending = transit.read(quick.ctx.layout)
        if pending is not None and pending.phase == transit.REVERTING:
            assert locks.is_held(quick.ctx.layout.timer_lock)
            assert deadman.fire(quick.ctx)["state"] == "reverted-proven"
            assert (generations.current_id(quick.ctx.layout), quick.runs_in()) == (old, ADOPTED)
            finished += 1
        if not quick.ctx.layout.transit.exists():
            activate.activate(quick.call(quick.take_lease(), generation=new, **TIMES))
    assert finished > 10


def test_whatever_a_stage_was_killed_over_each_whole_generation_has_its_link(quick: QuickMachine) -> None:
    layout, numbers = quick.ctx.layout, itertools.count(1)
    for _number in kills(quick, lambda: {"generation": staged(quick, next(numbers))}):
        whole = {record["id"] for record in generations.load_all(layout)}
        links = [layout.current, *layout.links.iterdir()]
        assert whole <= {link.readlink().name for link in links}
        assert {record["number"] for record in generations.load_all(layout)} == set(range(1, len(whole) + 1))
        recover.recover(quick.call(boot=False))
        assert sorted(path.name for path in layout.generations.iterdir()) == sorted(whole)


def test_whatever_an_adopt_was_killed_over_forget_leaves_nothing(fresh: QuickMachine) -> None:
    before = picture(fresh.path)
    for _number in kills(fresh, lambda: adopt.adopt(fresh.call(path=str(fresh.path)))):
        told = status.of(fresh.ctx)
        assert told["damage"] == []
        for known in told["generations"]:  # reading works, whatever is there
            verified = manifest.check(fresh.ctx.layout, known["id"], full=True)
            assert verified["ok"] or not fresh.path.is_symlink()
        forget.forget(fresh.ctx)
        assert picture(fresh.path) == before
        assert names_in(fresh.folder) == ["ml-env", "opt", "python3", "run", "systemd"]
        assert [*(fresh.folder / "opt").iterdir(), *fresh.systemd.unit_dir.iterdir()] == []
        fresh.install()


def test_whatever_a_forget_was_killed_over_the_next_adopt_changes_no_environment(quick: QuickMachine) -> None:
    """The generation that was current is not what lies at the path again."""

    def begin() -> str:
        epoch, _old, new = activated(quick)
        confirm.confirm(quick.call(epoch))
        lease.release(quick.call(epoch))
        quick.systemd.stop(UNIT)
        return new

    path, inode = quick.path, quick.path.resolve().stat().st_ino
    new = begin()
    half = 0
    for _number in kills(quick, lambda: forget.forget(quick.ctx)):
        if not quick.ctx.layout.root.is_dir():
            break
        if path.is_symlink():
            continue  # still adopted
        half += 1
        recover.recover(quick.call(boot=False))
        quick.systemd.start(UNIT)
        adopt.adopt(quick.call(path=str(path)))
        assert path.resolve().stat().st_ino == inode
        assert (generations.current_id(quick.ctx.layout), quick.runs_in()) == (path.resolve().name[8:], ADOPTED)
        activate.activate(quick.call(None, generation=new, **TIMES))
        confirm.confirm(quick.call())
        quick.systemd.stop(UNIT)
    assert half > 3


def test_an_end_whose_outcome_was_lost_is_still_the_last_one_in_the_next_transit(quick: QuickMachine) -> None:
    epoch, old, new = activated(quick)
    with effects_of(quick.folder) as effects:
        confirm.confirm(quick.call(epoch))
    activate.activate(quick.call(epoch, generation=old, **TIMES))
    with pytest.raises(Killed), effects_of(quick.folder, effects.count - 1):  # the outcome of its end, then its own
        confirm.confirm(quick.call(epoch))
    ended = {"epoch": epoch, "end": "confirmed", "generation": old}
    assert (transit.read(quick.ctx.layout), ending.last(quick.ctx.layout)) == (None, ended)
    activate.activate(quick.call(epoch, generation=new, **TIMES))
    assert ending.last(quick.ctx.layout) == ended


def test_an_activate_refused_for_want_of_a_timer_changes_nothing_of_the_generation(quick: QuickMachine) -> None:
    new = staged(quick)
    record = generations.load(quick.ctx.layout, new)
    quick.systemd.has_timers = False
    with pytest.raises(Refused, match="no timers today") as refusal:
        activate.activate(quick.call(None, generation=new, **TIMES))
    assert refusal.value.code == "unsupported"
    assert generations.load(quick.ctx.layout, new) == record
