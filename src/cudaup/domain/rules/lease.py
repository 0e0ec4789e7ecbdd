"""F: who else works on this host."""

from __future__ import annotations

from collections.abc import Iterator

from cudaup.domain.facts import Facts, LeaseState
from cudaup.domain.rules.finding import Finding, Rule, Severity

HELD = Rule(
    id="F001",
    severity=Severity.BLOCKER,
    title="another run holds the lease",
    consequence="two runs would undo each other's work",
    fix="wait for it or stop it; the lease expires by itself when its holder is gone",
)
QUARANTINED = Rule(
    id="F002",
    severity=Severity.BLOCKER,
    title="the host is in quarantine",
    consequence="an earlier run could not leave it proven",
    fix="look at the reason, repair the host, then `cudaup-host lease clear`",
)
IN_TRANSIT = Rule(
    id="F003",
    severity=Severity.BLOCKER,
    title="the host is between two generations",
    consequence="its timer settles it soon; a second switch would meet a moving target",
    fix="wait for the timer; sooner: `cudaup rollback`, or while a lease is held `cudaup-host rollback` on the host",
)
DAMAGED = Rule(
    id="F005",
    severity=Severity.BLOCKER,
    title="the host is not as cudaup left it",
    consequence="what would be switched, or gone back to, is not what it seems",
    fix="`cudaup rollback` mends links, drop-ins and what a damaged generation runs; a path that was replaced, by hand",
)
LEFT_BEHIND = Rule(
    id="F004",
    severity=Severity.INFO,
    title="an earlier run left an expired lease",
    consequence="it is taken over, and the earlier run is fenced off",
    fix="none needed",
)


def check_lease(facts: Facts) -> Iterator[Finding]:
    if facts.cudaup is None:
        return
    lease = facts.cudaup.lease
    words = f"{lease.holder or 'somebody'}, run {lease.run or 'unknown'}: {lease.reason or 'no reason given'}"
    if lease.state is LeaseState.QUARANTINED:
        yield QUARANTINED.found(f"put there by {words}")
    elif lease.is_held:
        left = "" if lease.remaining_s is None else f" (expires in {lease.remaining_s:.0f} s unless renewed)"
        yield HELD.found(f"held by {words}{left}")
    elif lease.state is LeaseState.HELD:
        yield LEFT_BEHIND.found(f"left by {words}")


def check_damage(facts: Facts) -> Iterator[Finding]:
    for text in facts.cudaup.damage if facts.cudaup else ():
        yield DAMAGED.found(text)


def check_transit(facts: Facts) -> Iterator[Finding]:
    transit = facts.cudaup.transit if facts.cudaup else None
    if transit is not None:
        alone = "" if transit.timer_alive else "; its timer is gone: only a rollback settles it"
        yield IN_TRANSIT.found(f"from {transit.from_ or 'nothing'} to {transit.to}, phase {transit.phase}{alone}")
