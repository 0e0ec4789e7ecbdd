"""One experiment: a command, a fault at one write of a journal, and what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Self

from tests.lab.sweep.controller import Controller
from tests.lab.sweep.faults import Fault
from tests.lab.sweep.judging import Story, judge, state_of
from tests.lab.sweep.scenarios import SCENARIOS, Command, Scenario, unknown
from tests.lab.sweep.station import HOST, TIMERS, Snapshot, Station
from tests.waiting import eventually

from cudaup.app.rollback import LEASE_TTL_S

QUIET_S = 1.0  # nothing pending and nobody at work for so long
POINT_LIMIT_S = 90.0
END_LIMIT_S = 300.0
SERVES_WITHIN_S = 30.0
LEASE_S = LEASE_TTL_S + 30.0  # of a rollback; it is longer than the others
CEILING_S = TIMERS["ceiling_s"] + 30.0  # and the way back itself, on a machine that is busy with other hosts
_POLL_S = 0.05
_EVERY_NTH_WITH_ANSIBLE = 10


@dataclass(frozen=True, kw_only=True)
class Case:
    scenario: str
    point: str
    fault: Fault

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        scenario, point, fault = text.split(":")
        return cls(scenario=scenario, point=point.replace("/", " "), fault=Fault(fault))

    def __str__(self) -> str:
        return f"{self.scenario}:{self.point.replace(' ', '/')}:{self.fault}"


@dataclass
class Result:
    """`words` are the host's outcome as it was told, `state` is what the host says of itself; `told` is the plan."""

    name: str
    words: str = ""
    state: str = ""
    settled_s: float = 0.0
    wall_s: float = 0.0
    bad: list[str] = field(default_factory=list)
    said: str = ""
    told: str = ""


class Trial:
    """The frame of an experiment: a command is interrupted by `suffer`, then the host is judged and used again."""

    def __init__(self, station: Station, scenario: Scenario, name: str) -> None:
        self.station, self.scenario, self.result = station, scenario, Result(name)
        self.was_booted = False
        self.was_in_transit = False

    def run(self) -> Result:
        """Raise nothing: what goes wrong with the experiment itself is bad too."""
        begin = time.monotonic()
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on and it is named
            self.result.bad.append(f"the experiment broke off: {type(error).__name__}: {error}")
        self.result.bad += self.station.watcher.bad
        self.result.wall_s = time.monotonic() - begin
        return self.result

    def begin(self, before: Snapshot, target: str) -> Command:
        return self.scenario.start(self.station, before, target)

    def suffer(self, command: Command) -> None:
        """Until the command and the host have both come to an end."""
        raise NotImplementedError

    def _run(self) -> None:
        station, scenario = self.station, self.scenario
        station.watcher.forget_the_past()
        scenario.prepare(station)
        before = self._calm()
        target = scenario.target(before.variant)
        command = self.begin(before, target)
        try:
            self.suffer(command)
            after = self._calm()
        finally:
            command.kill()
            self.result.said = command.said()
        self._judge(before, after, target, command.words())
        self._go_on()

    def _calm(self) -> Snapshot:
        """Once the service has been seen to answer."""
        eventually(lambda: self.station.look()["service"] is not None, "the service answers", SERVES_WITHIN_S)
        return self.station.snapshot()

    def _judge(self, before: Snapshot, after: Snapshot, target: str, words: str) -> None:
        story = Story(
            before=before,
            after=after,
            target=target,
            is_rollback=self.scenario.is_rollback,
            words=words,
            was_in_transit_when_said=self.was_in_transit,
            was_booted=self.was_booted,
        )
        self.result.words, self.result.state = words or "killed", state_of(story)
        self.result.bad += judge(story)
        self.result.bad += [f"`{op}` is journalled, and no point yet" for op in unknown(self.station.look()["written"])]

    def _go_on(self) -> None:
        """Whatever happened, the next `apply` works."""
        station = self.station
        station.watcher.ask("disarm")
        if station.snapshot().is_quarantined:
            station.ask("lease", "clear")
        eventually(lambda: station.snapshot().is_takeable, "nobody's lease is in the way", LEASE_S)
        target = "b" if station.snapshot().variant == "a" else "a"
        number = next(station.followups)
        command = station.apply(f"{target}, patiently", with_ansible=number % _EVERY_NTH_WITH_ANSIBLE == 0)
        assert command.wait(END_LIMIT_S), "the next apply does not end"
        words, now = command.words(), self._calm()
        if (words, now.variant, now.service) != ("applied", target, target):
            self.result.bad.append(f"the next apply: {words}; on `{now.variant}`, serving `{now.service}`")
            self.result.said += command.said()

    def inflict(self, fault: Fault, command: Command, pid: int = 0) -> None:
        """`pid` is of the host program's process to kill; 0 is all of them."""
        self.was_booted = self.was_booted or fault.is_a_boot
        if fault is Fault.KILL_CONTROLLER:
            command.kill()
        elif fault is Fault.KILL_PROGRAM:
            self.station.watcher.ask("kill", pid=pid)
        else:
            self.station.lab.fault(HOST, fault)

    def end(self, command: Command) -> None:
        assert command.wait(END_LIMIT_S), f"the command did not end within {END_LIMIT_S:.0f} s"
        self.was_in_transit = self.station.look()["in_transit"]

    def settle(self) -> None:
        """By itself, within its ceiling."""
        end, quiet_since = time.monotonic() + CEILING_S, 0.0
        while not quiet_since or time.monotonic() - quiet_since < QUIET_S:
            is_quiet = self.station.look()["is_quiet"]
            now = time.monotonic()
            quiet_since = (quiet_since or now) if is_quiet else 0.0
            assert quiet_since or now < end, f"not settled within {CEILING_S:.0f} s"
            time.sleep(_POLL_S)


