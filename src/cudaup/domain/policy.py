"""Whether a rollout may go on: a pure function of what was seen, that explains itself in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from cudaup.domain.outcome import Outcome
from cudaup.domain.value import Value

# A tenth of the fleet, and always one: a single bad host must not keep a good stack from the others.
BUDGET_SHARE = 10
# Where the way back is broken too, every further host may be one more service that is down.
_REFUSED = Outcome.REFUSED.exit_code
_STOPS_AT_ONCE = (Outcome.ROLLBACK_UNPROVEN, Outcome.ROLLBACK_FAILED)
_WENT_BACK = (Outcome.ROLLED_BACK, *_STOPS_AT_ONCE)


class Permission(Value):
    granted: bool
    why: str


def may_proceed(fleet_size: int, outcomes: Mapping[str, Outcome]) -> Permission:
    """One budget for the whole fleet. Refusals changed nothing and do not count; unreachable hosts do (P10).

    Nothing is allowed for before the stack has worked on one host, nor a host that could not be proven back.
    """
    budget = max(1, fleet_size // BUDGET_SHARE)
    failed = {host: outcome for host, outcome in sorted(outcomes.items()) if outcome.exit_code > _REFUSED}
    used = f"{len(failed)} of {budget} allowed failures used"
    if failed:
        used += f" by {', '.join(f'{host} ({outcome})' for host, outcome in failed.items())}"
    if failed and Outcome.APPLIED not in outcomes.values() and any(each in _WENT_BACK for each in failed.values()):
        return Permission(granted=False, why=f"it has worked nowhere yet; {used}")
    if any(outcome in _STOPS_AT_ONCE for outcome in failed.values()):
        return Permission(granted=False, why=f"a host could not be proven back; {used}")
    return Permission(granted=len(failed) <= budget, why=used)
