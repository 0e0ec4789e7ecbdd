from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.domain.builders import NOW, facts_on, make_facts, make_stack, make_status, make_wheel

from cudaup.domain import rollback
from cudaup.domain.facts import Facts
from cudaup.domain.rules import RULES, Finding, Rule, Severity, check
from cudaup.domain.rules.host import MIB, needed_bytes, needed_inodes
from cudaup.domain.stack import Stack

ROOT = Path(__file__).parents[3]
SERVICE = {"unit": "ml.service", "active": "active", "pid": 812, "fragment_sha256": "f" * 64}


def findings(facts: Facts, stack: Stack | None = None) -> dict[str, Finding]:
    return {finding.rule: finding for finding in check(facts, stack or make_stack(), NOW)}


def evidence(facts: Facts, stack: Stack | None = None) -> dict[str, str]:
    """Of blockers and warnings."""
    found = findings(facts, stack)
    return {rule: finding.evidence for rule, finding in found.items() if finding.severity is not Severity.INFO}


def test_a_healthy_host_has_nothing_against_it() -> None:
    assert evidence(make_facts()) == {}


def test_580_is_refused_where_590_is_wanted() -> None:
    old = dict.fromkeys(("loaded", "on_disk", "library"), "580.159.04")
    (finding,) = (each for each in check(make_facts(driver=old), make_stack(), NOW) if each.blocks)
    assert finding == Finding(
        rule="D002",
        severity=Severity.BLOCKER,
        evidence="driver 580.159.04 is loaded, stack wants >=590,<591",
        consequence="the new stack's kernels may be refused or silently fall back to another path",
        fix="change the driver first, or the stack's range if it is too narrow",
        simulated=True,
    )


def disk(**changes: Any) -> list[dict[str, Any]]:
    return [{**make_facts().disks[0].model_dump(), **changes}]


GPU = make_facts().gpus[0].model_dump()
HELD = {"state": "held", "epoch": 4, "holder": "ann@laptop", "run": "r-7", "reason": "upgrade", "remaining_s": 41.5}

