from __future__ import annotations

import pytest
from tests.unit.app.fake_fleet import NEW, STACK, FakeFleet, FakeHost, as_hosts, fleet_of, lost, run_on
from tests.unit.domain.builders import NOW, OLD, make_facts, make_status

from cudaup.adapters.auditor import BinaryAuditor
from cudaup.app.apply import Preparing, apply_plan
from cudaup.domain.errors import AuthenticationFailed, HostFailed, HostProgramBroken, HostRefused
from cudaup.domain.facts import Unreachable
from cudaup.domain.inventory import Host
from cudaup.domain.outcome import Outcome
from cudaup.domain.plan import Plan
from cudaup.domain.planner import build_plan
from cudaup.domain.report import Report, report_of


def plan_of(fleet: FakeFleet) -> Plan:
    observed = {name: host.facts for name, host in fleet.hosts.items()}
    return build_plan(STACK, observed, now=NOW, plan_id="p-1", sources=("hosts.yml",))


def applied_plan(fleet: FakeFleet, plan: Plan) -> Report:
    apply_plan(run_on(fleet), plan, as_hosts(fleet), Preparing(plays=fleet, wheels=fleet, auditor=BinaryAuditor()))
    return report_of(fleet.journal)


def applied(fleet: FakeFleet) -> Report:
    return applied_plan(fleet, plan_of(fleet))


def outcomes(report: Report) -> dict[str, Outcome]:
    return {host.host: host.outcome for host in report.hosts}


def test_every_host_is_prepared_switched_confirmed_over_a_new_connection_and_released() -> None:
    fleet = fleet_of(FakeHost("a"), FakeHost("b"), FakeHost("c"))
    report = applied(fleet)
    assert outcomes(report) == dict.fromkeys("abc", Outcome.APPLIED)
    assert (report.exit_code, fleet.fetches) == (0, 1)
    for host in fleet.hosts.values():
        order = [call for call in host.calls if call not in {"lease-renew", "facts"}]
        puts = len(STACK.wheels) + 1
        relayed = ["lease-take", "blob-missing", *["blob-put"] * puts]
        assert order == [*relayed, "activate", "confirm", "lease-release"]
        assert host.connections == 2
        assert host.state["lease"] == {"state": "free", "epoch": 4}
    assert report.hosts[0].smoke[0].verdict == "pass"


def test_one_bad_smoke_is_put_back_and_does_not_keep_the_stack_from_the_others() -> None:
    fleet = fleet_of(FakeHost("a"), FakeHost("b", smoke_passes=False), FakeHost("c"))
    report = applied(fleet)
    assert outcomes(report) == {"a": Outcome.APPLIED, "b": Outcome.ROLLED_BACK, "c": Outcome.APPLIED}
    assert report.exit_code == 4
    assert report.hosts[1].smoke[0].reason == "cc1plus died"
    assert fleet.hosts["b"].state["lease"]["state"] == "free"


def test_a_way_back_without_proof_is_said_to_be_unproven_and_stays_quarantined() -> None:
    fleet = fleet_of(FakeHost("a", smoke_passes=False, revert_ends="unproven"))
    report = applied(fleet)
    assert outcomes(report) == {"a": Outcome.ROLLBACK_UNPROVEN}
    assert report.exit_code == 5
    assert fleet.hosts["a"].state["lease"]["state"] == "quarantined"


def test_a_stack_that_fails_on_the_first_host_goes_no_further() -> None:
    fleet = fleet_of(*(FakeHost(name, smoke_passes=False) for name in "abc"))
    report = applied(fleet)
    assert list(outcomes(report).values()) == [Outcome.ROLLED_BACK, Outcome.REFUSED, Outcome.REFUSED]
    why = "it has worked nowhere yet; 1 of 1 allowed failures used by a (rolled-back)"
    assert report.hosts[2].reason == f"not begun: {why}"


def test_the_budget_of_the_fleet_stops_a_bad_stack_before_its_last_wave() -> None:
    fleet = fleet_of(*(FakeHost(name, smoke_passes=name == "a") for name in "abcdef"))
    report = applied(fleet)
    ends = [Outcome.APPLIED, Outcome.ROLLED_BACK, Outcome.ROLLED_BACK, *[Outcome.REFUSED] * 3]
    assert list(outcomes(report).values()) == ends
    assert report.hosts[5].reason == "not begun: 2 of 1 allowed failures used by b (rolled-back), c (rolled-back)"
    assert "activate" not in fleet.hosts["f"].calls


def test_a_host_that_moved_since_the_plan_is_refused_and_told_what() -> None:
    fleet = fleet_of(FakeHost("a"), FakeHost("b"))
    plan = plan_of(fleet)
    fleet.hosts["b"].facts = make_facts(host={"boot_id": "99999999-2222-3333-4444-555555555555"})
    report = applied_plan(fleet, plan)
    assert outcomes(report) == {"a": Outcome.APPLIED, "b": Outcome.REFUSED}
    assert "boot id: planned for 11111111" in report.hosts[1].reason
    assert fleet.hosts["b"].calls == ["facts"]


