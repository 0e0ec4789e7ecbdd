"""What the host program should do, said again in few words: no files, no processes, no clock of its own.

Every command answers one line and changes the model. The time is told before each command.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

FREE, HELD, QUARANTINED = "free", "held", "quarantined"
BY_HAND = "by-hand"
NO, HALF, YES = "no", "half", "yes"  # whether the path was adopted
PATH = "path"  # the adopted directory, wherever it lies
AWAITING, REVERTING = "awaiting-confirm", "reverting"
# Edits: of a package's file, the second one with the old size and mtime; and of a file that no package recorded.
VISIBLE, HIDDEN, UNRECORDED = "visible", "hidden", "unrecorded"
HEALTH_TAKES_S = 2
BY_HAND_TTL_S = 4 * 3600


@dataclass(frozen=True)
class Lease:
    state: str = FREE
    epoch: int = 0
    run: str = ""
    ttl_s: float = 0.0
    renewed: float = 0.0
    boot: str = ""


@dataclass(frozen=True)
class Pending:
    origin: str
    target: str
    previous: str | None
    epoch: int
    boot: str
    deadline: float
    ceiling: float = 0.0
    phase: str = ""
    ttl_s: float = 0.0


@dataclass(frozen=True)
class Generation:
    """`breaks`: its own record is a lie from the start."""

    number: int
    digest: str
    is_adopted: bool = False
    breaks: bool = False
    confirmed: bool = False
    failed: bool = False
    proven: float = 0.0
    edits: frozenset[str] = frozenset()

    @property
    def verifies(self) -> bool:
        return not self.edits

    @property
    def passes(self) -> bool:
        return not self.breaks and not self.edits & {VISIBLE, HIDDEN}


@dataclass
class Model:
    lease: Lease = Lease()
    pending: Pending | None = None
    generations: dict[str, Generation] = field(default_factory=dict)
    current: str | None = None
    previous: str | None = None
    adopted: str = NO
    adopted_id: str = ""
    served: str | None = PATH
    last_confirmed: tuple[int, str] | None = None  # epoch and generation, when the last transit ended with it
    # Of the world around: what breaks the service where, who works in which environment, whether timers start.
    faults: dict[str, str] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    has_timers: bool = True
    at: float = 0.0
    boot: str = ""
    booted: float = 0.0
    wall: float = 0.0

    def copy(self) -> Model:
        return replace(self, generations=dict(self.generations), faults=dict(self.faults), foreign=set(self.foreign))

    # the lease

    def take(self, run: str, ttl_s: float, *, take_over: bool) -> str:
        lease = self.lease
        if lease.state == HELD and lease.run == BY_HAND:
            lease = replace(lease, state=FREE)  # its process is gone: here commands run one by one
        refusal = self._grant(lease, run, ttl_s, take_over=take_over)
        if refusal:
            return refusal
        self._move_deadline()
        return f"epoch {self.lease.epoch}"

    def renew(self, epoch: int) -> str:
        refusal = self._fence(epoch)
        if refusal:
            return refusal
        self.lease = replace(self.lease, renewed=self.at, boot=self.boot)
        self._move_deadline()
        return f"epoch {epoch}"

    def release(self, epoch: int) -> str:
        if (self.lease.state, self.lease.epoch) == (FREE, epoch):
            return f"epoch {epoch}"
        refusal = self._fence(epoch)
        if refusal or self.pending:
            return refusal or "refused in-transit"
        self.lease = replace(self.lease, state=FREE)
        return f"epoch {epoch}"

    def clear(self) -> str:
        if self.lease.state != QUARANTINED:
            return "refused not-found"
        if self.pending:
            return "refused in-transit"
        self.lease = replace(self.lease, state=FREE, epoch=self.next_epoch())
        return f"epoch {self.lease.epoch}"

    def quarantine(self) -> None:
        self.lease = replace(self.lease, state=QUARANTINED)

    def is_expired(self) -> bool:
        start = self.lease.renewed if self.lease.boot == self.boot else self.booted
        return self.at >= start + self.lease.ttl_s

    def _grant(self, lease: Lease, run: str, ttl_s: float, *, take_over: bool) -> str:
        is_same = lease.state == HELD and lease.run == run
        if lease.state == QUARANTINED:
            return "refused quarantined"
        if lease.state == HELD and not is_same and (not self.is_expired() or (self.pending and not take_over)):
            return "refused lease-held"
        epoch = lease.epoch if is_same else self.next_epoch()
        self.lease = Lease(HELD, epoch, run, ttl_s, self.at, self.boot)
        return ""

    def next_epoch(self) -> int:
        return self.lease.epoch + 1 if self.lease.epoch else int(self.wall)

    def _fence(self, epoch: int) -> str:
        if self.lease.state == QUARANTINED:
            return "refused quarantined"
        return "" if (self.lease.state, self.lease.epoch) == (HELD, epoch) else "refused stale-epoch"

    def _move_deadline(self) -> None:
        pending = self.pending
        if pending and not self._is_abandoned(pending):
            self.pending = replace(pending, deadline=min(self.at + pending.ttl_s, pending.ceiling))

    # changes

    def _change(self, epoch: int | None, act: Callable[[], str]) -> str:
        """One change by a lease's holder, or by hand with a lease of its own for the time."""
        if epoch is not None:
            return self._fence(epoch) or act()
        refusal = self._grant(self.lease, BY_HAND, BY_HAND_TTL_S, take_over=False)
        if refusal:
            return refusal
        answer = act()
        if self.lease.state == HELD:
            self.lease = replace(self.lease, state=FREE)
        return answer

    def adopt(self, epoch: int | None, generation: str, digest: str) -> str:
        if self.adopted == YES:
            return "unchanged"
        return self._change(epoch, lambda: self._adopt(generation, digest))

    def _adopt(self, generation: str, digest: str) -> str:
        self._undo_half_adopt()
        self.generations[generation] = Generation(int(generation[:4]), digest, is_adopted=True, confirmed=True)
        self.adopted, self.adopted_id = YES, generation
        if self.current:
            self.previous = self.current
        self.current = generation
        return "changed"

    def _undo_half_adopt(self) -> None:
        if self.adopted != HALF:
            return
        gone, self.adopted, self.adopted_id = self.adopted_id, NO, ""
        self.generations.pop(gone, None)
        self.current = None if self.current == gone else self.current
        self.previous = None if self.previous == gone else self.previous

    def stage(self, epoch: int | None, generation: str, digest: str, *, breaks: bool) -> str:
        same = [each for each in self.generations.values() if each.digest == digest]
        if same and max(same, key=lambda each: each.number).verifies:
            return "unchanged"
        return self._change(epoch, lambda: self._stage(generation, digest, breaks=breaks))

    def _stage(self, generation: str, digest: str, *, breaks: bool) -> str:
        self.generations[generation] = Generation(int(generation[:4]), digest, breaks=breaks)
        return "changed"

    def verify(self, generation: str) -> str:
        return "ok" if self._verifies(generation) else "failed not-verified None"

    def gc(self, epoch: int | None) -> str:
        return self._change(epoch, self._gc)

    def _gc(self) -> str:
        if self.pending:
            return "refused in-transit"
        kept = {self.current, self.previous, self.served, *self.foreign}
        proven = [each for each in self.generations.items() if each[1].proven]
        if proven:
            kept.add(max(proven, key=lambda each: each[1].proven)[0])
        tried = {key for key, each in self.generations.items() if each.confirmed or each.failed}
        gone = sorted(key for key in tried - kept if not self.generations[key].is_adopted)
        for key in gone:
            del self.generations[key]
        return " ".join(["removed", *gone])

    def forget(self, epoch: int | None) -> str:
        return self._change(epoch, self._forget)

    def _forget(self) -> str:
        if self.pending:
            return "refused in-transit"
        is_through_path = self.served is not None and self.adopted == YES and self.current != self.adopted_id
        if is_through_path or {self.served, *self.foreign} & set(self.generations):
            return "refused busy"
        self.lease, self.generations = Lease(), {}
        self.current = self.previous = self.last_confirmed = None
        self.adopted, self.adopted_id = NO, ""
        return "changed"

    # the switch

    def activate(self, epoch: int | None, target: str, ttl_s: float, ceiling_s: float) -> str:
        return self._change(epoch, lambda: self._activate(epoch, target, ttl_s, ceiling_s))

    def _activate(self, epoch: int | None, target: str, ttl_s: float, ceiling_s: float) -> str:
        current = str(self.current)
        if self.current == target and not self.pending:
            return "unchanged"
        refusal = self._first_that_holds(
            (self.pending is not None, "in-transit"),
            (self.current is None or target not in self.generations, "not-found"),
            (self.adopted != YES, "unsafe"),
            (not (self._verifies(current) and self._verifies(target)), "not-verified"),
            (self.place(current) in self.foreign, "busy"),
            (not self.has_timers, "unsupported"),
        )
        if refusal:
            return refusal
        left_s = min(ttl_s, ceiling_s) if epoch is not None else ceiling_s
        armed = Pending(current, target, self.previous, self.lease.epoch, self.boot, self.at + left_s)
        self.pending = replace(armed, ceiling=self.at + ceiling_s, ttl_s=ttl_s)
        failed = self._forward(self.pending, is_late=left_s < HEALTH_TAKES_S)
        if failed:
            return f"failed {failed} {reverted(self._revert())}"
        self.pending = replace(self.pending, phase=AWAITING)
        return AWAITING

    def _forward(self, pending: Pending, *, is_late: bool) -> str:
        """What fails; empty when nothing does."""
        self.served = None
        if not self.generations[pending.target].passes:
            return "smoke"
        self.current, self.previous = pending.target, pending.origin
        fault = self._start()
        if fault == "start":
            return "services"
        if is_late:  # by the time its health is known
            return "abandoned"
        return "health" if fault else ""

    def confirm(self, epoch: int | None) -> str:
        return self._change(epoch, self._confirm)

    def _confirm(self) -> str:
        pending = self.pending
        if pending is None:
            is_repeated = self.last_confirmed is not None and self.last_confirmed[0] == self.lease.epoch
            return "confirmed" if is_repeated else "refused not-found"
        if pending.phase != AWAITING:
            return "refused in-transit"
        if self._is_abandoned(pending):
            return "refused not-found"
        if self.served != self.place(pending.target):
            return "refused not-verified"
        self._update(pending.target, confirmed=True, proven=self.at, failed=False)
        self.pending, self.last_confirmed = None, (pending.epoch, pending.target)
        return "confirmed"

    def rollback(self, epoch: int | None, to: str | None) -> str:
        if epoch is None and self.pending:
            return self._rollback(to)
        return self._change(epoch, lambda: self._rollback(to))

    def _rollback(self, to: str | None) -> str:
        if self.pending is None:
            refusal = self._begin_rollback(to)
            if refusal:
                return refusal
        elif to not in {None, self.pending.origin}:
            return "refused in-transit"
        verdict = self._revert()
        return "failed services rollback-failed" if verdict == "failed" else f"rolled-back-{verdict}"

    def _begin_rollback(self, to: str | None) -> str:
        current, previous = str(self.current), self.previous
        if to is None:
            if previous is None or self.generations[previous].number > self.generations[current].number:
                return "refused not-found"
            to = previous
        before = previous if current == to else current
        self.pending = Pending(to, current, before, self.lease.epoch, self.boot, self.at, self.at, REVERTING)
        refusal = self._first_that_holds(
            (self.current is None or to not in self.generations, "not-found"),
            (not self._verifies(to), "not-verified"),
            (self.place(current) in self.foreign, "busy"),
        )
        if refusal:
            self.pending = None
        return refusal

    def is_due(self) -> bool:
        return self.pending is not None and (self.pending.phase == REVERTING or self._is_abandoned(self.pending))

    def fire(self) -> str:
        return reverted(self._revert()) if self.is_due() else "not due"

    def recover(self, *, at_boot: bool) -> str:
        if self.pending and not self.is_due():
            return "in-transit" if at_boot else "refused in-transit"
        if self.pending and at_boot:
            answer = self._links_back()
        else:
            answer = reverted(self._revert()) if self.pending else "settled"
        self._undo_half_adopt()
        return answer

    def _links_back(self) -> str:
        """At boot, before the service starts; the timer does the rest."""
        assert self.pending
        self.pending = replace(self.pending, phase=REVERTING)
        self.current, self.previous = self.pending.origin, self.pending.previous
        self._start()
        return "in-transit"

    def start_service(self) -> str:
        """The service comes up in whatever the path leads to; answers what is wrong with it there."""
        return self._start()

    def place(self, generation: str) -> str:
        return PATH if generation == self.adopted_id else generation

    def _start(self) -> str:
        if self.served is not None:
            return ""
        place = self.place(str(self.current)) if self.adopted == YES else PATH
        fault = self.faults.get(place, "")
        self.served = None if fault else place
        return fault

    def _revert(self) -> str:
        """Back to where the transit came from; `failed` and `unproven` end in quarantine."""
        pending = self.pending
        assert pending
        stays = False
        left = self.place(pending.target)
        if pending.target != pending.origin and (self.current != pending.origin or self.served == left):
            stays = left in self.foreign
            self.served, self.current = None, pending.origin
        self.previous = pending.previous
        fault = self._start()
        origin = self.generations[pending.origin]
        if fault == "start":
            verdict = "failed"
        else:
            serves = self.served == self.place(pending.origin)
            verdict = "proven" if serves and not stays and origin.passes and origin.verifies else "unproven"
        if verdict == "proven":
            self._update(pending.origin, confirmed=True, proven=self.at)
        else:
            self.quarantine()
        if not self.generations[pending.target].confirmed:
            self._update(pending.target, failed=True)
        self.pending = self.last_confirmed = None
        return verdict

    def _verifies(self, generation: str) -> bool:
        return generation in self.generations and self.generations[generation].verifies

    @staticmethod
    def _first_that_holds(*checks: tuple[bool, str]) -> str:
        return next((f"refused {code}" for holds, code in checks if holds), "")

    def _is_abandoned(self, pending: Pending) -> bool:
        return pending.boot != self.boot or self.at >= min(pending.deadline, pending.ceiling)

    def _update(self, generation: str, **changes: object) -> None:
        self.generations[generation] = replace(self.generations[generation], **changes)  # type: ignore[arg-type]


def reverted(verdict: str) -> str:
    return "revert-failed" if verdict == "failed" else f"reverted-{verdict}"
