"""One run's tools and the discipline of its journal: intent on disk before the effect, outcome after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cudaup.app.ports import Clock, HostReply, Links, RunJournal
from cudaup.app.renewals import Renewals
from cudaup.domain.errors import ConnectionFailed, CudaupError, HostFailed, HostRefused
from cudaup.domain.events import Event, Kind
from cudaup.domain.facts import SmokeCase
from cudaup.domain.inventory import Host
from cudaup.domain.journal import HostSettled, Phase, Record, StepRecord, record_json
from cudaup.domain.outcome import Outcome
from cudaup.domain.plan import Action, HostPlan, HostVerdict

# A verb that only reads or writes a little: connect, one Python start, one fsync or two.
SHORT_LIMIT_S = 60.0
IN_TRANSIT = "in-transit"  # the state of a host that could not even record that it goes back


@dataclass(frozen=True, kw_only=True)
class Run:
    """`holder` is who the leases are taken for; `is_stopping` turns true when the operator asked to stop.

    `renewals` keeps what `take_lease` took until `release_lease` or `settle`.
    """

    id: str
    holder: str
    links: Links
    renewals: Renewals
    journal: RunJournal
    clock: Clock
    emit: Callable[[Event], None]
    is_stopping: Callable[[], bool]

    def record(self, record: Record) -> None:
        self.journal.append(record_json(record))

    def tell(self, host: str, step: str, kind: Kind, text: str = "", data: Mapping[str, Any] | None = None) -> None:
        self.emit(Event(time=self.clock.now(), host=host, step=step, kind=kind, text=text, data=dict(data or {})))

    def tell_failed(self, host: str, step: str, text: str) -> None:
        self.tell(host, step, Kind.FAILED, text)


@dataclass
class Member:
    """A host on its way through a run. `epoch` is its lease's, once we hold it."""

    host: Host
    plan: HostPlan
    epoch: int | None = None
    target: str | None = None
    settled: HostSettled | None = None

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def is_going_back(self) -> bool:
        return any(planned.action is Action.ROLLBACK for planned in self.plan.steps)


@dataclass
class Notes:
    """What a step found out, for its journal record and its event."""

    text: str = ""
    changed: bool = True
    data: dict[str, Any] = field(default_factory=dict)


@contextmanager
def step(run: Run, member: Member, action: Action) -> Iterator[Notes]:
    """Journal a step that disrupts nothing around its effect. An error passes through after it is recorded."""
    open_step(run, member, action)
    notes = Notes()
    try:
        yield notes
    except CudaupError as error:
        phase = Phase.REFUSED if isinstance(error, HostRefused) else Phase.FAILED
        close_step(run, member, action, phase, Notes(text=error.told, data=notes.data))
        raise
    close_step(run, member, action, Phase.DONE, notes)


def open_step(run: Run, member: Member, action: Action) -> None:
    """Intent on disk; the effect may begin."""
    _note(run, member, action, Phase.INTENT, Notes())
    run.tell(member.name, action, Kind.STARTED)


def close_step(run: Run, member: Member, action: Action, phase: Phase, notes: Notes) -> None:
    _note(run, member, action, phase, notes)
    if phase is not Phase.DONE:
        run.tell_failed(member.name, action, notes.text)
        return
    run.tell(member.name, action, Kind.DONE if notes.changed else Kind.UNCHANGED, notes.text)


def _note(run: Run, member: Member, action: Action, phase: Phase, notes: Notes) -> None:
    record = StepRecord(
        time=run.clock.now(), host=member.name, action=action, phase=phase, text=notes.text, data=notes.data
    )
    run.record(record)


def call(
    run: Run, member: Member, argv: list[str], *, timeout_s: float = SHORT_LIMIT_S, action: Action | None = None
) -> HostReply:
    """Call one fenced verb and pass its events on; `action` names the step they belong to."""

    def on_event(event: Mapping[str, Any]) -> None:
        kind = {"failed": Kind.FAILED}.get(str(event.get("state")), Kind.NOTE)
        label = f"{action}/{event.get('step')}" if action else str(event.get("step"))
        run.tell(member.name, label, kind, str(event.get("text", "")), {"state": event.get("state")})

    epoch = ["--epoch", str(member.epoch)] if member.epoch is not None else []
    return run.links.link(member.host).call([*argv, *epoch], timeout_s=timeout_s, on_event=on_event)


