from __future__ import annotations

from typing import Any

import pytest
from tests.unit.domain.builders import NOW, OLD, facts_on, make_facts, make_generation, make_stack, make_status

from cudaup.domain.facts import Facts, Unreachable
from cudaup.domain.plan import HostPlan, HostVerdict
from cudaup.domain.rollback import inverse_plan, plan_host_rollback

ONE = {**OLD, "digest": "1234aa" + "0" * 58, "id": "0001-1234aa"}
TWO = make_generation(2, "beef22" + "0" * 58)
THREE = make_generation(3, "beef33" + "0" * 58)


def host(**changes: Any) -> Facts:
    """On generation 3, with all three there and 2 as the previous one."""
    status = {"current": THREE, "previous": TWO, "generations": [ONE, TWO, THREE], **changes}
    return make_facts(cudaup=make_status(**status))


def planned(facts: Facts | Unreachable, to: str | None = None) -> HostPlan:
    return plan_host_rollback("gpu-1", facts, to)


def evidence(plan: HostPlan) -> list[tuple[str, str]]:
    return [(finding.rule, finding.evidence) for finding in plan.blockers]


def test_the_way_back_is_taken_under_the_lease() -> None:
    plan = planned(host())
    assert [step.action.value for step in plan.steps] == ["lease", "rollback", "release"]
    assert (plan.from_generation, plan.to_name, plan.to_digest) == (THREE["id"], TWO["id"], TWO["digest"])
    assert plan.steps[1].reason == "put back 0002-beef22 in place of 0003-beef33"
    assert plan.steps[1].undo == "`cudaup-host rollback --to 0003-beef33`"


def test_a_host_that_is_there_but_does_not_serve_is_put_there_again() -> None:
    assert planned(without_service(host()), "3").verdict is HostVerdict.CHANGE
    assert planned(host(), "3").verdict is HostVerdict.UNCHANGED


def without_service(facts: Facts) -> Facts:
    down = make_facts(services=[{"unit": "ml.service", "active": "failed"}]).services
    return facts.model_copy(update={"services": down})


@pytest.mark.parametrize("status", [{"current": ONE, "previous": TWO, "generations": [ONE, TWO]}, {}])
def test_a_rollback_with_nowhere_to_go_back_to_starts_what_is_down(status: dict[str, Any]) -> None:
    """Asked twice in an incident, or after an upgrade that was put back: what is wanted is that it serves."""
    facts = make_facts(cudaup=make_status(**status))
    assert planned(facts).verdict is HostVerdict.UNCHANGED
    plan = planned(without_service(facts))
    assert (plan.verdict, plan.to_name) == (HostVerdict.CHANGE, plan.from_generation)


@pytest.mark.parametrize("to", [None, "1", "3"])
def test_a_quarantine_is_never_nothing_to_do(to: str | None) -> None:
    lease = {"state": "quarantined", "epoch": 3, "reason": "not proven"}
    plan = planned(host(current=TWO, previous=THREE, lease=lease), to)
    assert (plan.verdict, plan.is_quarantined, plan.steps) == (HostVerdict.BLOCKED, True, ())


def test_a_host_whose_links_lead_nowhere_goes_to_the_newest_older_generation_that_is_whole() -> None:
    adopted = [{"path": "/root/ml-env", "aside": "/root/.ml-env", "generation": ONE["id"]}]
    damage = ["`/opt/cudaup/current` names 0003-beef33, which is not whole"]
    lost = {"adopted": adopted, "damage": damage, "generations": [ONE, TWO], "previous": None}
    assert planned(host(current=None, **lost)).to_name == TWO["id"]
    assert planned(host(current=TWO, **lost)).to_name == ONE["id"]
    assert planned(host(damage=["the drop-in of ml.service is gone"]), "3").verdict is HostVerdict.CHANGE


