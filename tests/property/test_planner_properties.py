from __future__ import annotations

from hypothesis import given, settings
from tests.property.strategies import STACK, fleets
from tests.unit.domain.builders import NOW

from cudaup.domain.facts import Facts, Unreachable
from cudaup.domain.plan import Action, HostVerdict, Plan, RollbackPlan
from cudaup.domain.plan_file import dump_plan, load_plan
from cudaup.domain.planner import build_plan, drift
from cudaup.domain.rollback import inverse_plan
from cudaup.domain.rules import check

Fleet = dict[str, Facts | Unreachable]
many = settings(max_examples=80, deadline=None)


def upgrade(fleet: Fleet) -> Plan:
    return build_plan(STACK, fleet, now=NOW, plan_id="p", sources=("x",))


def both(fleet: Fleet) -> tuple[Plan, RollbackPlan]:
    return upgrade(fleet), inverse_plan(fleet, now=NOW, plan_id="p", sources=("x",))


@many
@given(fleets)
def test_a_host_with_a_blocker_is_never_changed(fleet: Fleet) -> None:
    for host in upgrade(fleet).changing:
        facts = fleet[host.host]
        assert isinstance(facts, Facts)
        assert not any(finding.blocks for finding in check(facts, STACK, NOW))


@many
@given(fleets)
def test_a_host_without_a_blocker_is_changed_unless_it_is_there(fleet: Fleet) -> None:
    for name, facts in fleet.items():
        host = upgrade(fleet).host(name)
        if isinstance(facts, Unreachable):
            assert host.verdict is HostVerdict.UNREACHABLE
        elif not facts.is_on(STACK.digest()) and not any(each.blocks for each in check(facts, STACK, NOW)):
            assert host.verdict is HostVerdict.CHANGE


@many
@given(fleets)
def test_nothing_disruptive_before_the_lease(fleet: Fleet) -> None:
    for host in (host for plan in both(fleet) for host in plan.changing):
        actions = [step.action for step in host.steps]
        assert actions.index(Action.LEASE) == 0
        assert sum(action.is_disruptive for action in actions) == 1
        assert actions[-1] is Action.RELEASE


@many
@given(fleets)
def test_every_reversible_step_has_its_undo(fleet: Fleet) -> None:
    for step in (step for plan in both(fleet) for host in plan.hosts for step in host.steps):
        assert bool(step.undo) is step.action.is_reversible
        assert step.reason
        assert step.precondition


@many
@given(fleets)
def test_waves_cover_each_changing_host_once_in_order(fleet: Fleet) -> None:
    for plan in both(fleet):
        in_waves = [name for wave in plan.waves for name in wave]
        assert in_waves == [name for name in fleet if plan.host(name).verdict is HostVerdict.CHANGE]
        assert all(plan.waves)


@many
@given(fleets)
def test_the_same_facts_give_the_same_plan_and_it_keeps_on_disk(fleet: Fleet) -> None:
    for plan, again in zip(both(fleet), both(fleet), strict=True):
        assert dump_plan(plan) == dump_plan(again)
    assert load_plan(dump_plan(upgrade(fleet)), where="x") == upgrade(fleet)


@many
@given(fleets)
def test_the_same_facts_have_not_moved(fleet: Fleet) -> None:
    plan = upgrade(fleet)
    for name, facts in fleet.items():
        if isinstance(facts, Facts):
            assert drift(plan.host(name), facts, STACK, NOW) == ()
