from __future__ import annotations

from typing import Any

import pytest
from tests.unit.domain.builders import (
    NOW,
    OLD,
    facts_on,
    make_facts,
    make_generation,
    make_stack,
    make_status,
)

from cudaup.domain.facts import Facts, Unreachable
from cudaup.domain.plan import Action, HostPlan, HostVerdict, name_waves
from cudaup.domain.planner import build_plan, drift, plan_host

STACK = make_stack()


def planned(facts: Facts) -> HostPlan:
    return plan_host("gpu-1", facts, STACK, NOW)


def ids(plan: HostPlan) -> list[str]:
    return [step.action.value for step in plan.steps]


def parts(plan: HostPlan) -> list[str]:
    """The verbs of what is prepared."""
    return [part.split()[0] for step in plan.steps for part in step.parts]


def test_a_first_upgrade_adopts_builds_and_switches() -> None:
    plan = planned(make_facts())
    assert plan.verdict is HostVerdict.CHANGE
    assert ids(plan) == ["lease", "relay", "prepare", "activate", "confirm", "release"]
    assert parts(plan) == ["install", "adopt", "build"]
    assert (plan.from_generation, plan.to_name, plan.to_digest) == (None, "cu130-demo", STACK.digest())


def test_a_later_upgrade_does_not_adopt_again() -> None:
    plan = planned(make_facts(environment={"state": "adopted"}, cudaup=make_status()))
    assert parts(plan) == ["install", "build"]
    assert plan.from_generation == OLD["id"]
    assert [step.undo for step in plan.steps if step.action is Action.CONFIRM] == [
        "`cudaup-host rollback --to 0001-aaaaaa`"
    ]


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        (None, "install the host program: it does the work, and puts the host back without an operator"),
        ("b" * 64, f"replace the host program {'b' * 12} by {'a' * 12}: it is another one, or was changed"),
        ("a" * 64, None),
    ],
)
def test_another_host_program_on_the_host_is_told_by_its_hash(installed: str | None, said: str | None) -> None:
    facts = make_facts(environment={"state": "adopted"}, cudaup=make_status(installed_sha256=installed))
    plan = plan_host("gpu-1", facts, STACK, NOW, "a" * 64)
    about = [part for step in plan.steps for part in step.parts if "host program" in part]
    assert about == ([said] if said else [])


def test_a_generation_that_is_there_is_not_built_again() -> None:
    there = make_generation(2, STACK.digest())
    facts = make_facts(environment={"state": "adopted"}, cudaup=make_status(generations=[OLD, there]))
    plan = planned(facts)
    assert ids(plan) == ["lease", "prepare", "activate", "confirm", "release"]
    assert parts(plan) == ["install"]
    assert f"generation {there['id']} is built already" in plan.left_alone


def test_a_host_on_the_stack_is_unchanged_whatever_the_rules_say() -> None:
    plan = planned(facts_on(STACK, host={"uid": 1000}))
    assert (plan.verdict, plan.steps) == (HostVerdict.UNCHANGED, ())
    assert [finding.rule for finding in plan.blockers] == ["H008"]
    assert plan.left_alone == ("runs cu130-demo already, confirmed",)


@pytest.mark.parametrize(
    "changes",
    [
        {"current": make_generation(2, STACK.digest(), confirmed=False)},
        {"current": OLD},
        {"current": None},
    ],
)
def test_only_a_confirmed_generation_of_the_stack_is_unchanged(changes: dict[str, Any]) -> None:
    facts = make_facts(environment={"state": "adopted"}, cudaup=make_status(**changes))
    assert planned(facts).verdict is HostVerdict.CHANGE


def test_a_quarantined_host_is_not_unchanged() -> None:
    current = make_generation(2, STACK.digest())
    quarantined = make_status(current=current, lease={"state": "quarantined", "epoch": 3})
    assert planned(make_facts(cudaup=quarantined)).verdict is HostVerdict.BLOCKED


