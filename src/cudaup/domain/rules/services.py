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
    fix="start it, or see why it does not run (`systemctl status`); `cudaup rollback` starts it on an earlier stack",
)
NONE = Rule(
    id="H011",
    severity=Severity.BLOCKER,
    title="no service runs from the environment, and the stack asks for health",
    consequence="the health check would be answered by something that is not switched",
    fix="correct `environment.path`, start the service from it, or leave `health` out of the stack",
)


def check_services(facts: Facts, stack: Stack) -> Iterator[Finding]:
    for service in facts.services:
        if not service.is_running:
            yield DOWN.found(f"{service.unit} is {service.active}")
    if not facts.services and stack.health.is_asked and stack.environment is not None:
        yield NONE.found(f"no systemd unit runs from {stack.environment.path}")
