from __future__ import annotations

from tests.unit.domain.builders import NOW, as_json, facts_on, make_facts, make_stack, make_status, start_for

from cudaup.domain.facts import SmokeCase, Unreachable, Verdict
from cudaup.domain.journal import HostSettled, RunEnded
from cudaup.domain.outcome import Outcome
from cudaup.domain.planner import build_plan
from cudaup.domain.report import report_of
from cudaup.ui.text import fleet_text, plan_text, report_text

STACK = make_stack()


def test_hosts_with_the_same_plan_are_told_once_and_what_is_simulated_says_so() -> None:
    observed = {"a": make_facts(), "b": make_facts(), "c": make_facts(driver={"loaded": "580.159.04"})}
    plan = build_plan(STACK, observed, now=NOW, plan_id="p-1", sources=("h",))
    text = plan_text(plan)
    assert text.splitlines()[0] == "Plan p-1: 3 hosts to stack cu130-demo"
    assert "a, b: will change  [simulated: gpus, driver]" in text
    assert text.count("1. lease: ") == 1
    assert "c: BLOCKED" in text
    assert "580.159.04" in text
    assert text.splitlines()[-2:] == ["2 will change; 1 BLOCKED", "Waves: a | b"]


def test_an_unreachable_host_shows_every_line_of_its_reason() -> None:
    plan = build_plan(STACK, {"a": Unreachable(reason="one\n  fix: two")}, now=NOW, plan_id="p", sources=("h",))
    assert "a: UNREACHABLE\n    one\n      fix: two" in plan_text(plan)


def settled(host: str, outcome: Outcome, reason: str, case: SmokeCase) -> HostSettled:
    return HostSettled(time=NOW, host=host, outcome=outcome, reason=reason, smoke=(case,))


def test_a_report_folds_what_is_alike_and_never_hides_a_simulated_case() -> None:
    case = SmokeCase(case="launch", verdict=Verdict.WAIVED, reason="GPUs are simulated\nmore", simulated=True)
    ends = tuple(settled(host, Outcome.REFUSED, "moved\n  found: boot id", case) for host in "ab")
    text = report_text(report_of(as_json((start_for("a", "b"), *ends, RunEnded(time=NOW)))))
    assert text.splitlines() == [
        "Run r-1",
        "",
        "a, b: refused: moved  [simulated: gpus, driver]",
        "      found: boot id",
        "    smoke launch     waived: GPUs are simulated  [simulated]",
        "",
        "2 refused; exit code 3",
    ]


def test_the_fleet_table_names_generation_proof_and_what_cannot_be_reached() -> None:
    lines = fleet_text({"a": facts_on(STACK), "bb": Unreachable(reason="no route"), "c": make_facts()}).splitlines()
    generation = f"0002-{STACK.digest()[:6]}"
    assert lines[1].split()[:5] == ["a", generation, "cu130-demo", "proven", "0001-aaaaaa"]
    assert lines[1].endswith("8x 12.0 (simulated)")
    assert lines[2].split() == ["bb", "?", "unreachable"]
    assert lines[3].split()[3] == "untouched"
    assert lines[4] == "bb: no route"


def test_a_host_whose_last_switch_went_back_says_so() -> None:
    lines = []
    for end in ("confirmed", "proven"):
        last = {"epoch": 3, "end": end}
        lines.append(fleet_text({"a": make_facts(cudaup=make_status(last_end=last))}).splitlines()[1])
    assert ["proven, went back" in line for line in lines] == [False, True], lines


def test_everything_that_is_wrong_with_a_host_is_in_its_row() -> None:
    transit = {"from": "0001-aaaaaa", "to": "0002-bbbbbb", "epoch": 3, "phase": "stopped", "abandoned": True}
    lease = {"state": "held", "epoch": 3, "holder": "bob", "run": "r", "reason": "x", "remaining_s": 9}
    down = [{"unit": "ml.service", "active": "failed"}]
    observed = {
        "transit": make_facts(cudaup=make_status(transit=transit, lease=lease), services=down),
        "quarantine": make_facts(
            cudaup=make_status(lease={"state": "quarantined", "epoch": 3, "reason": "y"}), services=down
        ),
        "damage": make_facts(cudaup=make_status(current=None, damage=["no current"])),
        "leased": make_facts(cudaup=make_status(current=None, generations=[], adopted=[], lease=lease)),
    }
    rows = {line.split()[0]: line for line in fleet_text(observed).splitlines()}
    assert "in transit to 0002-bbbbbb (stopped, OVERDUE); SERVICE DOWN: ml.service failed" in rows["transit"]
    assert "QUARANTINED: y; SERVICE DOWN: ml.service failed" in rows["quarantine"]
    assert "DAMAGED: no current" in rows["damage"]
    assert ("untouched" in rows["leased"], "held by bob (9 s)" in rows["leased"]) == (True, True)
