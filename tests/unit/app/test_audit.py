"""Generations on hosts: asked for their own GPU and driver, one host's failure beside the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.unit.app.fake_fleet import FakeHost, as_hosts, fleet_of, lost
from tests.unit.domain.builders import make_facts

from cudaup.adapters.auditor import BinaryAuditor
from cudaup.app.audit import audit_hosts
from cudaup.app.ports import HostReply
from cudaup.domain.audit import Asked, AuditReport

HOPPER = make_facts(gpus=[{**make_facts().gpus[0].model_dump(), "compute_cap": "9.0"}])
MIXED = make_facts(gpus=[gpu.model_dump() for gpu in (*HOPPER.gpus, *make_facts().gpus)])


@dataclass
class AuditedHost(FakeHost):
    asked: list[Sequence[str]] = field(default_factory=list)

    def do_audit(self, argv: Sequence[str], _data: bytes) -> HostReply:
        self.asked.append(argv)
        files = [{"path": "a.so", "verdict": "full", "of_a_newer_program": 1}]
        return HostReply(data={"generation": "0001-old", "audit": {"kind": "environment", "files": files}})


def audited(*hosts: AuditedHost, generation: str | None = None, asked: Asked | None = None) -> AuditReport:
    fleet = fleet_of(*hosts)
    return audit_hosts(BinaryAuditor(), fleet, tuple(as_hosts(fleet).values()), generation, asked or Asked(), ["a.so"])


def test_each_host_is_asked_for_its_own_gpu_and_driver() -> None:
    blackwell, hopper = AuditedHost("b"), AuditedHost("h", facts=HOPPER)
    report = audited(blackwell, hopper)
    assert [(target.target, target.kind, target.gpu.sm) for target in report.targets] == [
        ("b:0001-old", "generation", 120),
        ("h:0001-old", "generation", 90),
    ]
    assert blackwell.asked == [["audit", "--sm", "120", "--cuda", "13.1"]]
    assert report.exit_code == 0


def test_what_is_asked_for_wins_over_the_facts() -> None:
    host = AuditedHost("b")
    audited(host, generation="0002-new", asked=Asked(sm="12.1", cuda="13.5"))
    assert host.asked == [["audit", "0002-new", "--sm", "121", "--cuda", "13.5"]]
    assert host.calls == ["audit"]


def test_a_lost_host_and_one_with_two_kinds_of_gpus_stand_beside_the_others() -> None:
    report = audited(AuditedHost("a"), AuditedHost("b", breaks={"audit": lost()}), AuditedHost("c", facts=MIXED))
    errors = [target.error for target in report.targets]
    assert errors[0] is None
    assert errors[1] == "the connection broke"
    assert "which GPU?" in str(errors[2])
    assert "12.0, 9.0" in str(errors[2])
    assert [(miss.target, miss.reason) for miss in report.missed] == [
        ("b:current", "no such file"),
        ("c:current", "no such file"),
    ]
