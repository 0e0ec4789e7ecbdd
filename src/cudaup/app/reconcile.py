"""After a broken connection nothing is known: ask the host itself, until it is settled or its timer must have fired."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from pydantic import ValidationError

from cudaup.app.run import SHORT_LIMIT_S, Member, Run
from cudaup.domain.errors import CudaupError, HostProgramBroken
from cudaup.domain.facts import HostStatus, LeaseState
from cudaup.domain.outcome import Outcome

# Beyond the time to live: what a revert itself may take (stop, start, health, the old generation's smoke).
REVERT_GRACE_S = 180.0
_POLL_S = 1.0
_AWAITING_CONFIRM = "awaiting-confirm"


class Seen(Enum):
    """What a host's own record says of a switch that we lost sight of."""

    UNDER_WAY = auto()
    AWAITS_CONFIRM = auto()
    WENT_BACK = auto()
    NEVER_BEGAN = auto()
    LOST = auto()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`outcome` is there when the host is settled; `origin` is where it goes back to while it is in transit."""

    seen: Seen
    outcome: Outcome | None = None
    origin: str | None = None


_ENDS = {
    "proven": Outcome.ROLLED_BACK,
    "unproven": Outcome.ROLLBACK_UNPROVEN,
    "failed": Outcome.ROLLBACK_FAILED,
}
_LOST = Finding(seen=Seen.LOST)


def judge(status: HostStatus, *, epochs: Collection[int]) -> Finding:
    """How the transit that one of `epochs` began stands, or how it ended."""
    if status.transit is not None:
        seen = Seen.AWAITS_CONFIRM if status.transit.phase == _AWAITING_CONFIRM else Seen.UNDER_WAY
        return Finding(seen=seen, origin=status.transit.from_)
    if status.busy is not None:
        return Finding(seen=Seen.UNDER_WAY)  # it may be about to begin
    last = status.last_end
    if last is None or last.epoch not in epochs:
        return Finding(seen=Seen.NEVER_BEGAN, outcome=Outcome.UNREACHABLE)
    if last.end == "confirmed":
        return Finding(seen=Seen.AWAITS_CONFIRM)  # saying it again is harmless and gives the answer that was lost
    if last.end == "refused":  # it did not drain, and nothing was stopped
        return Finding(seen=Seen.NEVER_BEGAN, outcome=Outcome.REFUSED)
    outcome = _ENDS.get(last.end, Outcome.ROLLBACK_UNPROVEN)
    if outcome is Outcome.ROLLED_BACK and status.lease.state is LeaseState.QUARANTINED:
        outcome = Outcome.QUARANTINED  # a first way back failed, and was done again: a person looks all the same
    return Finding(seen=Seen.WENT_BACK, outcome=outcome)


def read_status(run: Run, member: Member) -> HostStatus:
    """Raise ConnectionFailed and its kinds, or HostProgramBroken."""
    reply = run.links.link(member.host).call(["status"], timeout_s=SHORT_LIMIT_S)
    try:
        return HostStatus.model_validate(reply.data)
    except ValidationError as error:
        raise HostProgramBroken("its status cannot be read", host=member.name, found=str(error)) from error


def ask_until_settled(run: Run, member: Member, *, ttl_s: float) -> Finding:
    """Poll the host. A host that stays out of reach is LOST: its timer decides, and we say that we do not know."""
    deadline = run.clock.monotonic() + ttl_s + REVERT_GRACE_S
    found, epochs = _LOST, {member.epoch or 0}
    while run.clock.monotonic() < deadline:
        try:
            status = read_status(run, member)
            if status.transit is not None:
                epochs.add(status.transit.epoch)  # a rollback may end a transit that an earlier run began
            found = judge(status, epochs=epochs)
        except CudaupError:
            found = _LOST
        if found.seen not in {Seen.LOST, Seen.UNDER_WAY}:
            return found
        run.clock.sleep(_POLL_S)
    return found