CASES: list[tuple[dict[str, Any], dict[str, str]]] = [
    (
        {"driver": {"loaded": None, "on_disk": None, "library": None}},
        {"D001": "stack wants >=590,<591, none is loaded"},
    ),
    (
        {"driver": {"loaded": "580.65.06"}},  # what is on disk does not help before the reboot
        {
            "D002": "driver 580.65.06 is loaded, stack wants >=590,<591",
            "D003": "loaded 580.65.06, on disk 590.48.01, library 590.48.01",
        },
    ),
    (
        {"driver": {"on_disk": "590.99.01"}},
        {"D003": "loaded 590.48.01, on disk 590.99.01, library 590.48.01"},
    ),
    (
        {"driver": {"library": "590.48.02"}},
        {"D003": "loaded 590.48.01, on disk 590.48.01, library 590.48.02"},
    ),
    ({"driver": {"on_disk": "590.48.1"}}, {}),  # the same version in other text
    (
        {"disks": disk(free_bytes=700 * MIB)},
        {"H001": "/opt/cudaup (ext4) has 700 MiB free, needs 740 MiB"},
    ),
    (
        {"disks": disk(free_inodes=100)},
        {"H002": "/opt/cudaup (ext4) has 100 inodes free, needs 5950"},
    ),
    ({"disks": disk(free_inodes=0, total_inodes=0)}, {}),  # btrfs makes them as needed
    ({"disks": []}, {"H003": "no disk is reported for /opt/cudaup"}),
    ({"disks": disk(path="/opt/cuda")}, {"H003": "no disk is reported for /opt/cudaup"}),
    ({"disks": disk(path="/")}, {}),
    ({"host": {"time": NOW + 301}}, {"H004": "301 s ahead of the controller, allowed are 300 s"}),
    ({"host": {"time": NOW - 86400}}, {"H004": "86400 s behind the controller, allowed are 300 s"}),
    ({"host": {"time": NOW - 300}}, {}),
    ({"host": {"clock_synced": False}}, {}),
    ({"services": [{**SERVICE, "active": "failed"}]}, {"H010": "ml.service is failed"}),
    ({"services": [{**SERVICE, "active": "reloading"}]}, {}),
    ({"services": [SERVICE, {"unit": "spare.service", "active": "inactive", "stays_down": True}]}, {}),
    (
        {"services": [{**SERVICE, "active": "inactive", "stays_down": True}], "gpu_users": []},
        {"H011": "no systemd unit runs from /root/ml-env"},
    ),
    ({"services": [], "gpu_users": []}, {"H011": "no systemd unit runs from /root/ml-env"}),
    ({"environment": {"kind": "none"}}, {"E006": "/root/ml-env has no pyvenv.cfg and no conda-meta"}),
    ({"environment": {"unfit": "it lies on nfs4"}}, {"E007": "/root/ml-env: it lies on nfs4"}),
    ({"environment": {"kind": "none", "state": "adopted"}}, {}),
    ({"host": {"clock_synced": None}}, {}),
    ({"host": {"init": "other"}}, {"H007": "init is other"}),
    ({"host": {"uid": 1000}}, {"H008": "user id is 1000"}),
    (
        {"host": {"glibc": "2.27"}},
        {"E001": "glibc is 2.27, wanted by numpy 2.3.1 (2.28)"},
    ),
    (
        {"host": {"glibc": None}},
        {"E001": "glibc is not found, wanted by numpy 2.3.1 (2.28), nvidia-cuda-nvcc 13.0.88 (2.17), uv 0.13.9 (2.17)"},
    ),
    (
        {"pythons": [{"path": "/usr/bin/python3.12", "version": "3.12.3"}]},
        {"E002": "stack wants Python >=3.11,<3.12, found /usr/bin/python3.12 3.12.3"},
    ),
    ({"pythons": []}, {"E002": "stack wants Python >=3.11,<3.12, found none"}),
    ({"environment": None}, {"E004": "/root/ml-env does not exist"}),
    ({"environment": {"state": "absent"}}, {"E004": "/root/ml-env does not exist"}),
    (
        {"environment": {"state": "link", "real": "/data/env"}},
        {"E005": "/root/ml-env is a link to /data/env"},
    ),
    ({"environment": {"state": "adopted"}}, {}),
    ({"compilers": []}, {"T001": "toolkit 13.0 is wanted, no C++ compiler was found"}),
    ({"gpus": []}, {"G001": "stack wants compute capability 12.0, found no GPU"}),
    (
        {"gpus": [{**GPU, "compute_cap": "9.0", "name": "NVIDIA H200"}] * 8},
        {"G002": "stack wants 12.0, found 8x 9.0 (NVIDIA H200)"},
    ),
    (
        {"gpus": [GPU] * 7 + [{**GPU, "compute_cap": "8.9"}]},
        {"G003": "stack wants 12.0, found 7x 12.0, 1x 8.9"},
    ),
    ({"gpus": [GPU] * 7}, {"G004": "stack wants 8, found 7x 12.0"}),
    (
        {"gpu_users": [{"pid": 99, "name": "jupyter", "memory_mib": 512}]},
        {"G005": "process 99 (jupyter, 512 MiB)"},
    ),
    (
        {"cudaup": make_status(lease=HELD)},
        {"F001": "held by ann@laptop, run r-7: upgrade (expires in 42 s unless renewed)"},
    ),
    ({"cudaup": make_status(lease={**HELD, "expired": True})}, {}),
    (
        {"cudaup": make_status(lease={**HELD, "state": "quarantined", "expired": True})},
        {"F002": "put there by ann@laptop, run r-7: upgrade"},
    ),
    (
        {"cudaup": make_status(transit={"from": "0001-aaaaaa", "to": "0002-bbbbbb", "epoch": 3, "phase": "switched"})},
        {"F003": "from 0001-aaaaaa to 0002-bbbbbb, phase switched"},
    ),
    (
        {"cudaup": make_status(transit={"from": "1", "to": "2", "epoch": 3, "phase": "stopped", "timer_alive": False})},
        {"F003": "from 1 to 2, phase stopped; its timer is gone: only a rollback settles it"},
    ),
]