def test_a_connection_lost_in_the_switch_is_no_verdict_the_host_is_asked() -> None:
    fleet = fleet_of(FakeHost("a", breaks={"activate": lost()}))
    assert outcomes(applied(fleet)) == {"a": Outcome.APPLIED}
    assert fleet.hosts["a"].calls.count("activate") == 1


def test_a_host_that_put_itself_back_while_we_were_away_is_rolled_back() -> None:
    fleet = fleet_of(FakeHost("a", breaks={"activate": lost()}, timer_fires_after="activate"))
    report = applied(fleet)
    assert outcomes(report) == {"a": Outcome.ROLLED_BACK}
    assert report.hosts[0].reason == "the connection broke; the host went back"


class TwiceBack(FakeHost):
    """Its first way back failed, a reboot came, and the second one went well."""

    def _revert(self) -> None:
        super()._revert()
        self.state["lease"] = {"state": "quarantined", "epoch": self._epoch, "reason": "going back: not healthy"}


def test_a_host_that_is_back_and_still_in_quarantine_is_not_called_rolled_back() -> None:
    """Seen by the sweep."""
    report = applied(fleet_of(TwiceBack("a", breaks={"activate": lost()}, timer_fires_after="activate")))
    assert (outcomes(report), report.exit_code) == ({"a": Outcome.QUARANTINED}, 5)


def test_a_switch_that_never_began_is_not_called_a_rollback() -> None:
    fleet = fleet_of(FakeHost("a", breaks={"activate": lost()}, breaks_before_effect=True))
    assert outcomes(applied(fleet)) == {"a": Outcome.UNREACHABLE}
    assert fleet.hosts["a"].state["lease"]["state"] == "free"


def test_a_confirmation_whose_answer_was_lost_is_said_again() -> None:
    fleet = fleet_of(FakeHost("a", breaks={"confirm": lost()}))
    assert outcomes(applied(fleet)) == {"a": Outcome.APPLIED}
    assert fleet.hosts["a"].calls.count("confirm") == 2
    assert fleet.hosts["a"].state["current"]["id"] == NEW["id"]


def test_a_confirmation_that_comes_too_late_ends_with_the_old_stack() -> None:
    fleet = fleet_of(FakeHost("a", timer_fires_after="activate"))
    report = applied(fleet)
    assert outcomes(report) == {"a": Outcome.ROLLED_BACK}
    assert fleet.hosts["a"].state["current"]["id"] == OLD["id"]


def test_a_refused_confirmation_puts_the_host_back_now_since_its_timer_is_being_renewed() -> None:
    refused = HostRefused("not confirmed: the old msgpack is mapped", code="not-verified")
    fleet = fleet_of(FakeHost("a", breaks={"confirm": refused}, breaks_before_effect=True))
    report = applied(fleet)
    assert outcomes(report) == {"a": Outcome.ROLLED_BACK}
    assert fleet.hosts["a"].state["current"]["id"] == OLD["id"]
    assert fleet.hosts["a"].asked_back_to == OLD["id"]
    assert fleet.hosts["a"].state["lease"]["state"] == "free"


def test_a_confirmation_that_failed_on_the_host_is_none() -> None:
    """Seen on a full disk: the host could not record it, went back by itself, and was called applied."""
    full = HostFailed("No space left on device", data={"state": "in-transit"})
    fleet = fleet_of(FakeHost("a", breaks={"confirm": full}, breaks_before_effect=True))
    report = applied(fleet)
    assert outcomes(report) == {"a": Outcome.ROLLED_BACK}
    assert "not confirmed (No space left on device)" in report.hosts[0].reason
    assert fleet.hosts["a"].asked_back_to == OLD["id"]


@pytest.mark.parametrize("has_effect", [False, True])
def test_a_confirmation_that_was_killed_is_what_the_host_recorded_of_it(*, has_effect: bool) -> None:
    """Seen by the sweep: it was called in-transit while its timer had put it back."""
    killed = HostProgramBroken("the host program ended with status 137")
    fleet = fleet_of(FakeHost("a", breaks={"confirm": killed}, breaks_before_effect=not has_effect))
    report = applied(fleet)
    assert outcomes(report) == {"a": Outcome.APPLIED if has_effect else Outcome.ROLLED_BACK}
    assert ("status 137" in report.hosts[0].reason, report.warning) == (True, "")
    assert fleet.hosts["a"].state["current"]["id"] == (NEW if has_effect else OLD)["id"]
    assert fleet.hosts["a"].state["lease"]["state"] == "free"


def test_an_answer_that_does_not_say_what_became_of_the_switch_is_looked_up() -> None:
    """Seen by the soak on a disk gone read-only: back and proven, its last record lost, and called unproven."""
    cut = HostFailed("`activate` was cut short: Read-only file system", data={"state": "cut-short"})
    fleet = fleet_of(FakeHost("a", breaks={"activate": cut}, timer_fires_after="activate"))
    report = applied(fleet)
    assert outcomes(report) == {"a": Outcome.ROLLED_BACK}
    assert "cut short: Read-only file system; the host went back" in report.hosts[0].reason