class Experiment(Trial):
    def __init__(self, station: Station, case: Case) -> None:
        super().__init__(station, SCENARIOS[case.scenario], str(case))
        self._case = case

    def begin(self, before: Snapshot, target: str) -> Command:
        scenario, watcher, case = self.scenario, self.station.watcher, self._case
        prelude = scenario.prelude
        if scenario.is_of_run:
            watcher.arm()
            is_plain = case.fault in {Fault.KILL_CONTROLLER, Fault.CUT}
            return scenario.start(self.station, before, target, hold_at=case.point, with_ansible=is_plain)
        watcher.arm(prelude.point if prelude else case.point)
        command = super().begin(before, target)
        if prelude:
            self._await_point(command)
            watcher.arm(case.point, next_boot=prelude.fault.is_a_boot)
            self._strike(prelude.fault, command)
        return command

    def suffer(self, command: Command) -> None:
        self._await_point(command)
        self.station.watcher.ask("disarm")
        fault = self._case.fault
        self._strike(fault, command)
        begin = time.monotonic()
        if fault is Fault.READONLY:
            self._serve_read_only()
            begin = time.monotonic()
        else:
            if not fault.is_of_network:
                self.end(command)
            self.settle()
        if fault.undo:
            self.station.lab.fault(HOST, fault.undo)
        if fault is not Fault.READONLY:
            self.result.settled_s = time.monotonic() - begin - QUIET_S
        self.end(command)
        self.settle()
        if fault is Fault.READONLY:
            self.result.settled_s = time.monotonic() - begin - QUIET_S

    def _await_point(self, command: Command) -> None:
        """Raises AssertionError when it never comes."""
        what = f"{self._case} is reached"
        eventually(lambda: self._is_at_point(command) or command.has_ended(), what, POINT_LIMIT_S)
        if not self._is_at_point(command):  # after a kill or a reboot the host goes on without its command
            eventually(lambda: self._is_at_point(command), what, TIMERS["ttl_s"] + SERVES_WITHIN_S)

    def _is_at_point(self, command: Command) -> bool:
        if self.scenario.is_of_run:
            return isinstance(command, Controller) and command.is_held()
        self.station.watcher.revive()
        return self.station.watcher.reached is not None

    def _strike(self, fault: Fault, command: Command) -> None:
        """While somebody waits at the point; then they go on, if they still can."""
        watcher = self.station.watcher
        reached: dict[str, Any] = watcher.reached or {}
        self.inflict(fault, command, reached.get("pid", 0))
        watcher.reached = None
        if self.scenario.is_of_run and isinstance(command, Controller):
            command.go_on()
        elif not fault.is_a_boot:  # whoever waits after one waits for something else
            watcher.ask("go")

    def _serve_read_only(self) -> None:
        """Nothing can be recorded, so it cannot settle; but no service stays down for it."""
        time.sleep(QUIET_S)
        eventually(lambda: self.station.look()["service"] is not None, "it serves, read-only", SERVES_WITHIN_S)