def settle(
    run: Run, member: Member, outcome: Outcome, reason: str, *, smoke: tuple[SmokeCase, ...] = (), to: str | None = None
) -> None:
    """The last word on a host in this run."""
    run.renewals.remove(member.host)
    member.settled = HostSettled(
        time=run.clock.now(), host=member.name, outcome=outcome, reason=reason, to_generation=to, smoke=smoke
    )
    run.record(member.settled)
    is_wanted = outcome.is_good or (member.is_going_back and outcome is Outcome.ROLLED_BACK)
    run.tell(
        member.name,
        "settled",
        Kind.DONE if is_wanted else Kind.FAILED,
        f"{outcome}: {reason}",
        {"outcome": outcome.value},
    )


def settle_if_nothing_to_do(run: Run, member: Member) -> None:
    match member.plan.verdict:
        case HostVerdict.UNCHANGED:
            settle(
                run,
                member,
                Outcome.UNCHANGED,
                "; ".join(member.plan.left_alone) or "nothing to do",
                to=member.plan.from_generation,
            )
        case HostVerdict.BLOCKED:
            reasons = "\n".join(f"{each.rule} {each.evidence}\n  fix:    {each.fix}" for each in member.plan.blockers)
            settle(run, member, Outcome.QUARANTINED if member.plan.is_quarantined else Outcome.REFUSED, reasons)
        case HostVerdict.UNREACHABLE:
            settle(run, member, Outcome.UNREACHABLE, member.plan.error)
        case HostVerdict.CHANGE:
            return


def take_lease(run: Run, member: Member, *, reason: str, ttl_s: float, take_over: bool = False) -> None:
    argv = ["lease", "take", "--holder", run.holder, "--run", run.id, "--reason", reason, "--ttl", f"{ttl_s:g}"]
    with step(run, member, Action.LEASE) as notes:
        reply = call(run, member, [*argv, *(["--take-over"] if take_over else [])])
        member.epoch = int(reply.data["lease"]["epoch"])
        run.renewals.add(member.host, member.epoch)
        notes.text = f"epoch {member.epoch}"


def release_lease(run: Run, member: Member) -> None:
    """A lease that cannot be given back expires by itself; that is said, and never changes a host's outcome."""
    if member.epoch is None:
        return
    run.renewals.remove(member.host)
    try:
        with step(run, member, Action.RELEASE) as notes:
            call(run, member, ["lease", "release"])
            notes.text = "free"
    except CudaupError:
        pass
    member.epoch = None


def end(
    run: Run, member: Member, outcome: Outcome, reason: str, *, smoke: tuple[SmokeCase, ...] = (), to: str | None = None
) -> None:
    """Settle a host that is on one of its stacks. Where that is not proven it keeps its lease: it is quarantined."""
    if outcome.is_proven:
        release_lease(run, member)
    settle(run, member, outcome, reason, smoke=smoke, to=to)


def refuse_on_error(run: Run, member: Member, work: Callable[[Member], None]) -> None:
    """Before a switch: whatever goes wrong, nothing was disrupted; the host is settled and its lease given back."""
    try:
        work(member)
    except ConnectionFailed as error:
        outcome, reason = Outcome.UNREACHABLE, error.told
    except CudaupError as error:
        is_in_transit = isinstance(error, HostFailed) and error.data.get("state") == IN_TRANSIT
        outcome, reason = Outcome.IN_TRANSIT if is_in_transit else Outcome.REFUSED, error.told
    else:
        return
    end(run, member, outcome, reason)


def still_going(members: Sequence[Member]) -> list[Member]:
    return [member for member in members if member.settled is None]
