"""activate, confirm, the timer, rollback and recover, with a service that really runs."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.host_state.machine import TIMES, Machine, states

from cudaup.host import (
    activate,
    adopt,
    confirm,
    deadman,
    fence,
    generations,
    lease,
    manifest,
    proof,
    recover,
    rollback,
    status,
    transit,
)
from cudaup.host.journal import Journal
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Failed, Json, Refused

NEW = "0002-abcdef"


def order(machine: Machine, epoch: int | None, **changes: object) -> Context:
    return machine.call(epoch, **{"generation": NEW, **TIMES, **changes})


def activated(machine: Machine) -> int:
    """The new generation runs and waits for its confirmation; returns the epoch."""
    machine.stage(NEW)
    epoch = machine.take_lease()
    activate.activate(order(machine, epoch))
    return epoch


def failure(machine: Machine, epoch: int | None, **changes: object) -> Failed:
    with pytest.raises(Failed) as raised:
        activate.activate(order(machine, epoch, **changes))
    return raised.value


def assert_old_stack(machine: Machine, adopted: str, *, state: str = "held") -> None:
    """P1: everything is as before the activate."""
    layout = machine.ctx.layout
    assert (generations.current_id(layout), generations.previous_id(layout)) == (adopted, None)
    assert machine.served_from() == f".ml-env.{adopted}"
    assert not layout.transit.exists()
    assert lease.read(layout).state == state


def test_the_new_stack_runs_and_stays_once_confirmed(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    shutil.rmtree(machine.systemd.unit_dir / "ml.service.d")  # somebody tidied up since the adopt
    epoch = machine.take_lease()
    answer = activate.activate(order(machine, epoch))

    assert states(answer) == ("awaiting-confirm", adopted, NEW)
    assert [case["verdict"] for case in answer["baseline"] + answer["smoke"]] == ["pass", "pass"]
    assert [proof["unit"] for proof in answer["live"]] == ["ml.service"]
    assert machine.served_from() == NEW
    environ = Path(f"/proc/{machine.systemd.show('ml.service').pid}/environ").read_text()
    assert f"CUDA_HOME={machine.ctx.layout.generation(NEW)}/cuda" in environ.split("\0")

    assert confirm.confirm(machine.call(epoch)) == {"state": "confirmed", "generation": NEW}
    seen = status.of(machine.ctx)
    assert (seen["transit"], seen["current"]["confirmed"], seen["previous"]["id"]) == (None, True, adopted)
    assert seen["services"][0]["active"] == "active"
    assert confirm.confirm(machine.call(epoch)) == {"state": "confirmed", "generation": NEW}  # its answer got lost
    lease.release(machine.call(epoch))
    with pytest.raises(Refused, match="nothing waits"):  # it was not this run that confirmed
        confirm.confirm(machine.call(machine.take_lease("r-2")))


def test_activating_what_runs_already_changes_nothing(machine: Machine, adopted: str) -> None:
    answer = activate.activate(order(machine, None, generation=adopted))
    assert answer == {"state": "unchanged", "generation": adopted}
    assert machine.systemd.timers == []


def test_a_failed_smoke_never_reaches_the_service(machine: Machine, adopted: str) -> None:
    machine.stage(NEW, breaks=True)
    epoch = machine.take_lease()
    failed = failure(machine, epoch)

    assert (failed.code, failed.data["state"], failed.data["failed_step"]) == ("smoke", "reverted-proven", "smoke")
    assert [case["verdict"] for case in failed.data["smoke"] + failed.data["after"]] == ["fail", "pass"]
    assert_old_stack(machine, adopted)
    journal = [entry["detail"].get("error", "") for entry in Journal(machine.ctx.layout).entries()]
    assert "the smoke of 0002-abcdef does not pass" in journal[-1]


def evidence(machine: Machine) -> Json:
    found: Json = json.loads((machine.ctx.layout.failed / f"{NEW}.json").read_text())
    return found


@pytest.mark.parametrize("said_s_ago", [10, 3 * 86400])
def test_the_evidence_tells_what_was_tried_and_what_was_said(machine: Machine, adopted: str, said_s_ago: int) -> None:
    assert adopted
    machine.stage(NEW, breaks=True)
    machine.systemd.said_at = machine.clock.wall() - said_s_ago
    failure(machine, machine.take_lease())
    found = evidence(machine)
    assert (found["generation"], found["verdict"], found["log"]) == (NEW, "proven", "log of ml.service")
    assert found["why"].startswith(f"smoke: the smoke of {NEW} does not pass: record is fail")
    assert found["record"]["packages"] == {"demo": "2.0"}
    (case,) = found["record"]["smoke"]["cases"]
    assert (case["case"], case["verdict"], "demo.py: changed" in case["reason"]) == ("record", "fail", True)


def test_a_service_that_does_not_start_is_put_back(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    machine.systemd.broken_on = NEW
    failed = failure(machine, machine.take_lease())
    assert (failed.data["failed_step"], failed.data["state"]) == ("start", "reverted-proven")
    assert_old_stack(machine, adopted)


def healthy_but_on(generation: str, machine: Machine, *, then: str = "false") -> Json:
    check = f"readlink {machine.ctx.layout.current} | grep -q {generation} || exit 0; {then}"
    return {"command": ["sh", "-c", check], "timeout_s": 3}


def test_a_health_check_that_the_old_stack_does_not_pass_stops_nothing(machine: Machine, adopted: str) -> None:
    """A typo in it would cost an outage, and the way back its proof."""
    machine.stage(NEW)
    pid = machine.systemd.show("ml.service").pid
    with pytest.raises(Refused, match="before the switch: not healthy") as refusal:
        activate.activate(order(machine, machine.take_lease(), health=healthy_but_on(adopted, machine)))
    assert (refusal.value.code, machine.systemd.show("ml.service").pid, machine.systemd.timers) == (
        "unhealthy",
        pid,
        [],
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"suite": {}},
        {"suite": {"cases": ["no-such-case"]}},
        {"suite": {"cases": ["record"], "limits": {"record": "x"}}},
        {"health": {"foo": 1}},
        {"health": {"command": "true"}},
        {"health": {"http": {"url": "ftp://x"}}},
        {"health": {"http": {"url": "http://127.0.0.1:99999/"}}},
        {"health": {"http": {"url": "http://x", "timeout_s": "x"}}},
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_stops(
    machine: Machine, adopted: str, wrong: dict[str, object]
) -> None:
    machine.stage(NEW)
    pid = machine.systemd.show("ml.service").pid
    with pytest.raises(Refused) as refusal:
        activate.activate(order(machine, machine.take_lease(), **wrong))
    assert (refusal.value.code, machine.systemd.show("ml.service").pid, machine.systemd.timers) == ("usage", pid, [])
    assert generations.current_id(machine.ctx.layout) == adopted


def test_bad_health_is_put_back(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    failed = failure(machine, machine.take_lease(), health=healthy_but_on(NEW, machine))
    assert (failed.code, failed.data["failed_step"], failed.data["state"]) == ("health", "health", "reverted-proven")
    assert_old_stack(machine, adopted)


def test_a_service_that_still_runs_the_old_stack_is_found_out(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    old = machine.folder / f".ml-env.{adopted}"
    machine.systemd.commands["ml.service"] = [str(old / "bin" / "python"), str(old / "serve.py")]
    failed = failure(machine, machine.take_lease())
    assert (failed.code, failed.data["failed_step"], failed.data["state"]) == (
        "live-proof",
        "live-proof",
        "reverted-proven",
    )
    assert f"still uses argument {old}" in failed.text
    assert_old_stack(machine, adopted)


def test_when_the_way_back_is_broken_too_the_host_is_quarantined(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    machine.systemd.broken_on = "-" + adopted.split("-")[1]
    machine.clock.now += 5
    failed = failure(machine, machine.take_lease(), health=healthy_but_on(NEW, machine))
    assert failed.data["state"] == "revert-failed"
    held = lease.read(machine.ctx.layout)
    assert (held.state, "broken here" in held.reason) == ("quarantined", True)
    assert generations.current_id(machine.ctx.layout) == adopted
    with pytest.raises(Refused) as refusal:
        rollback.rollback(machine.call(to=NEW))
    assert refusal.value.code == "quarantined"


def test_nobody_renews_so_the_activate_reverts_by_itself(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    failed = failure(machine, machine.take_lease(), ttl=0.5)  # less than it takes for the service to prove itself
    assert (failed.code, failed.data["state"]) == ("abandoned", "reverted-proven")
    assert_old_stack(machine, adopted)


def test_another_holder_ends_an_activate_under_way(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    epoch = machine.take_lease(ttl_s=0)
    lease_file = machine.ctx.layout.lease
    health = healthy_but_on(
        NEW, machine, then=f'sed -i \'s/"epoch": {epoch}/"epoch": {epoch + 1}/\' {lease_file}; false'
    )
    failed = failure(machine, epoch, health=health)
    assert (failed.code, failed.data["failed_step"], generations.current_id(machine.ctx.layout)) == (
        "abandoned",
        "health",
        adopted,
    )


@pytest.mark.parametrize("breakage", ["current", "target", "foreign"])
def test_nothing_is_disturbed_before_the_way_back_is_verified(machine: Machine, adopted: str, breakage: str) -> None:
    machine.stage(NEW)
    pid = machine.systemd.show("ml.service").pid
    if breakage == "foreign":
        machine.systemd.commands["other"] = machine.systemd.commands["ml.service"]
        machine.systemd.start("other")
        machine.systemd.running["ssh.service"] = machine.systemd.running.pop("other")  # a login shell's, say
    else:
        edited = adopted if breakage == "current" else NEW
        (generations.tree(machine.ctx.layout, edited) / "pyvenv.cfg").write_text("home = /edited\n")
    with pytest.raises(Refused) as refusal:
        activate.activate(order(machine, machine.take_lease()))
    assert refusal.value.code == ("busy" if breakage == "foreign" else "not-verified")
    assert (machine.systemd.show("ml.service").pid, machine.systemd.timers) == (pid, [])
    assert not machine.ctx.layout.transit.exists()


def test_the_timer_fires_when_renewals_stop_and_a_late_confirm_learns_it(machine: Machine, adopted: str) -> None:
    epoch = activated(machine)
    machine.clock.now += 30
    lease.renew(machine.call(epoch))
    machine.clock.now += 59
    assert deadman.fire(machine.ctx) == {}  # renewed: not due
    assert machine.served_from() == NEW
    machine.clock.now += 1
    assert deadman.fire(machine.ctx)["state"] == "reverted-proven"
    assert_old_stack(machine, adopted)

    for _ in range(2):
        with pytest.raises(Refused) as refusal:
            confirm.confirm(machine.call(epoch))
        assert refusal.value.code == "not-found"
    assert deadman.run(machine.ctx) == {"state": "settled"}


def test_renewals_do_not_reach_past_the_ceiling(machine: Machine, adopted: str) -> None:
    epoch = activated(machine)
    for _ in range(20):
        machine.clock.now += 30
        lease.renew(machine.call(epoch))
    with pytest.raises(Refused, match="too late"):
        confirm.confirm(machine.call(epoch))
    assert deadman.fire(machine.ctx)["state"] == "reverted-proven"
    assert_old_stack(machine, adopted)


def test_confirm_is_refused_when_the_service_died_meanwhile(machine: Machine, adopted: str) -> None:
    epoch = activated(machine)
    machine.systemd.stop("ml.service")
    with pytest.raises(Refused, match=r"ml\.service") as refusal:
        confirm.confirm(machine.call(epoch))
    assert (refusal.value.code, machine.ctx.layout.transit.exists()) == ("not-verified", True)
    assert adopted


def test_a_live_transit_is_nobody_elses_business(machine: Machine, adopted: str) -> None:
    epoch = activated(machine)
    calls: tuple[Callable[[], Json], ...] = (
        lambda: recover.recover(machine.call(boot=False)),
        lambda: activate.activate(order(machine, epoch, generation=adopted)),
        lambda: lease.release(machine.call(epoch)),
        lambda: rollback.rollback(machine.call(epoch, to=NEW)),
    )
    for call in calls:
        with pytest.raises(Refused) as refusal:
            call()
        assert refusal.value.code == "in-transit"
    assert recover.recover(machine.call(boot=True))["state"] == "in-transit"
    assert machine.served_from() == NEW


def test_a_rollback_by_hand_in_transit_needs_nobodys_lease(machine: Machine, adopted: str) -> None:
    activated(machine)
    answer = rollback.rollback(machine.call(to=None))
    assert states(answer) == ("rolled-back-proven", NEW, adopted)
    assert_old_stack(machine, adopted)


@pytest.mark.parametrize("boot", [True, False])
def test_a_reboot_in_transit_goes_back(machine: Machine, adopted: str, boot: bool) -> None:  # noqa: FBT001 - a parameter
    activated(machine)
    machine.systemd.stop("ml.service")
    machine.clock.reboot()
    answer = recover.recover(machine.call(boot=boot))
    if boot:
        # Its services are ordered behind this very program: waiting for one would never end. The timer does the rest.
        assert (answer["state"], machine.systemd.enqueued) == ("in-transit", ["ml.service"])
        assert generations.current_id(machine.ctx.layout) == adopted
        answer = deadman.fire(machine.ctx)
    assert (answer["state"], machine.systemd.enqueued) == ("reverted-proven", ["ml.service"] if boot else [])
    assert_old_stack(machine, adopted)
    assert recover.recover(machine.call(boot=False)) == {"state": "clean", "actions": []}


def test_a_rollback_after_the_confirmation_and_not_twice(machine: Machine, adopted: str) -> None:
    epoch = activated(machine)
    confirm.confirm(machine.call(epoch))
    asked: Json = {"to": None}
    answer = rollback.rollback(machine.call(epoch, **asked))
    assert states(answer) == ("rolled-back-proven", NEW, adopted)
    assert (machine.served_from(), generations.previous_id(machine.ctx.layout)) == (f".ml-env.{adopted}", NEW)

    with pytest.raises(Refused, match="already rolled back"):
        rollback.rollback(machine.call(epoch, **asked))
    repeated = rollback.rollback(machine.call(epoch, **{**asked, "to": adopted}))
    assert (repeated["state"], repeated["to"]) == ("rolled-back-proven", adopted)
    forwards = rollback.rollback(machine.call(epoch, **{**asked, "to": NEW}))
    assert (forwards["state"], machine.served_from()) == ("rolled-back-proven", NEW)


def test_a_rollback_starts_the_service_that_the_new_stack_had_killed(machine: Machine, adopted: str) -> None:
    """The incident itself: nothing runs from the path any more, and what is wanted is that it serves again."""
    epoch = activated(machine)
    confirm.confirm(machine.call(epoch))
    machine.systemd.stop("ml.service")
    answer = rollback.rollback(machine.call(epoch, to=None))
    assert (answer["state"], machine.served_from()) == ("rolled-back-proven", f".ml-env.{adopted}")
    assert machine.systemd.show("ml.service").active == "active"


def test_an_upgraded_interpreter_is_told_and_proven_by_smoke_but_does_not_close_the_way_back(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unattended upgrades patch it on every host: refusing then would leave all of them without a rollback."""
    python = machine.folder / "python3"
    shutil.copy(Path(sys.executable).resolve(), python)
    (machine.path / "bin" / "python").unlink()
    (machine.path / "bin" / "python").symlink_to(python)
    old = str(adopt.adopt(machine.call(path=str(machine.path)))["generation"])
    epoch = activated(machine)
    confirm.confirm(machine.call(epoch))
    with python.open("ab") as stream:
        stream.write(b"patched")
    told = [{"path": str(python), "problem": "the interpreter changed"}]
    assert manifest.check(machine.ctx.layout, old, full=False)["problems"] == told

    assert rollback.rollback(machine.call(epoch, to=None))["state"] == "rolled-back-proven"
    assert f"{old}: {python}: the interpreter changed" in capsys.readouterr().out
    activate.activate(order(machine, epoch))
    assert f"record on {old}" in capsys.readouterr().out  # the baseline smoke from before the upgrade does not count
    confirm.confirm(machine.call(epoch))
    (generations.tree(machine.ctx.layout, old) / "serve.py").write_text("edited as well")
    with pytest.raises(Refused, match=r"the interpreter changed; venv/serve\.py: changed"):
        rollback.rollback(machine.call(epoch, to=None))


