"""How a host ended, and what the process exits with. The codes are in the design's list: worst wins."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Outcome(StrEnum):
    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    ROLLED_BACK = "rolled-back"
    ROLLBACK_UNPROVEN = "rollback-unproven"
    ROLLBACK_FAILED = "rollback-failed"
    QUARANTINED = "quarantined"
    UNREACHABLE = "unreachable"
    IN_TRANSIT = "in-transit"

    @property
    def is_good(self) -> bool:
        return self in {Outcome.APPLIED, Outcome.UNCHANGED}

    @property
    def is_proven(self) -> bool:
        """Whether the host is known to be on one proven stack: nothing was disrupted, or it was proven after it."""
        return self not in {Outcome.ROLLBACK_UNPROVEN, Outcome.ROLLBACK_FAILED, Outcome.QUARANTINED, Outcome.IN_TRANSIT}

    @property
    def exit_code(self) -> int:
        return _CODES[self]


INTERRUPTED = 130
WORST_FIRST = (6, 5, 4, INTERRUPTED, 3, 0)

_CODES = {
    Outcome.APPLIED: 0,
    Outcome.UNCHANGED: 0,
    Outcome.REFUSED: 3,
    Outcome.ROLLED_BACK: 4,
    Outcome.ROLLBACK_UNPROVEN: 5,
    Outcome.QUARANTINED: 5,
    Outcome.UNREACHABLE: 5,
    Outcome.IN_TRANSIT: 5,
    Outcome.ROLLBACK_FAILED: 6,
}


def exit_code(outcomes: Iterable[Outcome], *, interrupted: bool = False) -> int:
    seen = {outcome.exit_code for outcome in outcomes} | ({INTERRUPTED} if interrupted else {0})
    return next(code for code in WORST_FIRST if code in seen)
