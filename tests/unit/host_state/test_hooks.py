"""The stack's own commands, on every way through a switch; and which units belong to it."""

import sys
from typing import Any

import pytest
from tests.unit.host_state.machine import TIMES, Machine

from cudaup.host import (
    activate,
    confirm,
    deadman,
    generations,
    health,
    hooks,
    lease,
    recover,
    rollback,
    services,
    status,
    transit,
)
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.services import Affected
from cudaup.host.systemd import UnitState, never

NEW = "0002-abcdef"
NAMES = ("drain", "stop", "start", "bench", "undrain")


def log_of(machine: Machine) -> list[str]:
    """Which hooks ran since the last time somebody looked, each with the generation it ran on."""
    log = machine.folder / "hooks.log"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def all_hooks(machine: Machine, **scripts: str) -> Json:
    """Every one notes that it ran."""
    note = f"echo $0 $CUDAUP_GENERATION >>{machine.folder}/hooks.log"
    commands = {name: ["sh", "-c", f"{note}; {scripts.get(name, '')}", name] for name in NAMES}
    return {name: {"command": command, "timeout_s": 20} for name, command in commands.items()}


def order(machine: Machine, wanted: Json, epoch: int | None = None) -> Context:
    return machine.call(epoch, **{"generation": NEW, **TIMES, "hooks": wanted})


def activated(machine: Machine, **scripts: str) -> int:
    machine.stage(NEW)
    epoch = machine.take_lease()
    activate.activate(order(machine, all_hooks(machine, **scripts), epoch))
    return epoch


def test_each_hook_has_its_place_and_a_rollback_uses_what_was_recorded(machine: Machine, adopted: str) -> None:
    epoch = activated(machine)
    assert log_of(machine) == [f"drain {adopted}", f"stop {adopted}", f"start {NEW}", f"bench {NEW}"]
    confirm.confirm(machine.call(epoch))
    assert log_of(machine) == [f"undrain {NEW}"]
    rollback.rollback(machine.call(epoch, to=None))
    back = [f"stop {NEW}", f"start {adopted}", f"undrain {adopted}"]
    assert log_of(machine) == back
    rollback.rollback(machine.call(epoch, to=NEW))  # what was adopted has no hooks of its own
    assert log_of(machine) == [f"stop {adopted}", f"start {NEW}", f"undrain {NEW}"]


