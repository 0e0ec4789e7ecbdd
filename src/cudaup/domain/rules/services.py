"""H: the services that run from the environment. What is not running cannot be proven, before or after."""

from __future__ import annotations

from collections.abc import Iterator

from cudaup.domain.facts import Facts
from cudaup.domain.rules.finding import Finding, Rule, Severity
from cudaup.domain.stack import Stack

DOWN = Rule(
    id="H010",
    severity=Severity.BLOCKER,
    title="a service of the environment is not running",
    consequence="neither stack can be proven by it, and an upgrade would be blamed for it",
    fix="start it, or disable it to have it left down; `cudaup rollback` starts it on an earlier stack",
)
NONE = Rule(
    id="H011",
    severity=Severity.BLOCKER,
    title="no service runs from the environment, and the stack asks for health",
    consequence="the health check would be answered by something that is not switched",
    fix="correct `environment.path`, start the service from it, or give the stack hooks `stop` and `start`",
)


def check_services(facts: Facts, stack: Stack) -> Iterator[Finding]:
    for service in facts.services_down:
        yield DOWN.found(f"{service.unit} is {service.active}")
    is_run_by_hook = stack.hooks.start is not None
    nothing_runs = all(service.stays_down for service in facts.services)
    if nothing_runs and stack.health.is_asked and stack.environment is not None and not is_run_by_hook:
        yield NONE.found(f"no systemd unit runs from {stack.environment.path}")
