"""The audit gate: real wheels of real binaries in the controller's own store; hosts that answer what is installed."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.app.fake_fleet import STACK, FakeFleet, FakeHost, as_hosts, fleet_of, run_on
from tests.unit.audit.cases import content
from tests.unit.domain.builders import NOW, make_facts

from cudaup.adapters.auditor import BinaryAuditor
from cudaup.adapters.wheels import PipWheelStore
from cudaup.app.apply import Preparing, apply_plan
from cudaup.app.gate import missed_by_host
from cudaup.app.ports import HostReply
from cudaup.domain.facts import Facts, Unreachable
from cudaup.domain.lockfile import Wheel
from cudaup.domain.outcome import Outcome
from cudaup.domain.planner import build_plan, plan_host
from cudaup.domain.report import HostReport, report_of
from cudaup.domain.stack import Stack
from cudaup.domain.stack_sections import AuditGate

OLD_DRIVER = make_facts(driver={"loaded": "570.86.15", "on_disk": "570.86.15", "library": "570.86.15"})


def put(cache: Path, name: str, **members: str) -> Wheel:
    """A wheel in the store, fetched already; `members` are binaries of tests/cases/audit by their name in it."""
    path = cache / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, case in members.items():
            archive.writestr(f"{name}/{inside}.so", content(case))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    wheel = Wheel(name=name, version="1.0", filename=path.name, sha256=sha256, size=path.stat().st_size)
    target = cache / "wheels" / sha256 / path.name
    target.parent.mkdir(parents=True)
    path.rename(target)
    return wheel


def stack_of(*wheels: Wheel, require: Sequence[str]) -> Stack:
    return STACK.model_copy(update={"wheels": wheels, "audit": AuditGate(require=tuple(require))})


def missed(cache: Path, stack: Stack, **observed: Facts | Unreachable) -> dict[str, list[str]]:
    found = missed_by_host(BinaryAuditor(), PipWheelStore(cache), stack, observed)
    return {host: [each.told for each in misses] for host, misses in found.items()}


def test_only_the_required_files_count_each_for_the_hosts_own_driver(tmp_path: Path) -> None:
    kernels = put(tmp_path, "kernels", common_ops="older.so", good="sm_120.so", dead="sm_90a.cubin")
    stack = stack_of(kernels, require=["good", "common_ops"])
    told = missed(tmp_path, stack, new=make_facts(), old=OLD_DRIVER, lost=Unreachable(reason="no route"))
    assert told["new"] == []  # its driver compiles the PTX
    assert told["old"] == ["kernels/common_ops.so: dead"]
    assert set(told) == {"new", "old"}
    assert missed(tmp_path, stack_of(kernels, require=[]), old=OLD_DRIVER) == {"old": []}


def test_the_variant_that_the_smoke_compiles_is_not_the_gpus_number(tmp_path: Path) -> None:
    kernels = put(tmp_path, "kernels", common_ops="sm_120a.so", other="sm_90a.cubin")
    stack = stack_of(kernels, require=["common_ops", "other"])
    stack = stack.model_copy(update={"smoke": stack.smoke.model_copy(update={"sm": "120f"})})
    assert missed(tmp_path, stack, a=make_facts()) == {"a": ["kernels/other.so: dead"]}


def test_what_no_wheel_has_is_missed_once_all_of_them_are_here(tmp_path: Path) -> None:
    here = put(tmp_path, "kernels", good="sm_120.so")
    elsewhere = here.model_copy(update={"sha256": "0" * 64, "name": "other"})
    assert missed(tmp_path, stack_of(here, elsewhere, require=["lost"]), a=make_facts()) == {"a": []}
    assert missed(tmp_path, stack_of(here, require=["lost"]), a=make_facts()) == {"a": ["lost: no such file"]}


def test_a_plan_says_that_a_required_file_is_dead(tmp_path: Path) -> None:
    stack = stack_of(put(tmp_path, "kernels", common_ops="sm_90a.cubin"), require=["common_ops"])
    facts = make_facts()
    plan = build_plan(
        stack,
        {"a": facts},
        now=NOW,
        plan_id="p-1",
        sources=(),
        missed=missed_by_host(BinaryAuditor(), PipWheelStore(tmp_path), stack, {"a": facts}),
    )
    (blocker,) = plan.hosts[0].blockers
    assert (blocker.rule, blocker.evidence) == ("A001", "kernels/common_ops.so: dead")
    assert plan_host("a", facts, stack, NOW).blockers == ()


class InstalledHost(FakeHost):
    """`installed` is what it answers of its new generation."""

    installed: Mapping[str, Any]

    def do_audit(self, argv: Sequence[str], _data: bytes) -> HostReply:
        assert argv[2:] == ["--sm", "120", "--cuda", "13.1"]
        return HostReply(data={"generation": argv[1], "audit": {"kind": "environment", **self.installed}})


def applied(fleet: FakeFleet, stack: Stack) -> HostReport:
    plan = build_plan(stack, {"a": fleet.hosts["a"].facts}, now=NOW, plan_id="p-1", sources=())
    preparing = Preparing(plays=fleet, wheels=fleet, auditor=BinaryAuditor())
    apply_plan(run_on(fleet), plan, as_hosts(fleet), preparing)
    return report_of(fleet.journal).hosts[0]


@pytest.mark.parametrize(
    ("verdict", "faults", "reason"),
    [
        ("full", [], ""),
        ("dead", [], "a.so: dead"),
        ("full", [{"kind": "abi", "text": "built for another torch", "paths": ["a.so"]}], "built for another torch"),
    ],
)
def test_what_was_installed_is_audited_before_anything_stops(verdict: str, faults: list[Any], reason: str) -> None:
    host = InstalledHost("a")
    host.installed = {"files": [{"path": "a.so", "verdict": verdict}], "faults": faults}
    settled = applied(fleet_of(host), STACK.model_copy(update={"audit": AuditGate(require=("a.so",))}))
    assert settled.outcome is (Outcome.REFUSED if reason else Outcome.APPLIED)
    assert reason in settled.reason
    assert ("activate" in host.calls) is not bool(reason)
    assert host.state["lease"]["state"] == "free"


def test_wheels_that_cannot_work_are_not_sent_to_any_host(tmp_path: Path) -> None:
    wheel = put(tmp_path, "kernels", common_ops="sm_90a.cubin")
    fleet = fleet_of(FakeHost("a"))
    fleet.here = PipWheelStore(tmp_path).fetched([wheel])
    settled = applied(fleet, stack_of(wheel, require=["common_ops"]))
    assert (settled.outcome, "common_ops.so: dead" in settled.reason) == (Outcome.REFUSED, True)
    assert fleet.hosts["a"].calls == ["facts"]