class Killed(BaseException):
    """What SIGKILL is to a process: nothing after it runs."""


def _die(*_: object, **__: object) -> None:
    raise Killed


def test_a_revert_killed_half_way_is_finished_by_the_timer_at_once(
    machine: Machine, adopted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.stage(NEW, breaks=True)
    monkeypatch.setattr("cudaup.host.services.start", _die)
    with pytest.raises(Killed):
        activate.activate(order(machine, machine.take_lease()))
    monkeypatch.undo()
    assert machine.systemd.show("ml.service").active == "inactive"
    assert deadman.fire(machine.ctx)["state"] == "reverted-proven"  # its deadline is not there yet
    assert_old_stack(machine, adopted)


@pytest.mark.parametrize("phase", [transit.ARMED, transit.STOPPED, transit.SWITCHED])
def test_an_activate_killed_in_any_phase_is_settled_by_the_timer(
    machine: Machine, adopted: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.stage(NEW)
    _die_after(monkeypatch, phase)
    with pytest.raises(Killed):
        activate.activate(order(machine, machine.take_lease()))
    monkeypatch.undo()
    pending = transit.read(machine.ctx.layout)
    assert pending is not None
    assert pending.phase == phase
    machine.clock.now = pending.deadline
    assert deadman.fire(machine.ctx)["state"] == "reverted-proven"
    assert_old_stack(machine, adopted)


def test_a_rollback_killed_half_way_is_finished_by_the_timer_at_once(
    machine: Machine, adopted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = activated(machine)
    confirm.confirm(machine.call(epoch))
    monkeypatch.setattr("cudaup.host.services.start", _die)
    with pytest.raises(Killed):
        rollback.rollback(machine.call(epoch, to=None))
    monkeypatch.undo()
    assert deadman.fire(machine.ctx)["state"] == "reverted-proven"
    assert (machine.served_from(), generations.current_id(machine.ctx.layout)) == (f".ml-env.{adopted}", adopted)


def test_what_is_done_is_not_refused_for_a_record_that_cannot_be_written(
    machine: Machine, adopted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on a disk gone read-only right after the way back: proven, and told as `refused: nothing was changed`."""
    epoch = activated(machine)
    confirm.confirm(machine.call(epoch))
    lease.release(machine.call(epoch))
    done = Journal.done

    def done_while_in_transit(journal: Journal, seq: int, detail: Json | None = None) -> None:
        if ("transit-end", epoch + 1) in {(each["op"], each["epoch"]) for each in journal.entries()}:
            raise OSError(errno.EROFS, "Read-only file system")
        done(journal, seq, detail)

    monkeypatch.setattr(Journal, "done", done_while_in_transit)
    assert rollback.rollback(machine.call(None, to=None))["state"] == "rolled-back-proven"
    assert generations.current_id(machine.ctx.layout) == adopted


def test_a_renewal_under_way_does_not_bring_an_ended_transit_back(
    machine: Machine, adopted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen once in a thousand: confirmed, told as applied, and put back by a timer that found a transit again."""
    epoch = activated(machine)
    read, update, has_read = transit.read, generations.update, threading.Event()

    def read_and_linger(layout: Layout) -> transit.Transit | None:
        found = read(layout)
        has_read.set()
        time.sleep(0.3)
        return found

    with ThreadPoolExecutor() as pool:

        def update_while_renewing(*args: Any, **changes: Any) -> None:
            update(*args, **changes)
            monkeypatch.setattr("cudaup.host.transit.read", read_and_linger)
            pool.submit(lease.renew, machine.call(epoch))
            assert has_read.wait(5)

        monkeypatch.setattr("cudaup.host.generations.update", update_while_renewing)
        assert confirm.confirm(machine.call(epoch))["state"] == "confirmed"
    assert adopted != generations.current_id(machine.ctx.layout)
    assert not machine.ctx.layout.transit.exists()


_HOLDER = """
import fcntl, json, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX)
os.ftruncate(fd, 0)
os.pwrite(fd, json.dumps({"pid": os.getpid(), "op": "activate"}).encode(), 0)
print("held", flush=True)
time.sleep(600)
"""


def test_the_timer_kills_an_activate_that_hangs_and_goes_back(machine: Machine, adopted: str) -> None:
    activated(machine)
    os.close(machine.systemd.timers.pop())  # this test is the timer
    began = machine.clock.now
    machine.clock.pace = 50
    command = [sys.executable, "-c", _HOLDER, str(machine.ctx.layout.lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as hanging:
        assert hanging.stdout is not None
        hanging.stdout.readline()
        try:
            assert deadman.run(machine.ctx)["state"] == "reverted-proven"
            assert hanging.wait(10) == -signal.SIGKILL
        finally:
            hanging.kill()
    assert machine.clock.now - began > 60 + 150  # not before its deadline and its grace
    assert_old_stack(machine, adopted)


def test_a_timer_beside_another_stands_by_until_that_one_is_gone(machine: Machine, adopted: str) -> None:
    activated(machine)
    machine.clock.pace = 50
    asleep = machine.clock.sleep

    def older_timer_dies(seconds: float) -> None:
        asleep(seconds)
        if machine.clock.now > 1200 and machine.systemd.timers:
            assert machine.served_from() == NEW  # long due, but not ours to do
            os.close(machine.systemd.timers.pop())

    machine.clock.sleep = older_timer_dies  # type: ignore[method-assign]
    assert deadman.run(machine.ctx)["state"] == "reverted-proven"
    assert_old_stack(machine, adopted)


def _die_after(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    """The process is gone as soon as the transit is in `phase`."""
    write = transit.write

    def dying(layout: object, pending: transit.Transit) -> None:
        write(layout, pending)  # type: ignore[arg-type]
        if pending.phase == phase:
            raise Killed

    monkeypatch.setattr(transit, "write", dying)


def last_end(machine: Machine) -> tuple[object, ...] | None:
    found = status.of(machine.ctx)["last_end"]
    return tuple(found[key] for key in ("epoch", "end", "generation")) if found else None


@pytest.mark.parametrize("by", ["confirm", "timer", "recover", "rollback"])
def test_status_says_how_the_last_transit_ended_under_the_epoch_that_began_it(
    machine: Machine, adopted: str, by: str
) -> None:
    epoch = activated(machine)
    assert last_end(machine) is None
    if by in {"timer", "recover"}:
        machine.clock.now += 60
    ends: dict[str, Callable[[], object]] = {
        "confirm": lambda: confirm.confirm(machine.call(epoch)),
        "timer": lambda: deadman.fire(machine.ctx),
        "recover": lambda: recover.recover(machine.call(boot=False)),
        "rollback": lambda: rollback.rollback(machine.call(to=None)),
    }
    ends[by]()
    for _ in range(20):  # whatever else is in the journal since
        lease.quarantine(machine.ctx, "")
        lease.clear(machine.ctx)
    assert last_end(machine) == ((epoch, "confirmed", NEW) if by == "confirm" else (epoch, "proven", adopted))


def test_an_unproven_end_and_then_another(machine: Machine, adopted: str) -> None:
    machine.stage(NEW)
    machine.systemd.broken_on = "-" + adopted.split("-")[1]
    epoch = machine.take_lease()
    failure(machine, epoch, health=healthy_but_on(NEW, machine))
    assert last_end(machine) == (epoch, "failed", adopted)
    lease.clear(machine.ctx)
    machine.systemd.broken_on = ""
    machine.systemd.start("ml.service")
    second = machine.take_lease()
    activate.activate(order(machine, second))
    confirm.confirm(machine.call(second))
    assert last_end(machine) == (second, "confirmed", NEW)


def test_an_end_that_was_not_reached_is_none(machine: Machine, adopted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = activated(machine)
    monkeypatch.setattr(Path, "unlink", _die)
    with pytest.raises(Killed):
        confirm.confirm(machine.call(epoch))
    monkeypatch.undo()
    assert (last_end(machine), status.of(machine.ctx)["transit"]["phase"]) == (None, "awaiting-confirm")
    rollback.rollback(machine.call(epoch, to=None))
    assert last_end(machine) == (epoch, "proven", adopted)


def test_status_says_which_change_is_under_way(machine: Machine, adopted: str) -> None:
    assert adopted
    assert status.of(machine.ctx)["busy"] is None
    with fence.mutation(machine.ctx, "stage", {}):
        assert status.of(machine.ctx)["busy"] == "stage"
    assert status.of(machine.ctx)["busy"] is None


def test_a_smoke_by_hand_goes_by_the_generations_own_suite(machine: Machine, adopted: str) -> None:
    generations.update(
        machine.ctx.layout, machine.stage(NEW), suite={"cases": ["imports", "record"], "imports": ["demo"]}
    )
    found = {each: proof.smoke_by_name(machine.call(generation=each, suite={})) for each in (NEW, None)}
    assert [(case["case"], case["verdict"]) for case in found[NEW]["cases"]] == [
        ("imports", "pass"),
        ("record", "pass"),
    ]
    assert (found[NEW]["generation"], found[NEW]["passed"]) == (NEW, True)
    assert (found[None]["generation"], [case["case"] for case in found[None]["cases"]]) == (adopted, ["record"])


def test_status_tells_the_whole_story(machine: Machine, adopted: str) -> None:
    activated(machine)
    seen: Json = status.of(machine.ctx)
    assert seen["transit"]["phase"] == "awaiting-confirm"
    assert (seen["transit"]["timer_alive"], seen["transit"]["units"]) == (True, ["ml.service"])
    assert [each["id"] for each in seen["generations"]] == [adopted, NEW]
    assert seen["adopted"] == [
        {"path": str(machine.path), "aside": str(machine.folder / f".ml-env.{adopted}"), "generation": adopted}
    ]
    assert seen["lease"]["holder"] == "ann@laptop"
