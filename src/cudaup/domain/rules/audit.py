"""A: what an audit of the wheels found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudaup.domain.audit import Missed
from cudaup.domain.facts import Facts
from cudaup.domain.rules.finding import Finding, Rule, Severity

NO_CODE = Rule(
    id="A001",
    severity=Severity.BLOCKER,
    title="a required file has no code for these GPUs",
    consequence="every call into it fails with `no kernel image is available`",
    fix="choose a wheel that was built for these GPUs: `cudaup audit WHEEL --sm N` reads what it has",
)


def check_audit(facts: Facts, missed: Sequence[Missed]) -> Iterator[Finding]:
    if missed:
        yield NO_CODE.found("; ".join(each.told for each in missed), simulated="driver" in facts.simulated)