@pytest.mark.parametrize(("changes", "expected"), CASES)
def test_evidence(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert evidence(make_facts(**changes)) == expected


def test_another_machine_takes_neither_wheels_nor_us() -> None:
    assert evidence(make_facts(host={"arch": "aarch64"})) == {
        "H006": "machine is aarch64",
        "E003": "Python 3.11.2 on aarch64 takes none of numpy-2.3.1-cp311-cp311-manylinux_2_28_x86_64.whl, "
        "nvidia_cuda_nvcc-13.0.88-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    }


def test_one_fitting_python_of_several_is_enough() -> None:
    pythons = [{"path": f"/usr/bin/python3.{minor}", "version": f"3.{minor}.1"} for minor in (13, 12, 11)]
    assert evidence(make_facts(pythons=pythons), make_stack(python=">=3.11")) == {}
    assert evidence(make_facts(pythons=pythons[:2]), make_stack(python=">=3.11")) == {
        "E003": "Python 3.13.1 on x86_64 takes none of numpy-2.3.1-cp311-cp311-manylinux_2_28_x86_64.whl"
    }


@pytest.mark.parametrize(
    ("changes", "rule", "words"),
    [
        ({}, "G006", "process 812 (python, 90000 MiB) is ml.service"),
        (
            {"problems": ["nvidia-smi: not found", "lspci: timed out"]},
            "H009",
            "nvidia-smi: not found; lspci: timed out",
        ),
        ({"cudaup": make_status(lease={**HELD, "expired": True})}, "F004", "left by ann@laptop, run r-7: upgrade"),
    ],
)
def test_what_is_only_said(changes: dict[str, Any], rule: str, words: str) -> None:
    found = findings(make_facts(**changes))[rule]
    assert (found.severity, found.evidence) == (Severity.INFO, words)


def test_without_a_compiling_case_a_missing_compiler_is_a_warning() -> None:
    stack = make_stack(smoke={"cases": ["imports"], "accept": {}, "limits": {}})
    found = findings(make_facts(compilers=[]), stack)
    assert found["T002"].severity is Severity.WARNING
    assert "T001" not in found


def test_a_stack_without_gpus_asks_for_none() -> None:
    cpu_only = make_stack(gpus=None, driver=None, smoke={"sm": "120"})
    bare = make_facts(gpus=[], driver={"loaded": None, "on_disk": None, "library": None})
    assert evidence(bare, cpu_only) == {}


def test_a_generation_that_is_there_needs_no_space() -> None:
    assert evidence(facts_on(make_stack(), disks=disk(free_bytes=0, free_inodes=0))) == {}


@pytest.mark.parametrize("parts", [["gpus", "driver"], []])
def test_simulated_evidence_says_so(parts: list[str]) -> None:
    ill = make_facts(gpus=[], driver={"loaded": None, "on_disk": None, "library": None}, disks=[], simulated=parts)
    found = findings(ill)
    assert [found[rule].simulated for rule in ("G001", "D001", "H003")] == [bool(parts), bool(parts), False]


def test_without_a_health_check_no_service_has_to_run_from_the_environment() -> None:
    assert evidence(make_facts(services=[], gpu_users=[]), make_stack(health={"http": None})) == {}


def test_a_hook_may_run_what_the_health_check_asks() -> None:
    hook = {"command": ["ml"], "timeout_s": 9}
    assert evidence(make_facts(services=[], gpu_users=[]), make_stack(hooks={"stop": hook, "start": hook})) == {}


def test_blockers_come_first() -> None:
    ill = make_facts(host={"clock_synced": False, "init": "other", "uid": 1})
    severities = [finding.severity.value for finding in check(ill, make_stack(), NOW)]
    assert severities == ["blocker", "warning", "info", "info"]


def test_needed_space_is_packed_and_unpacked_wheels_with_some_to_spare() -> None:
    wheel = make_wheel(size=100 * MIB)
    assert needed_bytes([wheel]) == 912 * MIB
    assert needed_inodes([wheel]) == 2_000 + 100 + 6_553


def row(rule: Rule) -> str:
    return f"| {rule.id} | {rule.severity} | {rule.title} | {rule.consequence} | {rule.fix} |"


def test_the_page_of_rules_is_the_rules() -> None:
    page = (ROOT / "docs" / "rules.md").read_text().splitlines()
    documented = [line for line in page if line.startswith("| ") and line[2:3].isupper() and line[3:6].isdigit()]
    assert documented == [row(rule) for rule in (*RULES, *rollback.RULES)]


def test_rule_ids_are_unique() -> None:
    ids = [rule.id for rule in (*RULES, *rollback.RULES)]
    assert len(set(ids)) == len(ids)
