from __future__ import annotations

from tests.unit.app.fake_fleet import FakeHost, fleet_of, lost
from tests.waiting import eventually

from cudaup.app.renewals import Renewals
from cudaup.domain.inventory import Host

HOST = Host(name="a", address="a")


def wait_for_renewals(host: FakeHost, count: int) -> None:
    eventually(lambda: host.calls.count("lease-renew") >= count, f"{count} renewals", within_s=5)


def test_a_held_lease_is_renewed_again_and_again_also_after_a_failure() -> None:
    fleet = fleet_of(FakeHost("a", breaks={"lease-renew": lost()}))
    with Renewals(fleet, period_s=0.01, timeout_s=1) as renewals:
        renewals.add(HOST, 3)
        wait_for_renewals(fleet.hosts["a"], 3)


def test_a_removed_host_is_not_renewed_any_more() -> None:
    fleet = fleet_of(FakeHost("a"), FakeHost("b"))
    with Renewals(fleet, period_s=0.01, timeout_s=1) as renewals:
        renewals.add(HOST, 3)
        renewals.add(Host(name="b", address="b"), 3)
        wait_for_renewals(fleet.hosts["a"], 1)
        renewals.remove(HOST)
        wait_for_renewals(fleet.hosts["b"], fleet.hosts["b"].calls.count("lease-renew") + 1)  # the round under way
        before = fleet.hosts["a"].calls.count("lease-renew")
        wait_for_renewals(fleet.hosts["b"], fleet.hosts["b"].calls.count("lease-renew") + 2)
    assert fleet.hosts["a"].calls.count("lease-renew") == before