def test_a_host_in_transit_to_the_stack_is_not_unchanged() -> None:
    transit = {"from": OLD["id"], "to": "0002", "epoch": 3, "phase": "awaiting-confirm"}
    current = make_generation(2, STACK.digest())
    plan = planned(make_facts(cudaup=make_status(current=current, transit=transit)))
    assert (plan.verdict, plan.blockers[0].rule) == (HostVerdict.BLOCKED, "F003")


def test_a_blocker_leaves_no_steps() -> None:
    plan = planned(make_facts(gpus=[]))
    assert (plan.verdict, plan.steps) == (HostVerdict.BLOCKED, ())
    assert [finding.rule for finding in plan.blockers] == ["G001"]


def test_an_unreachable_host_keeps_its_error() -> None:
    plan = plan_host("gpu-1", Unreachable(reason="no route to host"), STACK, NOW)
    assert (plan.verdict, plan.error) == (HostVerdict.UNREACHABLE, "no route to host")


def test_what_is_left_alone_is_said() -> None:
    assert planned(make_facts()).left_alone == (
        "driver 590.48.01 stays",
        "the files of /root/ml-env stay as they are",
        "/usr/local/cuda-12.8 stays",
    )
    spare = {"unit": "spare.service", "active": "inactive", "stays_down": True}
    left_alone = planned(make_facts(services=[spare])).left_alone
    assert left_alone[-1] == "spare.service is inactive and stays so"


def test_the_hooks_that_will_run_are_shown_for_review() -> None:
    hooks = {"bench": {"command": ["ml-bench", "--for", "two words"], "timeout_s": 90}}
    plan = plan_host("gpu-1", make_facts(), make_stack(hooks=hooks), NOW)
    activate = next(step for step in plan.steps if step.action is Action.ACTIVATE)
    assert activate.parts == ("hook bench: ml-bench --for 'two words' (at most 90 s)",)


def test_simulated_words_reach_the_plan() -> None:
    assert planned(make_facts()).simulated == ("gpus", "driver")
    assert planned(make_facts(simulated=[])).simulated == ()


def test_the_plan_of_a_mixed_fleet() -> None:
    observed: dict[str, Facts | Unreachable] = {
        "a": make_facts(),
        "b": Unreachable(reason="timeout"),
        "c": facts_on(STACK),
        "d": make_facts(gpus=[]),
        "e": make_facts(),
    }
    plan = build_plan(STACK, observed, now=NOW, plan_id="p-9", sources=("x.yml",), limit="all")
    verdicts = [host.verdict.value for host in plan.hosts]
    assert verdicts == ["change", "unreachable", "unchanged", "blocked", "change"]
    assert plan.waves == (("a",), ("e",))
    assert (plan.id, plan.created, plan.limit, plan.has_changes) == ("p-9", NOW, "all", True)
    assert plan.host("d").blockers[0].rule == "G001"


@pytest.mark.parametrize(
    ("hosts", "sizes"),
    [(0, []), (1, [1]), (3, [1, 2]), (8, [1, 2, 2, 2, 1]), (50, [1, 2, 4, 8, 12, 12, 11])],
)
def test_waves_begin_with_one_host_and_stay_below_a_quarter(hosts: int, sizes: list[int]) -> None:
    waves = name_waves(tuple(f"h{number}" for number in range(hosts)))
    assert [len(wave) for wave in waves] == sizes
    assert [name for wave in waves for name in wave] == [f"h{number}" for number in range(hosts)]


def moved(facts: Facts, before: Facts | None = None, now: float = NOW) -> list[str]:
    return [str(each) for each in drift(planned(before or make_facts()), facts, STACK, now)]


def test_nothing_moved() -> None:
    assert moved(make_facts(gpu_users=[], host={"time": NOW + 60}, simulated=[])) == []