@pytest.mark.parametrize("to", ["0001-1234aa", "1", "0001", "1234aa", "1234AA00", ONE["digest"]])
def test_a_generation_has_many_names(to: str) -> None:
    assert planned(host(), to).to_name == "0001-1234aa"


def test_a_number_is_a_number_first() -> None:
    numbered = make_generation(1234, "cccc" * 16)
    assert planned(host(generations=[ONE, TWO, THREE, numbered]), "1234").to_name == numbered["id"]


def test_an_absent_generation_is_refused() -> None:
    plan = planned(host(), "9")
    assert plan.verdict is HostVerdict.BLOCKED
    assert evidence(plan) == [("R001", "wanted 9, the host has 0001-1234aa, 0002-beef22, 0003-beef33")]


def test_an_ambiguous_name_is_refused() -> None:
    assert evidence(planned(host(), "beef")) == [("R002", "beef may be 0002-beef22 or 0003-beef33")]


def test_a_few_letters_are_no_digest() -> None:
    assert [rule for rule, _ in evidence(planned(host(), "bee"))] == ["R001"]


@pytest.mark.parametrize(
    ("facts", "to", "why"),
    [
        (make_facts(cudaup=None), None, "cudaup never switched this host"),
        (make_facts(cudaup=None), "7", "cudaup never switched this host"),
        (make_facts(cudaup=make_status(current=None, adopted=[])), None, "cudaup never switched this host"),
        (make_facts(cudaup=make_status()), None, "there is no earlier generation"),
        (host(), "3", "runs 0003-beef33 already"),
    ],
)
def test_nothing_to_do(facts: Facts, to: str | None, why: str) -> None:
    plan = planned(facts, to)
    assert (plan.verdict, plan.left_alone, plan.steps) == (HostVerdict.UNCHANGED, (why,), ())


TRANSIT = {"from": TWO["id"], "to": THREE["id"], "epoch": 3, "phase": "awaiting-confirm"}


@pytest.mark.parametrize("to", [None, "2", "beef22"])
@pytest.mark.parametrize("current", [TWO, THREE])
def test_a_host_in_transit_goes_back_to_where_it_came_from(current: dict[str, Any], to: str | None) -> None:
    plan = planned(host(transit=TRANSIT, current=current, previous=ONE), to)
    assert (plan.verdict, plan.to_name) == (HostVerdict.CHANGE, TWO["id"])
    assert plan.steps[1].reason == "put back 0002-beef22 now instead of waiting for the timer"


def test_a_host_in_transit_goes_nowhere_else() -> None:
    assert evidence(planned(host(transit=TRANSIT), "1")) == [("R003", "wanted 1, the host came from 0002-beef22")]


def test_a_held_lease_blocks_and_an_expired_one_does_not() -> None:
    held = {"state": "held", "epoch": 3, "holder": "bob", "run": "r-1", "reason": "upgrade"}
    assert evidence(planned(host(lease=held))) == [("F001", "held by bob, run r-1: upgrade")]
    assert planned(host(lease={**held, "expired": True})).verdict is HostVerdict.CHANGE


def test_a_full_disk_blocks_no_rollback() -> None:
    assert planned(host().model_copy(update={"disks": ()})).verdict is HostVerdict.CHANGE


def test_a_fleet_goes_back_in_one_wave() -> None:
    upgraded = facts_on(make_stack())
    observed: dict[str, Facts | Unreachable] = {
        "a": upgraded,
        "b": Unreachable(reason="timeout"),
        "c": upgraded,
        "d": make_facts(),
    }
    plan = inverse_plan(observed, now=NOW, plan_id="p-2", sources=("x.yml",))
    assert plan.waves == (("a", "c"),)
    assert [each.verdict.value for each in plan.hosts] == ["change", "unreachable", "change", "unchanged"]
    assert plan.to is None


def test_no_host_to_change_is_no_wave() -> None:
    assert inverse_plan({"d": make_facts()}, now=NOW, plan_id="p-2", sources=()).waves == ()
