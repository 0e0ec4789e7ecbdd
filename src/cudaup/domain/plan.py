"""What will be done to which host and why: values only. `planner` makes them, `plan_file` keeps them."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from cudaup.domain.fingerprint import Fingerprint
from cudaup.domain.problem import wrong
from cudaup.domain.rules.finding import Finding
from cudaup.domain.rules.lease import QUARANTINED
from cudaup.domain.stack import Stack
from cudaup.domain.value import Value


class Action(StrEnum):
    """One kind of step; the engine knows how to do each."""

    LEASE = "lease"
    RELAY = "relay"
    PREPARE = "prepare"
    ACTIVATE = "activate"
    ROLLBACK = "rollback"
    CONFIRM = "confirm"
    RELEASE = "release"

    @property
    def is_disruptive(self) -> bool:
        """Whether the service stops for it."""
        return self in {Action.ACTIVATE, Action.ROLLBACK}

    @property
    def is_reversible(self) -> bool:
        """Whether the host can be put back to before it. Giving the lease back ends a run: nothing is left to undo."""
        return self is not Action.RELEASE


class Step(Value):
    """`parts` says in sentences what it consists of; `undo` is empty only where nothing needs undoing."""

    action: Action
    reason: str
    parts: tuple[str, ...] = ()
    precondition: str
    undo: str = ""


class HostVerdict(StrEnum):
    CHANGE = "change"
    UNCHANGED = "unchanged"
    BLOCKED = "blocked"
    UNREACHABLE = "unreachable"


class HostPlan(Value):
    """`left_alone` says in sentences what stays as it is; `error` why the host could not be reached."""

    host: str
    verdict: HostVerdict
    from_generation: str | None = None
    to_name: str = ""
    to_digest: str = ""
    steps: tuple[Step, ...] = ()
    findings: tuple[Finding, ...] = ()
    left_alone: tuple[str, ...] = ()
    fingerprint: Fingerprint | None = None
    simulated: tuple[str, ...] = ()
    error: str = ""

    @model_validator(mode="after")
    def _verdict_holds(self) -> HostPlan:
        changes = self.verdict is HostVerdict.CHANGE
        if changes is not bool(self.steps):
            raise wrong("steps exactly where the verdict is change", f"{self.verdict} with {len(self.steps)} steps")
        if changes and any(finding.blocks for finding in self.findings):
            raise wrong("no change on a host with a blocker", self.host)
        if changes and self.fingerprint is None:
            raise wrong("a fingerprint under every change", self.host)
        return self

    @property
    def is_quarantined(self) -> bool:
        return any(finding.rule == QUARANTINED.id for finding in self.findings)

    @property
    def blockers(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.blocks)


class FleetPlan(Value):
    """Waves name each host that changes exactly once. `sources` and `limit` say which inventory it was made for."""

    schema_version: Literal[1] = 1
    id: str
    created: float
    sources: tuple[str, ...]
    limit: str | None = None
    waves: tuple[tuple[str, ...], ...]
    hosts: tuple[HostPlan, ...]

    @model_validator(mode="after")
    def _waves_cover_the_changes(self) -> FleetPlan:
        names = [host.host for host in self.hosts]
        if len(set(names)) != len(names):
            raise wrong("one plan per host", ", ".join(name for name, times in Counter(names).items() if times > 1))
        in_waves = Counter(name for wave in self.waves for name in wave)
        if in_waves != Counter(host.host for host in self.changing):
            raise wrong("each changing host in exactly one wave", f"waves of {', '.join(in_waves) or 'nothing'}")
        return self

    @property
    def changing(self) -> tuple[HostPlan, ...]:
        return tuple(host for host in self.hosts if host.verdict is HostVerdict.CHANGE)

    @property
    def has_changes(self) -> bool:
        return bool(self.changing)

    def host(self, name: str) -> HostPlan:
        """Raises KeyError for a host that is not in the plan."""
        by_name = {host.host: host for host in self.hosts}
        return by_name[name]


class Plan(FleetPlan):
    """An upgrade to `stack`."""

    kind: Literal["upgrade"] = "upgrade"
    stack: Stack


class RollbackPlan(FleetPlan):
    """The way back to a generation that is on the hosts; `to` as the operator named it, None for the previous one."""

    kind: Literal["rollback"] = "rollback"
    to: str | None = Field(default=None)


def name_waves(hosts: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """One host first, then at most twice as many as before and never more than a quarter of a large fleet."""
    most = max(2, len(hosts) // 4)
    waves, size, rest = [], 1, hosts
    while rest:
        waves.append(rest[:size])
        rest, size = rest[size:], min(size * 2, most)
    return tuple(waves)
