from __future__ import annotations

from typing import Any

import pytest

from cudaup.domain.audit import AuditReport, GpuAsked, TargetAudit, is_named, report_of, target_of

GPU = GpuAsked(sm=120)
PICKED, OTHER = "sgl_kernel/sm100/common_ops.abi3.so", "sgl_kernel/sm90/common_ops.abi3.so"


def target(verdicts: dict[str, str], kind: str = "wheel", name: str = "a.whl", **more: Any) -> TargetAudit:
    files = [{"path": path, "verdict": verdict} for path, verdict in verdicts.items()]
    return target_of(name, GPU, {"kind": kind, "files": files, **more})


def reasons(report: AuditReport) -> list[tuple[str, str | None, str]]:
    return [(miss.required, miss.path, miss.reason) for miss in report.missed]


@pytest.mark.parametrize(
    ("pattern", "is_it"),
    [
        ("common_ops", True),
        ("common_ops.abi3.so", True),
        ("sm100/common_ops.abi3.so", True),
        ("*/sm100/*", True),
        (PICKED, True),
        ("ops.abi3.so", False),
        ("common", False),
        ("sm90/common_ops.abi3.so", False),
    ],
)
def test_a_file_is_named_by_path_end_name_or_stem(pattern: str, is_it: bool) -> None:  # noqa: FBT001
    assert is_named(PICKED, pattern) is is_it


@pytest.mark.parametrize("verdict", ["full", "partial", "jit"])
def test_a_required_file_with_code_is_enough(verdict: str) -> None:
    report = report_of([target({PICKED: verdict})], ["common_ops"])
    assert (report.missed, report.exit_code) == ((), 0)


@pytest.mark.parametrize("verdict", ["dead", "unreadable", "no-gpu-code"])
def test_a_required_file_without_code_is_exit_3(verdict: str) -> None:
    report = report_of([target({PICKED: verdict})], ["common_ops"])
    assert reasons(report) == [("common_ops", PICKED, verdict)]
    assert report.exit_code == 3


def test_dead_files_that_nobody_requires_are_no_failure() -> None:
    assert report_of([target({PICKED: "dead"})], []).exit_code == 0


def test_only_the_file_that_the_loader_takes_counts() -> None:
    routes = [{"package": "sgl_kernel", "picks": PICKED, "others": [OTHER]}]
    assert report_of([target({PICKED: "full", OTHER: "dead"}, routes=routes)], ["common_ops"]).missed == ()
    assert reasons(report_of([target({PICKED: "dead", OTHER: "full"}, routes=routes)], ["common_ops"])) == [
        ("common_ops", PICKED, "dead")
    ]


def test_a_required_file_is_wanted_once_in_all_targets_and_on_each_host() -> None:
    one, two = target({PICKED: "full"}), target({"b.so": "full"}, name="b.whl")
    assert report_of([one, two], ["common_ops", "b.so"]).missed == ()
    assert reasons(report_of([one, two], ["c.so"])) == [("c.so", None, "no such file")]
    hosts = [target({PICKED: "full"}, "generation", "h1:1"), target({}, "generation", "h2:1")]
    assert [(miss.target, miss.reason) for miss in report_of(hosts, ["common_ops"]).missed] == [
        ("h2:1", "no such file")
    ]


@pytest.mark.parametrize(("kind", "misses"), [("abi", 1), ("cuda-major", 1), ("two-owners", 0)])
def test_a_required_file_that_cannot_be_loaded_is_of_no_use_either(kind: str, misses: int) -> None:
    faults = [{"kind": kind, "text": "built for another torch", "paths": [PICKED]}]
    assert len(report_of([target({PICKED: "full"}, faults=faults)], ["common_ops"]).missed) == misses


def test_a_target_that_cannot_be_read_is_exit_1() -> None:
    failed = TargetAudit(target="x.whl", kind="unknown", gpu=GPU, error="not a wheel")
    assert report_of([target({PICKED: "full"}), failed], []).exit_code == 1
    assert report_of([failed], ["common_ops"]).exit_code == 3


def test_the_worst_come_first() -> None:
    verdicts = ["full", "no-gpu-code", "dead", "jit-source", "unreadable", "partial", "jit"]
    found = target({f"{n}.so": verdict for n, verdict in enumerate(verdicts)})
    assert [str(file.verdict) for file in found.worst_first] == [
        "unreadable",
        "dead",
        "jit",
        "partial",
        "full",
        "jit-source",
        "no-gpu-code",
    ]


def test_the_report_can_be_read_back_and_names_its_schema() -> None:
    report = report_of([target({PICKED: "full"})], ["common_ops"])
    text = report.model_dump_json()
    assert '"schema_version":1' in text
    assert AuditReport.model_validate_json(text) == report
