"""Preflight rules: pure questions about facts and stack, each numbered. `docs/rules.md` is their table."""

from __future__ import annotations

from collections.abc import Sequence

from cudaup.domain.audit import Missed
from cudaup.domain.facts import Facts
from cudaup.domain.rules import audit, driver, environment, gpu, host, lease, services
from cudaup.domain.rules.finding import Finding, Rule, Severity
from cudaup.domain.stack import Stack

__all__ = ["RULES", "Finding", "Rule", "Severity", "check"]

_FAMILIES = (audit, driver, environment, gpu, host, lease, services)
RULES = tuple(
    sorted(
        (rule for family in _FAMILIES for rule in vars(family).values() if isinstance(rule, Rule)),
        key=lambda rule: rule.id,
    )
)


def check(facts: Facts, stack: Stack, now: float, missed: Sequence[Missed] = ()) -> tuple[Finding, ...]:
    """Everything the rules find, blockers first; `now` is the controller's time, `missed` the audit's of the wheels."""
    found = [
        *lease.check_lease(facts),
        *lease.check_transit(facts),
        *lease.check_damage(facts),
        *host.check_machine(facts),
        *driver.check_driver(facts, stack),
        *gpu.check_gpus(facts, stack),
        *gpu.check_gpu_users(facts),
        *environment.check_environment(facts, stack),
        *environment.check_wheels(facts, stack),
        *environment.check_compiler(facts, stack),
        *audit.check_audit(facts, missed),
        *services.check_services(facts, stack),
        *host.check_space(facts, stack),
        *host.check_clock(facts, now),
    ]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))
