"""Whether a rollout may go on: a pure function of what was seen, that explains itself in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from cudaup.domain.outcome import Outcome
from cudaup.domain.value import Value

# A tenth of the fleet, and always one: a single bad host must not keep a good stack from the others.
BUDGET_SHARE = 10


class Permission(Value):
    granted: bool
    why: str


def may_proceed(fleet_size: int, outcomes: Mapping[str, Outcome]) -> Permission:
    """One budget for the whole fleet. Refusals changed nothing and do not count; unreachable hosts do (P10)."""
    budget = max(1, fleet_size // BUDGET_SHARE)
    failed = {host: outcome for host, outcome in outcomes.items() if outcome.exit_code > Outcome.REFUSED.exit_code}
    used = f"{len(failed)} of {budget} allowed failures used"
    names = ", ".join(f"{host} ({outcome})" for host, outcome in sorted(failed.items()))
    return Permission(granted=len(failed) <= budget, why=f"{used} by {names}" if names else used)
