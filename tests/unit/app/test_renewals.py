from __future__ import annotations

import time

from tests.unit.app.fake_fleet import FakeHost, fleet_of, lost

from cudaup.app.renewals import Renewals
from cudaup.domain.inventory import Host

HOST = Host(name="a", address="a")


def renewals_seen(host: FakeHost, count: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if host.calls.count("lease-renew") >= count:
            return True
        time.sleep(0.005)
    return False


def test_a_held_lease_is_renewed_again_and_again_also_after_a_failure() -> None:
    fleet = fleet_of(FakeHost("a", breaks={"lease-renew": lost()}))
    with Renewals(fleet, period_s=0.01, timeout_s=1) as renewals:
        renewals.add(HOST, 3)
        assert renewals_seen(fleet.hosts["a"], 3)


def test_a_removed_host_is_not_renewed_any_more() -> None:
    fleet = fleet_of(FakeHost("a"))
    with Renewals(fleet, period_s=0.01, timeout_s=1) as renewals:
        renewals.add(HOST, 3)
        assert renewals_seen(fleet.hosts["a"], 1)
        renewals.remove(HOST)
    before = fleet.hosts["a"].calls.count("lease-renew")
    assert fleet.hosts["a"].calls.count("lease-renew") == before
