from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.host_state.machine import HandClock, Machine

from cudaup.host import fence, forget, lease, locks, status, transit
from cudaup.host.journal import Journal
from cudaup.host.lease import Claim, Lease
from cudaup.host.protocol import Json, Refused

NOW = 1000.0
FIRST = 1_800_001_000  # the second in which a root's first lease is taken
ALIVE = Lease("held", 4, "ann", "r-1", "upgrade", 1.0, ttl_s=60, boot_id="boot-1", renewed=NOW - 59)
EXPIRED = Lease("held", 4, "ann", "r-1", "upgrade", 1.0, ttl_s=60, boot_id="boot-1", renewed=NOW - 60)
QUARANTINED = Lease("quarantined", 4, "ann", "r-1", "no way back", 1.0, ttl_s=60, boot_id="boot-1", renewed=0)
SAME, OTHER = Claim("ann", "r-1", "", 60), Claim("bob", "r-2", "", 60)
FORCED = Claim("bob", "r-2", "", 60, take_over=True)


@pytest.mark.parametrize(
    ("now", "claim", "in_transit", "wanted"),
    [
        (Lease(), OTHER, False, FIRST),
        (Lease("free", 4), OTHER, False, 5),
        (ALIVE, SAME, False, 4),
        (EXPIRED, SAME, True, 4),
        (ALIVE, OTHER, False, "lease-held"),
        (ALIVE, FORCED, False, "lease-held"),
        (EXPIRED, OTHER, False, 5),
        (EXPIRED, OTHER, True, "lease-held"),
        (EXPIRED, FORCED, True, 5),
        (QUARANTINED, SAME, False, "quarantined"),
        (QUARANTINED, FORCED, False, "quarantined"),
    ],
)
def test_who_gets_the_lease(now: Lease, claim: Claim, in_transit: bool, wanted: int | str) -> None:  # noqa: FBT001 - a table
    try:
        after: int | str = lease.granted(now, claim, HandClock(now=NOW), in_transit=in_transit).epoch
    except Refused as refusal:
        after = refusal.code
    assert after == wanted


def test_a_refusal_names_holder_reason_and_age() -> None:
    with pytest.raises(Refused, match=r"epoch 4, ann \(run r-1\) for \d+ s: upgrade"):
        lease.granted(ALIVE, OTHER, HandClock(now=NOW), in_transit=False)


def test_after_a_reboot_the_time_to_live_counts_from_the_boot() -> None:
    held = Lease("held", 4, "ann", "r-1", "", 1.0, ttl_s=60, boot_id="boot-1", renewed=5000.0)
    after_boot = HandClock(now=59.0, boot="boot-2", began=0.0)
    assert (held.remaining_s(after_boot), held.is_expired(after_boot)) == (1.0, False)
    assert held.is_expired(HandClock(now=160.0, boot="boot-2", began=100.0))


def test_renewing_keeps_it_alive_and_releasing_twice_is_fine(machine: Machine) -> None:
    epoch = machine.take_lease(ttl_s=60)
    machine.clock.now += 50
    lease.renew(machine.call(epoch))
    machine.clock.now += 50
    assert lease.read(machine.ctx.layout).as_json(machine.clock)["remaining_s"] == 10

    assert lease.release(machine.call(epoch))["lease"]["state"] == "free"
    assert lease.release(machine.call(epoch))["lease"]["state"] == "free"


def test_after_a_forget_no_epoch_comes_again(machine: Machine) -> None:
    """Its laptop slept: the one holder that nobody told."""
    asleep = machine.take_lease("r-1", ttl_s=10)
    machine.clock.now += 11
    forget.forget(machine.ctx)
    awake = machine.take_lease("r-2", ttl_s=60)
    with pytest.raises(Refused, match="r-2") as refusal:
        lease.renew(machine.call(asleep))
    assert (refusal.value.code, awake) == ("stale-epoch", FIRST + 11)


@pytest.mark.parametrize("verb", ["renew", "release", "change"])
def test_an_old_epoch_is_fenced_and_told_who_holds_now(machine: Machine, verb: str) -> None:
    old = machine.take_lease("r-1", ttl_s=10)
    machine.clock.now += 11
    new = machine.take_lease("r-2", ttl_s=60)
    before = machine.ctx.layout.lease.read_bytes()
    calls: dict[str, Callable[[], object]] = {
        "renew": lambda: lease.renew(machine.call(old)),
        "release": lambda: lease.release(machine.call(old)),
        "change": lambda: fence.mutation(machine.call(old), "stage", {}).__enter__(),
    }
    with pytest.raises(Refused, match="r-2") as refusal:
        calls[verb]()
    assert (old, new, refusal.value.code) == (FIRST, FIRST + 1, "stale-epoch")
    assert machine.ctx.layout.lease.read_bytes() == before