SERVICE = {"unit": "ml.service", "active": "active", "pid": 812, "fragment_sha256": "f" * 64}
DISK = make_facts().disks[0].model_dump()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"host": {"boot_id": "other"}},
            ["boot id: planned for 11111111-2222-3333-4444-555555555555, found other"],
        ),
        ({"host": {"kernel": "6.2"}}, ["kernel: planned for 6.1.0-38-amd64, found 6.2"]),
        (
            {"driver": dict.fromkeys(("loaded", "on_disk", "library"), "590.48.02")},
            [
                "driver loaded: planned for 590.48.01, found 590.48.02",
                "driver on disk: planned for 590.48.01, found 590.48.02",
            ],
        ),
        ({"driver": dict.fromkeys(("loaded", "on_disk", "library"), "590.48.1")}, []),
        ({"environment": {"digest": "d" * 64}}, [f"environment digest: planned for {'e' * 64}, found {'d' * 64}"]),
        (
            {"services": []},
            [
                "service ml.service: planned for unit file ffffffffffff, found no such service",
                "rule H011: planned for no blocker, found no systemd unit runs from /root/ml-env",
            ],
        ),
        (
            {"services": [{**SERVICE, "fragment_sha256": "a" * 64}]},
            ["service ml.service: planned for unit file ffffffffffff, found unit file aaaaaaaaaaaa"],
        ),
        ({"services": [{**SERVICE, "pid": 99}]}, []),
        (
            {"disks": [{**DISK, "free_bytes": 0}]},
            [
                "has enough disk: planned for yes, found no",
                "rule H001: planned for no blocker, found /opt/cudaup (ext4) has 0 MiB free, needs 740 MiB",
            ],
        ),
        ({"disks": [{**DISK, "free_bytes": DISK["free_bytes"] - 1}]}, []),
        ({"host": {"uid": 7}}, ["rule H008: planned for no blocker, found user id is 7"]),
    ],
)
def test_what_moved_is_named(changes: dict[str, Any], what: list[str]) -> None:
    assert moved(make_facts(**changes)) == what


def test_a_gpu_that_was_swapped_counts_and_their_order_does_not() -> None:
    gpus = [gpu.model_dump() for gpu in make_facts().gpus]
    assert moved(make_facts(gpus=gpus[::-1])) == []
    (words,) = moved(make_facts(gpus=[*gpus[:7], {**gpus[7], "uuid": "GPU-new"}]))
    assert words.startswith("gpu uuids: planned for GPU-00000000, ")
    assert words.endswith("GPU-00000006, GPU-new")


def test_an_epoch_that_moved_counts() -> None:
    before, after = (make_facts(cudaup=make_status(lease={"epoch": epoch})) for epoch in (3, 4))
    assert moved(after, before) == ["lease epoch: planned for 3, found 4"]


def test_a_host_upgraded_by_someone_else_moved() -> None:
    before = make_facts(environment={"state": "adopted"}, cudaup=make_status())
    after = facts_on(STACK, environment={"state": "adopted"})
    new = f"0002-{STACK.digest()[:6]}"
    assert moved(after, before) == [
        f"generation: planned for 0001-aaaaaa, found {new}",
        f"generation digest: planned for {OLD['digest']}, found {STACK.digest()}",
    ]


def test_a_clock_that_went_wrong_since_counts() -> None:
    assert moved(make_facts(), now=NOW + 400) == [
        "rule H004: planned for no blocker, found 400 s behind the controller, allowed are 300 s"
    ]


def test_a_blocker_of_the_plan_is_no_news() -> None:
    blocked = make_facts(host={"uid": 7})
    assert moved(blocked, before=blocked) == []


def test_a_host_on_the_stack_whose_service_is_down_is_not_called_unchanged() -> None:
    down = {"unit": "ml.service", "active": "failed", "pid": None, "fragment_sha256": "f" * 64}
    plan = planned(facts_on(STACK, services=[down]))
    assert (plan.verdict, [finding.rule for finding in plan.blockers]) == (HostVerdict.BLOCKED, ["H010"])


def test_predicates_of_actions() -> None:
    disruptive = [action for action in Action if action.is_disruptive]
    assert disruptive == [Action.ACTIVATE, Action.ROLLBACK]
    assert [action for action in Action if not action.is_reversible] == [Action.RELEASE]
