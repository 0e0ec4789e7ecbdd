"""The host program against a model of it: random commands, kills at any effect, two at once, clock jumps, reboots.

By default always the same examples, in seconds. `CUDAUP_SEEDS=1000-6000 pytest` of this file tries others, three a
second or so; what fails is named by its seed and printed as a program that can be repeated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.property.host_model import (
    HALF,
    HELD,
    HIDDEN,
    NO,
    PATH,
    QUARANTINED,
    UNRECORDED,
    VISIBLE,
    YES,
    Generation,
    Model,
)
from tests.property.host_seen import (
    assert_cut_short,
    assert_one_after_the_other,
    assert_switched_to_what_verifies,
    in_words,
    listing,
    names,
    picture,
    read,
    read_lease,
    read_transit,
    without_times,
)
from tests.unit.host_state.machine import SUITE
from tests.unit.host_state.quick import UNIT, Killed, QuickMachine, effects_of

from cudaup.host import (
    activate,
    adopt,
    confirm,
    deadman,
    ending,
    environment,
    forget,
    gc,
    lease,
    locks,
    manifest,
    recover,
    rollback,
    spec,
    stage,
    status,
)
from cudaup.host.protocol import Channel, Context, Failed, Json, Refused

Method = TypeVar("Method", bound=Callable[..., None])

KILLED = "killed"
_TIMES: Json = {"ttl": 60.0, "ceiling": 600.0, "suite": SUITE, "health": {}, "hooks": {}}
_EFFECTS = {"upgrade": 60, "confirm": 11, "rollback": 30, "recover": 25, "timer": 25}  # about so many has each
FENCED = ("refused stale-epoch", "refused lease-held", "refused quarantined")

runs = st.sampled_from(["r-1", "r-2", "r-3"])
epochs = st.sampled_from(["now"] * 9 + ["hand", "old", "future"])
picks = st.integers(0, 5)
ceilings = st.sampled_from([600.0, 80.0])
rarely = st.sampled_from([True, False, False, False, False])


def fates(effects: int) -> st.SearchStrategy[int | None]:
    """Before which effect it is killed: mostly never."""
    return st.one_of(st.none(), st.none(), st.integers(1, effects))


@dataclass(frozen=True)
class Command:
    """Drawn `weight` times as often as one of weight 1, while `when` holds, with options from `drawn`."""

    weight: int
    when: Callable[[Any], object]
    drawn: st.SearchStrategy[dict[str, Any]]


COMMANDS: dict[str, Command] = {}


def command(
    weight: int, *, when: Callable[[Any], object] = lambda _machine: True, **drawn: st.SearchStrategy[Any]
) -> Callable[[Method], Method]:
    """Not a rule of its own: of rules hypothesis leaves out half in each example, and draws the others alike."""

    def registered(method: Method) -> Method:
        COMMANDS[method.__name__] = Command(weight, when, st.fixed_dictionaries(drawn))
        return method

    return registered


def possible(machine: object) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    names = [name for name, each in COMMANDS.items() if each.when(machine) for _ in range(each.weight)]
    return st.sampled_from(names).flatmap(lambda name: st.tuples(st.just(name), COMMANDS[name].drawn))


class HostProgram(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(Channel, "send", lambda *_: None)
        self.machine = QuickMachine(self.patches)
        self.folder = self.machine.folder
        self.systemd, self.clock = self.machine.systemd, self.machine.clock
        self.layout = self.machine.ctx.layout
        self.model = Model()
        self.originals: dict[str, dict[Path, tuple[bytes, int]]] = {}  # of edited files, by place
        self.edits: dict[str, set[str]] = {}
        self.holders: dict[int, str] = {}
        self.before_cudaup = picture(self.folder)

    @rule(command=st.runner().flatmap(possible))
    def step(self, command: tuple[str, dict[str, Any]]) -> None:
        name, options = command
        getattr(self, name)(**options)

    # the host's life

    @initialize(upgrades=st.integers(0, 2), reached=st.sampled_from(["new", "adopted", "awaiting", "confirmed"]))
    def begin(self, upgrades: int, reached: str) -> None:
        """As far on its way as drawn, so that every part of it is walked often."""
        if reached != "new":
            self.adopt("hand", None)
        for number in range(1 + upgrades):
            self.stage("hand", number, False, None)
        if reached in {"awaiting", "confirmed"}:
            self.take("r-1", 60.0, False, None)
            for number in range(upgrades):
                self.upgrade(number, 600.0, None)
                if (number, reached) != (upgrades - 1, "awaiting"):
                    self.confirm("now", None)

    @command(4, seconds=st.sampled_from([0.5, 5, 29, 31, 61, 601, 7200, 90000]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @command(2, monotonic=st.sampled_from([None, 3.0]), fate=fates(40))
    def reboot(self, monotonic: float | None, fate: int | None) -> None:
        for pid in list(self.systemd.table):
            self.systemd.table.end(pid)
        self.systemd.end_timer()
        self.systemd.enqueued.clear()
        self.clock.reboot(monotonic)
        self.model.served = None
        self.model.foreign.clear()
        if self.model.adopted != NO:  # else there is no unit to run it
            self._recover(is_boot=True, fate=fate)
        self.start_service()

    @command(1)
    def kill_service(self) -> None:
        self.systemd.stop(UNIT)
        self.model.served = None

    @command(2)
    def start_service(self) -> None:
        self.systemd.start(UNIT)
        self.model.start_service()

    @command(1, pick=picks, fault=st.sampled_from(["start", "dies"]))
    def break_service(self, pick: int, fault: str) -> None:
        """It goes on where it runs; the next start there fails."""
        place = self._pick_place(pick)
        self.systemd.faults[place] = self.model.faults[place] = fault

    @command(3, when=lambda self: self.model.faults)
    def mend_services(self) -> None:
        self.systemd.faults.clear()
        self.model.faults.clear()

    @command(1, pick=picks)
    def somebody_works_in(self, pick: int) -> None:
        place = self._pick_place(pick)
        if place not in self.model.foreign:
            self.systemd.table.spawn(["bash"], os.path.realpath(self._tree(place)), {}, None)
            self.model.foreign.add(place)

    @command(3, when=lambda self: self.model.foreign)
    def everybody_leaves(self) -> None:
        for pid, process in list(self.systemd.table.items()):
            if process.unit is None:
                self.systemd.table.end(pid)
        self.model.foreign.clear()

    @command(1, works=st.sampled_from([True, True, True, False]))
    def timers(self, works: bool) -> None:  # noqa: FBT001 - drawn
        self.systemd.has_timers = self.model.has_timers = works

    @command(2, pick=picks, edit=st.sampled_from([VISIBLE, HIDDEN, UNRECORDED]))
    def edit(self, pick: int, edit: str) -> None:
        """In place, as people do."""
        place = self._pick_place(pick)
        tree = self._tree(place)
        file = tree / "pyvenv.cfg" if edit == UNRECORDED else next(tree.glob("lib/python3*/site-packages/demo.py"))
        content, mtime = file.read_bytes(), file.stat().st_mtime_ns
        self.originals.setdefault(place, {}).setdefault(file.relative_to(tree), (content, mtime))
        ctime = file.stat().st_ctime_ns
        while file.stat().st_ctime_ns == ctime:  # the kernel's clock ticks every few milliseconds
            file.write_bytes(content[:-1] + b"!" if edit == HIDDEN else content + b"# edited\n")
            if edit == HIDDEN:
                os.utime(file, ns=(mtime, mtime))
        self.edits.setdefault(place, set()).add(edit)
        self._note_edits()

    @command(3, when=lambda self: self.originals, pick=picks)
    def repair(self, pick: int) -> None:
        place = sorted(self.originals)[pick % len(self.originals)]
        for name, (content, mtime) in self.originals.pop(place).items():
            file = self._tree(place) / name
            file.write_bytes(content)
            os.utime(file, ns=(mtime, mtime))
        del self.edits[place]
        self._note_edits()

    # the lease

    @command(4, run=runs, ttl_s=st.sampled_from([10.0, 60.0, 3600.0]), take_over=st.booleans(), fate=fates(7))
    def take(self, run: str, ttl_s: float, take_over: bool, fate: int | None) -> None:  # noqa: FBT001 - drawn
        asked: Json = {"holder": "ann", "run": run, "reason": "", "ttl": ttl_s, "take_over": take_over}
        self._do(lease.take, None, lambda model: model.take(run, ttl_s, take_over=take_over), fate, **asked)

    @command(2, epoch=epochs, fate=fates(5))
    def renew(self, epoch: str, fate: int | None) -> None:
        number = self._epoch(epoch) or 0
        self._do(lease.renew, number, lambda model: model.renew(number), fate)

    @command(3, epoch=epochs, fate=fates(5))
    def release(self, epoch: str, fate: int | None) -> None:
        number = self._epoch(epoch) or 0
        self._do(lease.release, number, lambda model: model.release(number), fate)

    @command(1, really=rarely)
    def quarantine(self, really: bool) -> None:  # noqa: FBT001 - drawn
        if really:
            lease.quarantine(self.machine.ctx, "for a reason")
            self.model.quarantine()

    @command(6, when=lambda self: self.model.lease.state == QUARANTINED, fate=fates(5))
    def clear(self, fate: int | None) -> None:
        self._do(lease.clear, None, Model.clear, fate)

    # generations

    @command(
        3,
        when=lambda self: PATH not in self.edits and (self.model.served or self.model.adopted == YES),
        epoch=epochs,
        fate=fates(40),
    )
    def adopt(self, epoch: str, fate: int | None) -> None:
        digest = environment.describe(self.machine.path)["digest"]
        half = self.model.adopted_id if self.model.adopted == HALF else ""  # undone first
        generation = self._next_id(digest, but_for=half)
        number = self._epoch(epoch)
        path = str(self.machine.path)
        self._do(adopt.adopt, number, lambda model: model.adopt(number, generation, digest), fate, path=path)

    @command(3, epoch=epochs, stack=st.integers(0, 2), breaks=st.sampled_from([False, False, True]), fate=fates(45))
    def stage(self, epoch: str, stack: int, breaks: bool, fate: int | None) -> None:  # noqa: FBT001 - drawn
        number = self._epoch(epoch)
        call = self.machine.spec_call(number, stack, breaks=breaks)
        digest = spec.parse(call.stdin.read()).digest
        call.stdin.seek(0)
        generation = self._next_id(digest)
        self._call(stage.stage, call, lambda model: model.stage(number, generation, digest, breaks=breaks), fate)

    @command(2, when=lambda self: self.model.adopted != HALF)
    def verify(self) -> None:
        for name in self.model.generations:
            for full in (False, True):
                predict = partial(Model.verify, generation=name)
                self._do(manifest.verify, None, predict, generation=name, full=full)

    @command(3, epoch=epochs, fate=fates(40))
    def gc(self, epoch: str, fate: int | None) -> None:
        number = self._epoch(epoch)
        self._do(gc.gc, number, lambda model: model.gc(number), fate)

    @command(1, when=lambda self: PATH not in self.edits, epoch=epochs, really=rarely, fate=fates(110))
    def forget(self, epoch: str, really: bool, fate: int | None) -> None:  # noqa: FBT001 - drawn
        number = self._epoch(epoch)
        if really:
            self._do(forget.forget, number, lambda model: model.forget(number), fate)

    # the switch

    @command(
        3,
        when=lambda self: self.model.adopted != NO,
        epoch=epochs,
        pick=picks,
        ttl_s=st.sampled_from([1.0, 60.0, 60.0, 60.0]),
        fate=fates(85),
    )
    def activate(self, epoch: str, pick: int, ttl_s: float, fate: int | None) -> None:
        self._activate(epoch, self._pick_another(pick), ttl_s, 600.0, fate)

    @command(
        6,
        when=lambda self: self.model.adopted == YES and not self.model.pending,
        pick=picks,
        ceiling_s=ceilings,
        fate=fates(85),
    )
    def upgrade(self, pick: int, ceiling_s: float, fate: int | None) -> None:
        """An activate that could well go right."""
        good = [each for each, found in self.model.generations.items() if found.verifies and found.passes]
        others = sorted(each for each in good if each != self.model.current)
        if others:
            self._activate("now", others[pick % len(others)], 60.0, ceiling_s, fate)

    def _activate(self, epoch: str, target: str, ttl_s: float, ceiling_s: float, fate: int | None) -> None:
        number = self._epoch(epoch)
        asked: Json = {**_TIMES, "generation": target, "ttl": ttl_s, "ceiling": ceiling_s}
        self._do(
            activate.activate, number, lambda model: model.activate(number, target, ttl_s, ceiling_s), fate, **asked
        )

    @command(5, when=lambda self: self.model.pending or self.model.last_confirmed, epoch=epochs, fate=fates(11))
    def confirm(self, epoch: str, fate: int | None) -> None:
        number = self._epoch(epoch)
        self._do(confirm.confirm, number, lambda model: model.confirm(number), fate)

    @command(
        4, when=lambda self: self.model.adopted == YES, epoch=epochs, pick=picks, named=st.booleans(), fate=fates(35)
    )
    def rollback(self, epoch: str, pick: int, named: bool, fate: int | None) -> None:  # noqa: FBT001 - drawn
        number = self._epoch(epoch)
        to = self._pick_another(pick) if named else None
        self._do(rollback.rollback, number, lambda model: model.rollback(number, to), fate, to=to)

    @command(5, when=lambda self: self.model.pending, fate=fates(35))
    def timer_looks(self, fate: int | None) -> None:
        self._do(deadman.fire, None, Model.fire, fate)

    @command(3, is_boot=st.booleans(), fate=fates(40))
    def recover(self, is_boot: bool, fate: int | None) -> None:  # noqa: FBT001 - drawn
        self._recover(is_boot=is_boot, fate=fate)

    @command(
        6,
        when=lambda self: self.model.adopted == YES,
        first=st.sampled_from(["upgrade", *_EFFECTS]),
        second=st.sampled_from(["take over", "take over", "renew", "release", *_EFFECTS]),
        at=st.integers(1, 60),
        late_s=st.sampled_from([0.0, 30.0, 61.0]),
    )
    def two_at_once(self, first: str, second: str, at: int, late_s: float) -> None:
        """The second comes, perhaps late, between two effects of the first."""
        epoch, held = self._epoch("now"), self.model.lease.epoch
        upgrade: Json = {**_TIMES, "generation": self._pick_another(1), "ttl": 600.0}
        taking: Json = {"holder": "bob", "run": "r-9", "reason": "", "ttl": 60.0, "take_over": True}
        calls: dict[str, tuple[Callable[[Context], Json], Context]] = {
            "upgrade": (activate.activate, self.machine.call(epoch, **upgrade)),
            "confirm": (confirm.confirm, self.machine.call(epoch)),
            "rollback": (rollback.rollback, self.machine.call(epoch, to=None)),
            "recover": (recover.recover, self.machine.call(boot=False)),
            "timer": (deadman.fire, self.machine.call()),
            "take over": (lease.take, self.machine.call(**taking)),
            "renew": (lease.renew, self.machine.call(held)),
            "release": (lease.release, self.machine.call(held)),
        }
        answers, left = [], []

        def meanwhile() -> None:
            self.clock.now += late_s
            answers.append(self._answer(*calls[second]))
            left.append(self._seen())

        self.clock.now += 2
        answers.append(self._answer(*calls[first], at=1 + at % _EFFECTS[first], meanwhile=meanwhile))
        self._go_on()
        before, between, self.model = self.model, left[0] if left else self.model, self._seen()
        assert_one_after_the_other(before, between, self.model, answers)
        assert_switched_to_what_verifies(before, self.model)

    def _recover(self, *, is_boot: bool, fate: int | None) -> None:
        self._do(recover.recover, None, lambda model: model.recover(at_boot=is_boot), fate, boot=is_boot)

    # what always holds

    @invariant()
    def what_always_holds(self) -> None:
        self._assert_links_lead_to_whole_generations()
        assert (self.machine.path / "pyvenv.cfg").is_file()
        assert (self.machine.path / "bin" / "python").is_file()
        if self.model.pending is not None:
            assert self._now(self.model).is_due() or locks.is_held(self.layout.timer_lock)
        elif self.model.adopted == YES and self.model.served is not None:
            assert self.model.served == self.model.place(str(self.model.current))
        held = self.model.lease
        if held.state == HELD:
            assert self.holders.setdefault(held.epoch, held.run) == held.run

    def _assert_links_lead_to_whole_generations(self) -> None:
        """Each generation has one; `current` and `previous` are among them."""
        complete = {path.parent.name for path in self.layout.generations.glob("[0-9]*/generation.json")}
        links = [self.layout.current, self.layout.previous, *self.layout.links.iterdir()]
        named = [link.readlink().name for link in links if link.is_symlink()]
        assert {each for each in named if named.count(each) > 1} == set()
        assert complete <= set(named)
        assert {str(each) for each in (self.model.current, self.model.previous) if each} <= complete

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self._settle_and_forget()
        finally:
            self.machine.close()
            self.patches.undo()

    def _settle_and_forget(self) -> None:
        """Whatever happened: in the end the host can be settled, put back and left as it was found."""
        self.everybody_leaves()
        self.mend_services()
        while self.originals:
            self.repair(0)
        self.time_passes(90000)
        self.recover(False, None)
        if self.model.lease.state == QUARANTINED:
            self.clear(None)
        if self.model.adopted == YES and self.model.current != self.model.adopted_id:
            first = self.model.adopted_id
            self._do(rollback.rollback, None, lambda model: model.rollback(None, first), to=first)
        assert (self.model.pending, self.model.lease.state == QUARANTINED) == (None, False)
        self.forget("hand", True, None)
        forget.forget(self.machine.ctx)  # what a killed one had left
        assert not self.layout.root.exists()
        assert picture(self.folder) == self.before_cudaup

    # how a command is run and judged

    def _do(
        self,
        verb: Callable[[Context], Json],
        epoch: int | None,
        predict: Callable[[Model], str],
        fate: int | None = None,
        **options: object,
    ) -> None:
        self._call(verb, self.machine.call(epoch, **options), predict, fate)

    def _call(
        self, verb: Callable[[Context], Json], call: Context, predict: Callable[[Model], str], fate: int | None
    ) -> None:
        self.clock.now += 2  # nothing happens in the same second
        before, after = self._now(self.model), self._now(self.model)
        wanted = predict(after)
        files = listing(self.layout.root) if wanted.startswith("refused") else {}
        answer = self._answer(verb, call, at=fate)
        if answer == KILLED and fate and fate % 4 == 0:
            self._tear_journal()
        self._go_on()
        seen = self._seen()
        if answer == KILLED:
            assert_cut_short(before, after, seen, by_hand=call.epoch is None)
            assert status.of(self.machine.ctx)["lease"]["epoch"] == seen.lease.epoch  # it always answers
        else:
            assert answer == wanted
            assert vars(without_times(seen)) == vars(without_times(after))
        if answer == wanted and files:
            changed = {name for name, _found in listing(self.layout.root).items() ^ files.items()}
            assert changed <= ({"journal.jsonl"} if call.epoch is not None else {"journal.jsonl", "lease.json"})
            assert not (changed and answer in FENCED)
        if verb is not adopt.adopt:
            assert_switched_to_what_verifies(before, seen)
        self.model = seen
        for place in self.edits.keys() - {PATH, *seen.generations}:
            del self.edits[place], self.originals[place]

    def _answer(
        self,
        verb: Callable[[Context], Json],
        call: Context,
        *,
        at: int | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> str:
        try:
            with effects_of(self.folder, at, meanwhile):
                return in_words(verb(call))
        except Refused as refusal:
            return f"refused {refusal.code}"
        except Failed as failed:
            return f"failed {failed.code} {failed.data.get('state')}"
        except Killed:
            return KILLED

    def _tear_journal(self) -> None:
        """It was killed in the middle of a line."""
        if self.layout.journal.exists():
            with self.layout.journal.open("ab") as file:
                file.write(b'{"seq": 4, "op": "swi')

    def _go_on(self) -> None:
        """What happens beside the host program: jobs run, a timer with nothing to watch ends, cudaup comes again."""
        while self.systemd.enqueued:
            self.systemd.start(self.systemd.enqueued.pop())
        if not self.layout.transit.exists():
            self.systemd.end_timer()
        for number, left in enumerate(self.layout.root.parent.glob("*.forgotten-*")):
            left.rename(left.with_name(f"cudaup.forgotten-{number + 1}"))  # of another process than the next
        if not self.layout.root.exists():
            self.machine.install()

    # what is there

    def _now(self, model: Model) -> Model:
        """A copy that knows the time."""
        copy = model.copy()
        copy.at, copy.wall = self.clock.now, self.clock.wall()
        copy.boot, copy.booted = self.clock.boot, self.clock.began
        return copy

    def _seen(self) -> Model:
        """The files and processes, read anew; what the host program cannot change is taken over."""
        seen = self.model.copy()
        seen.lease, seen.pending = read_lease(self.layout.lease), read_transit(self.layout.transit)
        seen.current, seen.previous = names(self.layout.current), names(self.layout.previous)
        seen.adopted, seen.adopted_id = self._adoption()
        records = (read(path) for path in self.layout.generations.glob("[0-9]*/generation.json"))
        seen.generations = {record["id"]: self._generation(record) for record in records}
        seen.served = self.machine.runs_in()
        last = ending.last(self.layout)
        is_confirmed = last is not None and last["end"] == ending.CONFIRMED
        seen.last_confirmed = (last["epoch"], last["generation"]) if last and is_confirmed else None
        return seen

    def _generation(self, record: Json) -> Generation:
        is_adopted = record["kind"] == "adopted"
        env = {} if is_adopted else (self.layout.generations / record["id"] / "env").read_text()
        return Generation(
            record["number"],
            record["digest"],
            is_adopted,
            'BREAKS="yes"' in env,
            record["confirmed"],
            bool(record.get("failed")),
            record["proven"] or 0.0,
            frozenset(self.edits.get(PATH if is_adopted else record["id"], ())),
        )

    def _adoption(self) -> tuple[str, str]:
        if not self.layout.adopted.exists():
            return NO, ""
        known = read(self.layout.adopted)
        aside = Path(known["aside"])
        is_in_place = self.machine.path.is_symlink() and aside.is_dir() and not aside.is_symlink()
        return YES if is_in_place else HALF, known["generation"]

    def _note_edits(self) -> None:
        for name, found in self.model.generations.items():
            edits = frozenset(self.edits.get(PATH if found.is_adopted else name, ()))
            self.model.generations[name] = replace(found, edits=edits)

    def _tree(self, place: str) -> Path:
        if place == PATH:
            aside = self.machine.path.with_name(f".{self.machine.path.name}.{self.model.adopted_id}")
            return aside if self.model.adopted == YES else self.machine.path
        return self.layout.generation(place) / "venv"

    def _next_id(self, digest: str, *, but_for: str = "") -> str:
        numbers = [int(path.name[:4]) for path in self.layout.generations.glob("[0-9]*") if path.name != but_for]
        return f"{max(numbers, default=0) + 1:04d}-{digest[:6]}"

    def _epoch(self, choice: str) -> int | None:
        """`now` is who may: the holder, or without one anybody by hand."""
        held = self.model.lease
        now = held.epoch if held.state == HELD else None
        return {"now": now, "hand": None, "old": held.epoch - 1, "future": held.epoch + 1}[choice]

    def _pick_another(self, pick: int) -> str:
        """Than the current one, mostly."""
        others = sorted(each for each in self.model.generations if each != self.model.current)
        return others[pick % len(others)] if others and pick else str(self.model.current)

    def _pick_place(self, pick: int) -> str:
        places = [PATH, *sorted(each for each in self.model.generations if each != self.model.adopted_id)]
        return places[pick % len(places)]


_first, _end = os.environ.get("CUDAUP_SEEDS", "0-60").split("-")
_SETTINGS = settings(
    # One as simple as can be, and one at random. With more, most would only vary the first one at random.
    max_examples=2,
    stateful_step_count=50,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("number", range(int(_first), int(_end)))
def test_the_host_program_does_what_its_model_does(number: int) -> None:
    run_state_machine_as_test(seed(number)(HostProgram), settings=_SETTINGS)
