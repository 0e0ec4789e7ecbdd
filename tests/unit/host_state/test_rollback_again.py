"""A rollback of a rollback: forwards and back again, also when one was killed half way."""

import pytest
from tests.unit.host_state.machine import TIMES, states
from tests.unit.host_state.quick import ADOPTED, Killed, QuickMachine, effects_of

from cudaup.host import activate, confirm, deadman, generations, lease, recover, rollback, stage, transit
from cudaup.host.protocol import Json, Refused


def upgraded(quick: QuickMachine) -> tuple[int, str, str]:
    """Epoch, the old and the new generation; the new one runs and is confirmed."""
    old = str(generations.current_id(quick.ctx.layout))
    new = str(stage.stage(quick.spec_call(None, 1))["generation"])
    epoch = quick.take_lease()
    activate.activate(quick.call(epoch, generation=new, **TIMES))
    confirm.confirm(quick.call(epoch))
    return epoch, old, new


def assert_on(quick: QuickMachine, here: str, there: str) -> None:
    layout = quick.ctx.layout
    assert (generations.current_id(layout), generations.previous_id(layout)) == (here, there)
    kind = generations.load(layout, here)["kind"]
    assert quick.runs_in() == (ADOPTED if kind == "adopted" else here)
    assert (transit.read(layout), lease.read(layout).state) == (None, "held")


def test_back_and_forwards_as_often_as_asked(quick: QuickMachine) -> None:
    epoch, old, new = upgraded(quick)
    for to, source, target in ((None, new, old), (new, old, new), (old, new, old), (new, old, new)):
        answer = rollback.rollback(quick.call(epoch, to=to))
        assert states(answer) == ("rolled-back-proven", source, target)
        assert [case["verdict"] for case in answer["after"]] == ["pass"]
        assert_on(quick, target, source)


def turned_round(quick: QuickMachine, epoch: int, wanted: str) -> Json:
    """What a person does who wants the other side: a transit can only be finished first."""
    if transit.read(quick.ctx.layout) is not None:
        with pytest.raises(Refused, match="it can only go back to") as refusal:
            rollback.rollback(quick.call(epoch, to=wanted))
        assert refusal.value.code == "in-transit"
        rollback.rollback(quick.call(epoch, to=None))
    return rollback.rollback(quick.call(epoch, to=wanted))


@pytest.mark.parametrize("finished_by", ["rollback", "timer", "recover"])
def test_killed_before_any_effect_it_can_be_turned_round(quick: QuickMachine, finished_by: str) -> None:
    epoch, old, new = upgraded(quick)
    number, transits = 0, 0
    while True:
        number += 1
        try:
            with effects_of(quick.folder, number):
                rollback.rollback(quick.call(epoch, to=old))
            break
        except Killed:
            quick.systemd.start("ml.service")  # as systemd's Restart= might
        pending = transit.read(quick.ctx.layout)
        if pending is not None:
            transits += 1
            assert (pending.origin, pending.target) == (old, new)
            if finished_by == "timer":
                assert deadman.fire(quick.ctx)["state"] == "reverted-proven"
                assert_on(quick, old, new)
            elif finished_by == "recover":
                assert recover.recover(quick.call(boot=False))["state"] == "reverted-proven"
                assert_on(quick, old, new)
        quick.systemd.end_timer()
        assert turned_round(quick, epoch, new)["state"] == "rolled-back-proven"
        assert_on(quick, new, old)
    assert_on(quick, old, new)
    assert (number > 20, transits > 10) == (True, True)
