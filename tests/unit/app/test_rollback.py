from __future__ import annotations

from typing import Any

from tests.unit.app.fake_fleet import NEW, STACK, FakeFleet, FakeHost, as_hosts, fleet_of, lost, run_on
from tests.unit.domain.builders import NOW, OLD, facts_on, make_facts, make_status

from cudaup.app.rollback import roll_back
from cudaup.domain.errors import HostFailed
from cudaup.domain.outcome import Outcome
from cudaup.domain.report import Report, report_of
from cudaup.domain.rollback import inverse_plan


def upgraded(name: str, **options: Any) -> FakeHost:
    state = make_status(current={**NEW, "confirmed": True}, previous=OLD, lease={"state": "free", "epoch": 7})
    return FakeHost(name, facts=facts_on(STACK), state=state, **options)


def rolled_back(fleet: FakeFleet) -> Report:
    observed = {name: host.facts for name, host in fleet.hosts.items()}
    plan = inverse_plan(observed, now=NOW, plan_id="p-1", sources=("hosts.yml",))
    roll_back(run_on(fleet), plan, as_hosts(fleet))
    return report_of(fleet.journal)


def test_a_fleet_goes_back_with_nothing_but_calls_of_the_host_program() -> None:
    fleet = fleet_of(upgraded("a"), upgraded("b"))
    report = rolled_back(fleet)
    assert [host.outcome for host in report.hosts] == [Outcome.ROLLED_BACK] * 2
    assert report.exit_code == 4
    assert fleet.fetches == 0
    assert [c for c in fleet.hosts["a"].calls if c != "lease-renew"] == [
        "lease-take", "rollback", "lease-release"
    ]  # fmt: skip


def test_an_unproven_way_back_is_never_called_proven() -> None:
    report = rolled_back(fleet_of(upgraded("a", revert_ends="unproven")))
    assert (report.hosts[0].outcome, report.exit_code) == (Outcome.ROLLBACK_UNPROVEN, 5)


def test_a_lost_answer_is_looked_up_on_the_host() -> None:
    report = rolled_back(fleet_of(upgraded("a", breaks={"rollback": lost()})))
    assert report.hosts[0].outcome is Outcome.ROLLED_BACK


def test_a_rollback_that_never_began_says_so() -> None:
    report = rolled_back(fleet_of(upgraded("a", breaks={"rollback": lost()}, breaks_before_effect=True)))
    assert (report.hosts[0].outcome, report.hosts[0].reason) == (
        Outcome.UNREACHABLE,
        "the connection broke; nothing was begun",
    )


def test_a_host_that_was_never_switched_is_left_alone() -> None:
    report = rolled_back(fleet_of(FakeHost("a", facts=make_facts())))
    assert (report.hosts[0].outcome, report.exit_code) == (Outcome.UNCHANGED, 0)


def test_a_failed_way_back_is_exit_code_6_and_never_called_unproven() -> None:
    report = rolled_back(fleet_of(upgraded("a", revert_ends="failed")))
    assert (report.hosts[0].outcome, report.exit_code) == (Outcome.ROLLBACK_FAILED, 6)
    assert "ml.service does not start" in report.hosts[0].reason


def test_a_host_that_cannot_record_its_way_back_is_in_transit_and_the_others_go_back() -> None:
    stuck = HostFailed("read-only file system", data={"state": "in-transit"})
    report = rolled_back(fleet_of(upgraded("a", breaks={"lease-take": stuck}), upgraded("b")))
    assert [host.outcome for host in report.hosts] == [Outcome.IN_TRANSIT, Outcome.ROLLED_BACK]
    assert (report.hosts[0].reason, report.exit_code) == ("read-only file system", 5)