def test_a_failed_drain_is_undone_and_refused(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    pid = machine.systemd.show("ml.service").pid
    epoch = machine.take_lease()
    with pytest.raises(Refused, match="hook drain: exit code 3: still 2 requests") as refusal:
        activate.activate(order(machine, all_hooks(machine, drain="echo still 2 requests >&2; exit 3"), epoch))
    assert refusal.value.code == "drain"
    assert log_of(machine) == [f"drain {adopted}", f"undrain {adopted}"]
    assert (machine.systemd.show("ml.service").pid, machine.ctx.layout.transit.exists()) == (pid, False)
    assert status.of(machine.ctx)["last_end"]["end"] == "refused"
    assert lease.read(machine.ctx.layout).state == "held"  # by its run, which gives it back


def test_a_drain_that_cannot_be_undone_is_a_way_back_that_is_not_proven(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    epoch = machine.take_lease()
    with pytest.raises(Failed) as failed:
        activate.activate(order(machine, all_hooks(machine, drain="exit 3", undrain="exit 4"), epoch))
    assert (failed.value.data["state"], failed.value.data["failed_step"]) == ("reverted-unproven", "drain")
    assert lease.read(machine.ctx.layout).state == "quarantined"
    assert machine.served_from() == f".ml-env.{adopted}"


@pytest.mark.parametrize("name", ["stop", "start", "bench"])
def test_a_failed_hook_puts_everything_back(machine: Machine, adopted: str, name: str) -> None:
    machine.stage(NEW)
    on_new = f"if [ $CUDAUP_GENERATION = {NEW} ]; then exit 1; fi"
    scripts = {name: "test -e $CUDAUP_ROOT/../stopped || { touch $CUDAUP_ROOT/../stopped; exit 1; }"}
    wanted = all_hooks(machine, **(scripts if name == "stop" else {name: on_new}))
    with pytest.raises(Failed) as failed:
        activate.activate(order(machine, wanted, machine.take_lease()))
    assert (failed.value.code, failed.value.data["state"]) == ("hook", "reverted-proven")
    assert log_of(machine)[-2:] == [f"start {adopted}", f"undrain {adopted}"]
    assert machine.served_from() == f".ml-env.{adopted}"


def test_no_failed_hook_stops_the_way_back(machine: Machine, adopted: str) -> None:
    epoch = activated(machine, stop=f"[ $CUDAUP_GENERATION = {adopted} ]", undrain="exit 5")
    answer = rollback.rollback(machine.call(epoch, to=None))
    assert answer["state"] == "rolled-back-unproven"
    assert answer["problems"] == ["hook stop: exit code 1", "hook undrain: exit code 5"]
    assert machine.served_from() == f".ml-env.{adopted}"


def test_a_host_whose_services_do_not_run_stays_drained(machine: Machine, adopted: str) -> None:
    activated(machine)
    machine.systemd.broken_on = "-" + adopted.split("-")[1]
    with pytest.raises(Failed):
        rollback.rollback(machine.call(to=None))
    assert log_of(machine)[-2:] == [f"stop {NEW}", f"start {adopted}"]


def test_a_host_that_cannot_be_undrained_is_not_confirmed(machine: Machine, adopted: str) -> None:
    epoch = activated(machine, undrain=f"[ $CUDAUP_GENERATION = {adopted} ]")
    with pytest.raises(Refused, match="hook undrain: exit code 1") as refusal:
        confirm.confirm(machine.call(epoch))
    assert (refusal.value.code, machine.ctx.layout.transit.exists()) == ("not-verified", True)
    assert rollback.rollback(machine.call(epoch, to=None))["state"] == "rolled-back-proven"


class Killed(BaseException):
    """What SIGKILL is to a process: nothing after it runs."""


def test_a_confirm_killed_after_the_undrain_is_put_back_by_the_timer(
    machine: Machine, adopted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = activated(machine)

    def die(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr("cudaup.host.generations.update", die)
    with pytest.raises(Killed):
        confirm.confirm(machine.call(epoch))
    monkeypatch.undo()
    machine.clock.now += 60
    assert deadman.fire(machine.ctx)["state"] == "reverted-proven"
    assert log_of(machine)[-1] == f"undrain {adopted}"


def test_an_undrain_that_outlasts_the_deadline_confirms_nothing(machine: Machine, adopted: str) -> None:
    assert adopted
    epoch = activated(machine, undrain="sleep 30")
    pending = transit.read(machine.ctx.layout)
    assert pending is not None
    machine.clock.now = pending.deadline - 0.5
    left = machine.clock.monotonic

    def runs_on() -> float:
        machine.clock.now += 0.05
        return left()

    machine.clock.monotonic = runs_on  # type: ignore[method-assign]
    with pytest.raises(Refused, match="stopped on request"):
        confirm.confirm(machine.call(epoch))
    assert machine.ctx.layout.transit.exists()


def test_a_bug_in_the_middle_of_a_switch_does_not_leave_the_service_down(
    machine: Machine, adopted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = health.require, []

    def require(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("a bug")
        real(*arguments)

    monkeypatch.setattr(health, "require", require)
    machine.stage(NEW)
    with pytest.raises(RuntimeError, match="a bug"):
        activate.activate(order(machine, {}, machine.take_lease()))
    assert (machine.served_from(), machine.ctx.layout.transit.exists()) == (f".ml-env.{adopted}", False)


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        ({"reload": {"command": ["true"], "timeout_s": 1}}, "usage", "no hook: `reload`"),
        ({"bench": {"command": ["true"]}}, "usage", "no hook: `bench`"),
        ({"bench": {"command": [], "timeout_s": 1}}, "usage", "no hook: `bench`"),
        ({"bench": {"command": ["/opt/absent"], "timeout_s": 1}}, "not-found", "bench: `/opt/absent`"),
        ({"bench": {"command": [__file__], "timeout_s": 1}}, "not-found", "bench: "),  # no program
    ],
)
def test_what_could_not_run_is_refused_before_anything_stops(
    machine: Machine, adopted: str, wanted: Json, code: str, text: str
) -> None:
    assert adopted
    machine.stage(NEW)
    with pytest.raises(Refused, match=text) as refusal:
        activate.activate(order(machine, wanted, machine.take_lease()))
    assert (refusal.value.code, machine.systemd.timers) == (code, [])


def test_hooks_see_the_same_whoever_calls(machine: Machine, adopted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/somewhere/else")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 22")
    seen = machine.folder / "seen"
    dump = f"import json, os; open({str(seen)!r}, 'w').write(' '.join(sorted(os.environ)) + ' ' + os.getcwd())"
    hooks.run(machine.ctx, {"bench": {"command": [sys.executable, "-c", dump], "timeout_s": 20}}, "bench", never)
    assert seen.read_text().split() == ["CUDAUP_GENERATION", "CUDAUP_ROOT", "HOME", "LANG", "PATH", "/"]
    assert generations.current_id(machine.ctx.layout) == adopted


def test_a_start_hook_alone_has_to_bring_something_up_from_the_path(machine: Machine, adopted: str) -> None:
    machine.systemd.stop("ml.service")
    machine.systemd.settings["ml.service"] = {"file_state": "disabled"}
    machine.stage(NEW)
    with pytest.raises(Failed, match=f"`hook start`: nothing runs from {NEW}") as failed:
        activate.activate(order(machine, all_hooks(machine), machine.take_lease()))
    assert failed.value.data["failed_step"] == "live-proof"
    assert generations.current_id(machine.ctx.layout) == adopted


def test_the_timer_lets_a_revert_take_what_the_stack_allows() -> None:
    checked = {"http": {"url": "http://127.0.0.1/", "timeout_s": 600.0}}
    wanted = {name: {"command": ["true"], "timeout_s": 100.0} for name in ("stop", "start")}
    pending = transit.Transit("1", "2", None, 1, "b", 0, 0, "armed", (), (), 1, {}, checked, wanted)
    assert pending.longest_s() == 800.0


@pytest.mark.parametrize("boot", [True, False])
def test_without_systemd_recovery_waits_for_nobody(
    machine: Machine,
    adopted: str,
    monkeypatch: pytest.MonkeyPatch,
    boot: bool,  # noqa: FBT001
) -> None:
    activated(machine)
    log_of(machine)
    machine.clock.reboot()
    monkeypatch.setattr(machine.systemd, "is_running", lambda: False)
    assert recover.recover(machine.call(boot=boot))["state"] == "reverted-proven"
    assert log_of(machine) == [f"stop {NEW}", f"start {adopted}", f"undrain {adopted}"]


STAYS_DOWN: list[tuple[dict[str, Any], bool]] = [
    ({"active": "inactive", "file_state": "disabled"}, True),
    ({"active": "inactive", "file_state": "enabled"}, False),
    ({"active": "inactive", "file_state": "static"}, False),
    ({"active": "inactive", "file_state": "static", "triggers": ("ml.socket",)}, True),
    ({"active": "inactive", "file_state": "enabled", "triggers": ("ml.socket",)}, False),
    ({"active": "inactive", "is_job": True, "file_state": "enabled"}, True),
    ({"active": "failed", "file_state": "disabled"}, False),
    ({"active": "failed", "file_state": "masked", "can_start": False}, True),
    ({"active": "active", "file_state": "disabled"}, False),
    ({"active": "activating", "file_state": "disabled"}, False),
]


@pytest.mark.parametrize(("shown", "expected"), STAYS_DOWN)
def test_which_units_are_down_on_purpose(shown: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - a table
    assert UnitState(pid=0, fragment=None, **shown).stays_down is expected


UP = {"active": "active"}


def test_all_that_stops_along_is_known_before_it_stops(machine: Machine, adopted: str) -> None:
    machine.systemd.settings = {
        "ml.service": {"dependents": ("proxy.service", "idle.service"), "triggers": ("ml.socket", "ml.path")},
        "proxy.service": {**UP, "dependents": ("edge.service", "ml.service")},
        "edge.service": UP,
        "ml.socket": UP,
    }
    found = services.affected(machine.ctx, adopted, {})
    assert found == Affected(("ml.service",), ("ml.socket", "ml.service", "proxy.service", "edge.service"), ())


def test_nobody_else_starts_a_service_between_stop_and_start(machine: Machine, adopted: str) -> None:
    assert adopted
    services.stop(machine.ctx, ["ml.service"])
    assert machine.systemd.start("ml.service").text == "Assertion failed on job for ml.service."
    services.start(machine.ctx, ["ml.service"])
    assert machine.systemd.show("ml.service").active == "active"