def test_a_failed_play_refuses_its_host_only_and_gives_the_lease_back() -> None:
    fleet = fleet_of(FakeHost("a"), FakeHost("b"), play_fails_on="b")
    report = applied(fleet)
    assert outcomes(report) == {"a": Outcome.APPLIED, "b": Outcome.REFUSED}
    assert "no space" in report.hosts[1].reason
    assert fleet.hosts["b"].state["lease"]["state"] == "free"


def test_a_lease_that_another_holds_refuses_the_host_by_name() -> None:
    host = FakeHost("a")
    host.state["lease"] = {"state": "held", "epoch": 9, "holder": "bob@desk"}
    report = applied(fleet_of(host))
    assert outcomes(report) == {"a": Outcome.REFUSED}
    assert "bob@desk" in report.hosts[0].reason


def test_a_way_back_that_failed_is_exit_code_6() -> None:
    report = applied(fleet_of(FakeHost("a", smoke_passes=False, revert_ends="failed")))
    assert (report.hosts[0].outcome, report.exit_code) == (Outcome.ROLLBACK_FAILED, 6)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("proven", Outcome.ROLLED_BACK),
        ("unproven", Outcome.ROLLBACK_UNPROVEN),
        ("failed", Outcome.ROLLBACK_FAILED),
        ("refused", Outcome.REFUSED),
    ],
)
def test_how_a_lost_host_went_back_is_read_from_its_own_record(end: str, outcome: Outcome) -> None:
    host = FakeHost("a", breaks={"activate": lost()}, timer_fires_after="activate", revert_ends=end)
    assert outcomes(applied(fleet_of(host))) == {"a": outcome}


def test_a_host_program_that_crashed_in_the_switch_is_not_renewed_so_that_its_timer_can_fire() -> None:
    fleet = fleet_of(FakeHost("a", breaks={"activate": HostProgramBroken("killed")}))
    host = fleet.hosts["a"]
    run = run_on(fleet)
    held_when_asked: list[bool] = []

    def on_call(verb: str) -> None:
        if verb == "status":
            held_when_asked.append(run.renewals.is_held(Host(name="a", address="a")))
            host.timer_fires()

    host.on_call = on_call
    apply_plan(run, plan_of(fleet), as_hosts(fleet), Preparing(plays=fleet, wheels=fleet, auditor=BinaryAuditor()))
    assert held_when_asked == [False]
    assert report_of(fleet.journal).hosts[0].outcome is Outcome.ROLLED_BACK


def test_a_host_in_quarantine_is_said_to_be_and_left_alone() -> None:
    status = make_status(lease={"state": "quarantined", "epoch": 3, "reason": "no proof"})
    fleet = fleet_of(FakeHost("a", facts=make_facts(cudaup=status)))
    report = applied(fleet)
    assert (report.hosts[0].outcome, report.exit_code) == (Outcome.QUARANTINED, 5)
    assert fleet.hosts["a"].calls == []


def test_a_host_that_ansible_cannot_reach_is_unreachable_and_uses_the_budget() -> None:
    fleet = fleet_of(FakeHost("a"), play_loses="a")
    report = applied(fleet)
    assert (report.hosts[0].outcome, report.exit_code) == (Outcome.UNREACHABLE, 5)


def test_after_ctrl_c_nothing_new_is_begun_and_leases_are_given_back() -> None:
    fleet = fleet_of(FakeHost("a"), FakeHost("b"), is_stopping=True)
    report = applied(fleet)
    assert outcomes(report) == dict.fromkeys("ab", Outcome.REFUSED)
    assert (report.exit_code, report.is_interrupted) == (130, True)
    assert fleet.hosts["a"].state["lease"]["state"] == "free"
    assert "activate" not in fleet.hosts["a"].calls


def test_a_host_lost_before_the_switch_is_unreachable_and_the_others_go_on() -> None:
    fleet = fleet_of(FakeHost("a"), FakeHost("b", breaks={"lease-take": AuthenticationFailed("no")}))
    assert outcomes(applied(fleet)) == {"a": Outcome.APPLIED, "b": Outcome.UNREACHABLE}


def test_a_host_unreachable_at_planning_keeps_its_reason_in_the_report() -> None:
    fleet = fleet_of(FakeHost("a"))
    plan = build_plan(STACK, {"a": Unreachable(reason="no route")}, now=NOW, plan_id="p", sources=("h",))
    report = applied_plan(fleet, plan)
    assert (report.hosts[0].outcome, report.hosts[0].reason, report.exit_code) == (Outcome.UNREACHABLE, "no route", 5)
    assert fleet.hosts["a"].calls == []


def test_the_intent_to_switch_is_in_the_journal_before_the_host_hears_of_it() -> None:
    fleet = fleet_of(FakeHost("a"))
    seen: list[tuple[str, str]] = []

    def on_call(verb: str) -> None:
        if verb == "activate":
            seen.append((fleet.journal[-1]["action"], fleet.journal[-1]["phase"]))

    fleet.hosts["a"].on_call = on_call
    applied(fleet)
    assert seen == [("activate", "intent")]
