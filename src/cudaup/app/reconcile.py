"""After a broken connection nothing is known: ask the host itself, until it is settled or its timer must have fired."""

from __future__ import annotations

from enum import Enum, auto

from pydantic import ValidationError

from cudaup.app.run import SHORT_LIMIT_S, Member, Run
from cudaup.domain.errors import ConnectionFailed, HostProgramBroken
from cudaup.domain.facts import HostStatus, LeaseState
from cudaup.domain.outcome import Outcome

# Beyond the time to live: what a revert itself may take (stop, start, health, the old generation's smoke).
REVERT_GRACE_S = 180.0
_POLL_S = 1.0
_AWAITING_CONFIRM = "awaiting-confirm"


class Seen(Enum):
    """What a host's own record says of the switch that we lost sight of."""

    UNDER_WAY = auto()
    AWAITS_CONFIRM = auto()
    PUT_BACK = auto()
    UNPROVEN = auto()
    NEVER_BEGAN = auto()
    LOST = auto()

    @property
    def outcome(self) -> Outcome:
        return _OUTCOMES[self]


_OUTCOMES = {
    Seen.UNDER_WAY: Outcome.IN_TRANSIT,
    Seen.AWAITS_CONFIRM: Outcome.IN_TRANSIT,
    Seen.PUT_BACK: Outcome.ROLLED_BACK,
    Seen.UNPROVEN: Outcome.ROLLBACK_UNPROVEN,
    Seen.NEVER_BEGAN: Outcome.UNREACHABLE,
    Seen.LOST: Outcome.IN_TRANSIT,
}


def judge(status: HostStatus, *, target: str, epoch: int) -> Seen:
    """A host quarantines itself exactly when its way back could not be proven."""
    if status.transit is not None:
        return Seen.AWAITS_CONFIRM if status.transit.phase == _AWAITING_CONFIRM else Seen.UNDER_WAY
    if status.lease.state is LeaseState.QUARANTINED:
        return Seen.UNPROVEN
    ours = {str(entry.get("op")) for entry in status.last_events if entry.get("epoch") == epoch}
    if "confirm" in ours and status.current is not None and status.current.id == target:
        return Seen.AWAITS_CONFIRM  # confirmed already: saying it again is harmless and gives the answer that was lost
    return Seen.PUT_BACK if "revert" in ours else Seen.NEVER_BEGAN


def read_status(run: Run, member: Member) -> HostStatus:
    """Raise ConnectionFailed and its kinds, or HostProgramBroken."""
    reply = run.links.link(member.host).call(["status"], timeout_s=SHORT_LIMIT_S)
    try:
        return HostStatus.model_validate(reply.data)
    except ValidationError as error:
        raise HostProgramBroken("its status cannot be read", host=member.name, found=str(error)) from error


def ask_until_settled(run: Run, member: Member, *, ttl_s: float) -> Seen:
    """Poll the host. A host that stays out of reach is LOST: its timer decides, and we say that we do not know."""
    deadline = run.clock.monotonic() + ttl_s + REVERT_GRACE_S
    seen = Seen.LOST
    while run.clock.monotonic() < deadline:
        try:
            status = read_status(run, member)
            member.origin = status.transit.from_ if status.transit else member.origin
            seen = judge(status, target=member.target or "", epoch=member.epoch or 0)
        except (ConnectionFailed, HostProgramBroken):
            seen = Seen.LOST
        if seen not in {Seen.LOST, Seen.UNDER_WAY}:
            return seen
        run.clock.sleep(_POLL_S)
    return seen