def test_a_person_ends_a_quarantine_and_fences_off_whoever_was_there_before(machine: Machine) -> None:
    old = machine.take_lease("r-1")
    lease.quarantine(machine.ctx, "no way back")
    for call in (lambda: machine.take_lease("r-2"), lambda: lease.release(machine.call(old))):
        with pytest.raises(Refused) as refusal:
            call()
        assert (refusal.value.code, refusal.value.fix[-25:]) == ("quarantined", "`cudaup-host lease clear`")

    assert lease.clear(machine.ctx)["lease"]["state"] == "free"
    with pytest.raises(Refused, match="no longer") as refusal:
        lease.renew(machine.call(old))
    assert refusal.value.code == "stale-epoch"
    assert machine.take_lease("r-2") == old + 2
    cleared = [entry for entry in Journal(machine.ctx.layout).entries() if entry["op"] == "lease-clear"]
    assert [(entry["phase"], entry["epoch"]) for entry in cleared] == [("intent", old + 1), ("done", old + 1)]


def test_a_dry_run_of_taking_it_writes_nothing(machine: Machine) -> None:
    links = machine.ctx.layout.links
    links.rmdir()
    asked: Json = {"holder": "ann", "run": "r-1", "reason": "", "ttl": 60.0, "take_over": True}
    would = lease.take(replace(machine.ctx, dry_run=True, options=asked))
    assert (would["would"], would["lease"]["epoch"]) == ("take the lease", FIRST)
    assert (links.exists(), machine.ctx.layout.lease.exists()) == (False, False)


def test_only_a_quarantine_can_be_cleared(machine: Machine) -> None:
    epoch = machine.take_lease()
    with pytest.raises(Refused, match="not in quarantine: its lease is held"):
        lease.clear(machine.ctx)
    lease.renew(machine.call(epoch))


def test_by_hand_takes_the_lease_for_the_time_and_gives_it_back(machine: Machine) -> None:
    with fence.mutation(machine.ctx, "gc", {}) as change:
        assert lease.read(machine.ctx.layout).run == "by-hand"
    after = lease.read(machine.ctx.layout)
    assert (after.state, after.epoch) == ("free", change.epoch)


def test_by_hand_is_refused_while_somebody_holds_the_lease(machine: Machine) -> None:
    machine.take_lease()
    with pytest.raises(Refused, match="ann@laptop") as refusal, fence.mutation(machine.ctx, "gc", {}):
        pass
    assert refusal.value.code == "lease-held"


def test_the_lease_of_a_dead_process_by_hand_is_void(machine: Machine) -> None:
    with lease.guarded(machine.ctx) as now:
        claim = Claim("uid 0, pid 1", lease.BY_HAND_RUN, "", 9999)
        lease.store(machine.ctx, "lease-take", lease.granted(now, claim, machine.clock, in_transit=False))
    assert status.of(machine.ctx)["lease"]["state"] == "free"  # a plan goes by it
    with locks.held(machine.ctx.layout.lock, "gc", machine.clock, 0):
        assert status.of(machine.ctx)["lease"]["state"] == "held"
    assert machine.take_lease() == FIRST + 1


def test_a_second_change_is_busy_and_told_by_whom(machine: Machine) -> None:
    epoch = machine.take_lease()
    first = fence.mutation(machine.call(epoch), "stage", {})
    with first, pytest.raises(Refused, match="doing `stage`") as refusal, fence.mutation(machine.call(epoch), "gc", {}):
        pass
    assert refusal.value.code == "busy"
    lease.renew(machine.call(epoch))  # never waits for it


def test_a_change_that_raises_is_journalled_as_failed(machine: Machine) -> None:
    with pytest.raises(ValueError, match="boom"), fence.mutation(machine.ctx, "stage", {"a": 1}) as change:
        raise ValueError("boom")
    outcome = [entry for entry in change.journal.entries() if entry["op"] == "stage"]
    assert [entry["phase"] for entry in outcome] == ["intent", "failed"]
    assert outcome[1]["detail"] == {"error": "ValueError: boom"}


def test_a_deadline_that_has_passed_is_not_renewed() -> None:
    clock = HandClock(now=100.0)
    pending = transit.Transit("0001-a", "0002-b", None, 1, "boot-1", 110.0, 200.0, "armed", (), (), 10.0, {}, {}, {})
    assert pending.renewed(clock).deadline == 110.0
    clock.now = 109.0
    assert replace(pending, ttl_s=500.0).renewed(clock).deadline == 200.0  # never past the ceiling
    clock.now = 110.0
    assert pending.renewed(clock) == pending
    assert pending.is_abandoned(clock)
    clock.now, clock.boot = 50.0, "boot-2"
    assert pending.is_abandoned(clock)
