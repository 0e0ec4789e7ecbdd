"""Two at once, really: another process, a clock that runs, the real locks."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from tests.unit.host_state.machine import TIMES, HandClock
from tests.unit.host_state.quick import ADOPTED, QuickMachine

from cudaup.host import activate, adopt, confirm, deadman, ending, generations, lease, stage, transit
from cudaup.host.protocol import Refused

_SPEED = 1000  # a second of waiting for health, or between two looks of the timer, is a millisecond
_ROUNDS = 200
_CONFIRMED, _REFUSED = 0, 3


@dataclass
class RunningClock(HandClock):
    """The machine's own, only faster."""

    def monotonic(self) -> float:
        return time.monotonic() * _SPEED

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / _SPEED)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuickMachine]:
    monkeypatch.setattr(deadman, "_HANGS_AFTER_S", 1e9)  # a busy machine can keep a confirm for a fast minute
    found = QuickMachine(monkeypatch, RunningClock())
    adopt.adopt(found.call(path=str(found.path)))
    yield found
    found.close()


def confirm_at(machine: QuickMachine, epoch: int, moment: float) -> int:
    """The operator's process; returns its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            machine.clock.sleep(max(0.0, moment - machine.clock.monotonic()))
            code = _CONFIRMED if confirm.confirm(machine.call(epoch))["state"] == "confirmed" else 2
        except Refused as refusal:
            code = _REFUSED if refusal.code in {"not-found", "busy"} else 4
        finally:
            os._exit(code)
    return pid


def set_deadline(machine: QuickMachine, left_s: float) -> float:
    with lease.guarded(machine.ctx):
        pending = transit.read(machine.ctx.layout)
        assert pending is not None
        deadline = machine.clock.monotonic() + left_s
        transit.write(machine.ctx.layout, replace(pending, deadline=deadline))
    return deadline


def test_confirm_and_the_timer_race_200_times_and_exactly_one_wins(running: QuickMachine) -> None:
    layout = running.ctx.layout
    old, new = str(generations.current_id(layout)), str(stage.stage(running.spec_call(None, 1))["generation"])
    epoch = running.take_lease(ttl_s=1e9)
    ahead, winners = 20.0, []
    for _ in range(_ROUNDS):
        origin = str(generations.current_id(layout))
        target = new if origin == old else old
        options = {**TIMES, "generation": target, "ttl": 1e6, "ceiling": 1e7}
        assert activate.activate(running.call(epoch, **options))["state"] == "awaiting-confirm"
        running.systemd.end_timer()  # this process is the timer
        pid = confirm_at(running, epoch, set_deadline(running, ahead + 1) - ahead)
        fired = deadman.run(running.ctx)["state"]
        confirmed = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert (confirmed, fired) in {(_CONFIRMED, "settled"), (_REFUSED, "reverted-proven")}
        stays, end = (target, "confirmed") if confirmed == _CONFIRMED else (origin, "proven")
        assert (generations.current_id(layout), running.runs_in()) == (stays, ADOPTED if stays == old else stays)
        assert ending.last(layout) == {"epoch": epoch, "end": end, "generation": stays}
        assert (layout.transit.exists(), lease.read(layout).state) == (False, "held")
        winners.append(confirmed)
        ahead *= 0.8 if confirmed == _CONFIRMED else 1.3  # closer and closer to the deadline, from both sides
        layout.journal.unlink()
    assert min(winners.count(_CONFIRMED), winners.count(_REFUSED)) > _ROUNDS // 10
