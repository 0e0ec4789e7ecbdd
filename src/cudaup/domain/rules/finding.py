"""A numbered rule, and what it found on one host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cudaup.domain.value import Value


class Severity(StrEnum):
    BLOCKER = "blocker"
    WARNING = "warning"
    INFO = "info"


class Finding(Value):
    """`simulated`: the evidence comes from facts that a lab made up."""

    rule: str
    severity: Severity
    evidence: str
    consequence: str
    fix: str
    simulated: bool = False

    @property
    def blocks(self) -> bool:
        return self.severity is Severity.BLOCKER


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a finding says on every host; only the evidence differs. `docs/rules.md` holds the same table."""

    id: str
    severity: Severity
    title: str
    consequence: str
    fix: str

    def found(self, evidence: str, *, simulated: bool = False) -> Finding:
        return Finding(
            rule=self.id,
            severity=self.severity,
            evidence=evidence,
            consequence=self.consequence,
            fix=self.fix,
            simulated=simulated,
        )
