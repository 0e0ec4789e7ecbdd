from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.domain.builders import NOW, facts_on, make_facts, make_stack, plan_for

from cudaup.domain.errors import UsageError
from cudaup.domain.plan import FleetPlan, HostPlan, HostVerdict, Plan
from cudaup.domain.plan_file import _checksum, dump_plan, load_plan
from cudaup.domain.rollback import inverse_plan

PLAN = plan_for(a=make_facts(), b=make_facts(driver={"library": "590.48.1"}), c=make_facts(gpus=[]))


def edited(change: Callable[[dict[str, Any]], object], *, checksum: bool = False) -> str:
    body = json.loads(dump_plan(PLAN))
    change(body)
    if checksum:
        del body["checksum"]
        body["checksum"] = _checksum(body)
    return json.dumps(body)


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_plan(text, where="plan.json")
    return str(caught.value)


def test_a_plan_comes_back_as_it_was() -> None:
    loaded = load_plan(dump_plan(PLAN), where="plan.json")
    assert loaded == PLAN
    assert isinstance(loaded, Plan)
    assert loaded.stack.digest() == PLAN.stack.digest()


def test_raw_versions_survive() -> None:
    plan = plan_for(a=make_facts(driver=dict.fromkeys(("loaded", "on_disk", "library"), "590.48.01")))
    assert '"driver_loaded": "590.48.01"' in dump_plan(plan)


def test_a_rollbacks_record_is_not_a_plan_to_apply() -> None:
    plan = inverse_plan({"a": facts_on(make_stack())}, "1", now=NOW, plan_id="p-2", sources=("x",))
    assert "the plan contradicts itself\n  found:  kind: Input should be 'upgrade'" in refusal(dump_plan(plan))


def test_formatting_is_not_an_edit() -> None:
    assert load_plan(json.dumps(json.loads(dump_plan(PLAN))), where="plan.json") == PLAN


def test_an_edited_plan_is_refused() -> None:
    text = refusal(edited(lambda body: body["stack"].update(driver=">=580")))
    assert text.startswith("plan.json: the plan was changed after it was made\n  wanted: checksum ")
    assert text.endswith("  fix:    a plan is applied as it was reviewed; make a new plan with `cudaup plan`")


def test_a_plan_without_checksum_is_refused() -> None:
    assert "wanted: checksum None" in refusal(edited(lambda body: body.pop("checksum")))


def test_another_schema_version_is_refused_before_anything_else() -> None:
    assert refusal(edited(lambda body: body.update(schema_version=2, news="x"))) == (
        "plan.json: not a plan this cudaup reads\n"
        "  wanted: schema version 1\n"
        "  found:  2\n"
        "  fix:    make a new plan with `cudaup plan`"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    assert refusal(text).startswith("plan.json: not a plan\n  wanted: a JSON object\n")


def test_a_forged_plan_that_contradicts_itself_is_refused() -> None:
    text = refusal(edited(lambda body: body.update(waves=[["a"]]), checksum=True))
    assert text == (
        "plan.json: the plan contradicts itself\n"
        "  found:  wanted each changing host in exactly one wave, found waves of a\n"
        "  fix:    make a new plan with `cudaup plan`"
    )


def test_no_change_on_a_host_with_a_blocker() -> None:
    changing, blocked = PLAN.host("a"), PLAN.host("c")
    with pytest.raises(ValidationError, match="wanted no change on a host with a blocker, found a"):
        HostPlan.model_validate({**changing.model_dump(), "findings": blocked.findings})


def test_no_change_without_steps_or_fingerprint() -> None:
    changing = PLAN.host("a").model_dump()
    with pytest.raises(ValidationError, match="change with 0 steps"):
        HostPlan.model_validate({**changing, "steps": ()})
    with pytest.raises(ValidationError, match="wanted a fingerprint under every change"):
        HostPlan.model_validate({**changing, "fingerprint": None})


@pytest.mark.parametrize("waves", [(("a",), ("a", "b")), (("a", "b", "c"),), (("a", "b"), ("nobody",)), ()])
def test_waves_name_each_changing_host_once(waves: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(ValidationError, match="wanted each changing host in exactly one wave"):
        Plan.model_validate({**PLAN.model_dump(by_alias=True), "waves": waves})


def test_a_host_is_planned_once() -> None:
    twice = (HostPlan(host="a", verdict=HostVerdict.UNREACHABLE),) * 2
    with pytest.raises(ValidationError, match="wanted one plan per host, found a"):
        FleetPlan(id="p", created=NOW, sources=(), waves=(), hosts=twice)
