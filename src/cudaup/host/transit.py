"""transit.json: the host is between two generations, with a timer armed. Its deadlines are monotonic seconds."""

from dataclasses import asdict, dataclass, replace
from typing import Optional, Tuple

from cudaup.host.clock import Clock
from cudaup.host.files import read_state, write_json
from cudaup.host.layout import Layout
from cudaup.host.protocol import Json

ARMED, STOPPED, SWITCHED, AWAITING_CONFIRM = "armed", "stopped", "switched", "awaiting-confirm"
REVERTING = "reverting"


@dataclass(frozen=True)
class Transit:
    """`origin` is where a revert goes back to; `suite`, `health` and `hooks` are what it does and proves there.

    `units` run from the environment; `order` has all that was stopped for them, as it is started again.
    A rollback is a transit too: its origin is the generation to go to, and it is `reverting` from the start.
    """

    origin: str
    target: str
    previous: Optional[str]
    epoch: int
    boot_id: str
    deadline: float
    ceiling: float
    phase: str
    units: Tuple[str, ...]
    order: Tuple[str, ...]
    ttl_s: float
    suite: Json
    health: Json
    hooks: Json

    def is_abandoned(self, clock: Clock) -> bool:
        """Nobody renewed in time, or it took longer than it may whoever renews, or the host was rebooted."""
        return self.boot_id != clock.boot_id() or clock.monotonic() >= min(self.deadline, self.ceiling)

    def remaining_s(self, clock: Clock) -> float:
        return max(0.0, min(self.deadline, self.ceiling) - clock.monotonic())

    def longest_s(self) -> float:
        """What the stack itself allows a revert to wait, all deadlines together."""
        checks = [self.health, self.health.get("http") or {}, *self.hooks.values()]
        return sum(float(each.get("timeout_s", 0)) for each in checks)

    def renewed(self, clock: Clock) -> "Transit":
        """A later deadline. What is abandoned stays abandoned: the timer may be at work already."""
        if self.is_abandoned(clock):
            return self
        return replace(self, deadline=min(clock.monotonic() + self.ttl_s, self.ceiling))


def read(layout: Layout) -> Optional[Transit]:
    try:
        found = read_state(layout.transit)
    except FileNotFoundError:
        return None
    found.update({key: tuple(found[key]) for key in ("units", "order")})
    return Transit(origin=found.pop("from"), target=found.pop("to"), **found)


def as_json(transit: Transit) -> Json:
    fields = asdict(transit)
    fields.update({key: list(fields[key]) for key in ("units", "order")})
    return {"from": fields.pop("origin"), "to": fields.pop("target"), **fields}


def write(layout: Layout, transit: Transit) -> None:
    """Only under the lease lock: renewals and the activate both write it."""
    write_json(layout.transit, as_json(transit), reserve=layout.ballast)
