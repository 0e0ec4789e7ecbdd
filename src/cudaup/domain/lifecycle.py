"""A host's life in one run: which step may follow which. Anything else is a bug and raises."""

from __future__ import annotations

from enum import StrEnum

from cudaup.domain.errors import IllegalTransition
from cudaup.domain.outcome import Outcome
from cudaup.domain.value import Value


class State(StrEnum):
    PLANNED = "planned"
    LEASED = "leased"
    PREPARED = "prepared"
    ACTIVATING = "activating"
    AWAITING_CONFIRM = "awaiting-confirm"
    CONFIRMED = "confirmed"
    REVERTED = "reverted"
    SETTLED = "settled"

    @property
    def is_disrupted(self) -> bool:
        """Whether the host may be between two generations."""
        return self in {State.ACTIVATING, State.AWAITING_CONFIRM}


# A host that reverted itself is never activated again in the same run.
ALLOWED: dict[State, frozenset[State]] = {
    State.PLANNED: frozenset({State.LEASED}),
    State.LEASED: frozenset({State.PREPARED}),
    State.PREPARED: frozenset({State.ACTIVATING}),
    State.ACTIVATING: frozenset({State.AWAITING_CONFIRM, State.REVERTED}),
    State.AWAITING_CONFIRM: frozenset({State.CONFIRMED, State.REVERTED}),
    State.CONFIRMED: frozenset(),
    State.REVERTED: frozenset(),
    State.SETTLED: frozenset(),
}

_BEFORE_THE_SWITCH = frozenset({Outcome.REFUSED, Outcome.UNREACHABLE, Outcome.QUARANTINED})
_IN_THE_SWITCH = frozenset({Outcome.IN_TRANSIT, Outcome.UNREACHABLE, Outcome.QUARANTINED})

MAY_END: dict[State, frozenset[Outcome]] = {
    State.PLANNED: frozenset({Outcome.UNCHANGED, *_BEFORE_THE_SWITCH}),
    State.LEASED: _BEFORE_THE_SWITCH,
    State.PREPARED: _BEFORE_THE_SWITCH,
    State.ACTIVATING: _IN_THE_SWITCH,
    State.AWAITING_CONFIRM: _IN_THE_SWITCH,
    State.CONFIRMED: frozenset({Outcome.APPLIED}),
    State.REVERTED: frozenset(
        {Outcome.ROLLED_BACK, Outcome.ROLLBACK_UNPROVEN, Outcome.ROLLBACK_FAILED, Outcome.QUARANTINED}
    ),
    State.SETTLED: frozenset(),
}


class HostLife(Value):
    """`outcome` is there exactly when the life is settled."""

    host: str
    state: State = State.PLANNED
    outcome: Outcome | None = None

    def may_become(self, state: State) -> bool:
        return state in ALLOWED[self.state]

    def become(self, state: State) -> HostLife:
        """Raises IllegalTransition."""
        if not self.may_become(state):
            wanted = ", ".join(sorted(ALLOWED[self.state])) or "to be settled"
            raise IllegalTransition(
                f"cannot go from {self.state} to {state}", host=self.host, wanted=wanted, found=state
            )
        return HostLife(host=self.host, state=state)

    def may_settle(self, outcome: Outcome) -> bool:
        return outcome in MAY_END[self.state]

    def settle(self, outcome: Outcome) -> HostLife:
        """Raises IllegalTransition: nobody is `applied` that was never confirmed."""
        if not self.may_settle(outcome):
            wanted = ", ".join(sorted(MAY_END[self.state])) or "nothing: it is settled"
            raise IllegalTransition(f"cannot end as {outcome} when {self.state}", host=self.host, wanted=wanted)
        return HostLife(host=self.host, state=State.SETTLED, outcome=outcome)

    @property
    def presumed_outcome(self) -> Outcome:
        """What can be said when the run broke off: never better than what is proven."""
        if self.outcome is not None:
            return self.outcome
        return _PRESUMED[self.state]


_PRESUMED = {
    State.PLANNED: Outcome.REFUSED,
    State.LEASED: Outcome.REFUSED,
    State.PREPARED: Outcome.REFUSED,
    State.ACTIVATING: Outcome.IN_TRANSIT,
    State.AWAITING_CONFIRM: Outcome.IN_TRANSIT,
    State.CONFIRMED: Outcome.APPLIED,
    State.REVERTED: Outcome.ROLLBACK_UNPROVEN,
}
