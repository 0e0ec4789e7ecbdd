"""A fleet in memory that keeps the host program's promises: fencing, one transit, revert by itself, confirm once."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tests.unit.domain.builders import OLD, make_facts, make_generation, make_stack, make_status

from cudaup.app.ports import HostReply, PlayResult
from cudaup.app.renewals import Renewals
from cudaup.app.run import Run
from cudaup.domain.errors import ConnectionFailed, CudaupError, HostFailed, HostRefused
from cudaup.domain.events import Event
from cudaup.domain.facts import Facts
from cudaup.domain.inventory import Host
from cudaup.domain.lockfile import Wheel

Json = dict[str, Any]
STACK = make_stack()
NEW = make_generation(2, STACK.digest(), name=STACK.name, confirmed=False, proven=None)


@dataclass
class FakeHost:
    """`breaks` maps a verb to an error raised instead of its answer, once; `before` says whether it took effect."""

    name: str
    facts: Facts = field(default_factory=make_facts)
    smoke_passes: bool = True
    revert_ends: str = "proven"
    breaks: dict[str, CudaupError] = field(default_factory=dict)
    breaks_before_effect: bool = False
    timer_fires_after: str = ""
    state: Json = field(default_factory=lambda: make_status(lease={"state": "free", "epoch": 3}))
    calls: list[str] = field(default_factory=list)
    connections: int = 1
    blobs: set[str] = field(default_factory=set)
    asked_back_to: str = ""
    on_call: Callable[[str], None] = lambda _verb: None

    def answer(self, argv: Sequence[str], data: bytes) -> HostReply:
        verb = "-".join(argv[:2]) if argv[0] in {"lease", "blob"} else argv[0]
        self.calls.append(verb)
        self.on_call(verb)
        broken = self.breaks.pop(verb, None)
        if broken and self.breaks_before_effect:
            raise broken
        handler: Callable[[Sequence[str], bytes], HostReply] = getattr(self, f"do_{verb.replace('-', '_')}")
        reply = handler(argv, data)
        if self.timer_fires_after == verb:
            self._revert()
        if broken:
            raise broken
        return reply

    def do_facts(self, _argv: Sequence[str], _data: bytes) -> HostReply:
        return result(self.facts.model_dump(mode="json", by_alias=True))

    def do_lease_take(self, argv: Sequence[str], _data: bytes) -> HostReply:
        lease = self.state["lease"]
        if lease["state"] == "held":
            raise HostRefused(f"the lease is held by {lease['holder']}", code="lease-held", host=self.name)
        holder = argv[argv.index("--holder") + 1]
        self.state["lease"] = {"state": "held", "epoch": lease["epoch"] + 1, "holder": holder}
        return result({"lease": self.state["lease"]})

    def do_lease_renew(self, argv: Sequence[str], _data: bytes) -> HostReply:
        self._fence(argv)
        return result({})

    def do_lease_release(self, argv: Sequence[str], _data: bytes) -> HostReply:
        self._fence(argv)
        assert self.state["lease"]["state"] != "quarantined", "a quarantine is not given back by a run"
        if self.state["transit"]:
            raise HostRefused("in transit", code="in-transit")
        self.state["lease"] = {"state": "free", "epoch": self.state["lease"]["epoch"]}
        return result({})

    def do_blob_missing(self, _argv: Sequence[str], data: bytes) -> HostReply:
        assert data
        wanted = [wheel.sha256 for wheel in (*STACK.wheels, STACK.uv)]
        return result({"missing": [sha256 for sha256 in wanted if sha256 not in self.blobs]})

    def do_blob_put(self, argv: Sequence[str], _data: bytes) -> HostReply:
        self._fence(argv)
        self.blobs.add(argv[argv.index("--sha256") + 1])
        return result({"stored": True})

    def do_activate(self, argv: Sequence[str], _data: bytes) -> HostReply:
        self._fence(argv)
        if not self.smoke_passes:
            self._revert()
            state = "revert-failed" if self.revert_ends == "failed" else f"reverted-{self.revert_ends}"
            failed = {"case": "nvcc", "verdict": "fail", "reason": "cc1plus died"}
            raise HostFailed("smoke: nvcc fail", data={"state": state, "smoke": [failed]})
        self.state["current"], self.state["previous"] = NEW, OLD
        transit = {"from": OLD["id"], "to": NEW["id"], "epoch": self._epoch, "phase": "awaiting-confirm"}
        self.state["transit"] = transit
        passed = {"case": "nvcc", "verdict": "pass"}
        return result({"state": "awaiting-confirm", "from": OLD["id"], "to": NEW["id"], "smoke": [passed]})

    def do_confirm(self, argv: Sequence[str], _data: bytes) -> HostReply:
        self._fence(argv)
        if not self.state["transit"] and self.state["current"] != {**NEW, "confirmed": True}:
            raise HostRefused("nothing waits for a confirmation", code="not-found")
        self.state["current"], self.state["transit"] = {**NEW, "confirmed": True}, None
        self._ended("confirmed")
        return result({"state": "confirmed", "generation": NEW["id"]})

    def do_rollback(self, argv: Sequence[str], _data: bytes) -> HostReply:
        self._fence(argv)
        self.asked_back_to = argv[argv.index("--to") + 1]
        self._revert()
        data = {"from": NEW["id"], "to": OLD["id"], "after": []}
        if self.revert_ends == "failed":
            raise HostFailed("ml.service does not start", data={"state": "rollback-failed", **data})
        return result({"state": f"rolled-back-{self.revert_ends}", **data})

    def do_status(self, _argv: Sequence[str], _data: bytes) -> HostReply:
        return result(self.state)

    @property
    def _epoch(self) -> int:
        return int(self.state["lease"]["epoch"])

    def _fence(self, argv: Sequence[str]) -> None:
        if int(argv[argv.index("--epoch") + 1]) != self._epoch:
            raise HostRefused("stale", code="stale-epoch", host=self.name)

    def timer_fires(self) -> None:
        self._revert()

    def _revert(self) -> None:
        self.state["current"], self.state["transit"] = OLD, None
        self._ended(self.revert_ends)
        if self.revert_ends not in {"proven", "refused"}:
            self.state["lease"] = {"state": "quarantined", "epoch": self._epoch, "reason": "no proof"}

    def _ended(self, how: str) -> None:
        self.state["last_end"] = {"epoch": self._epoch, "end": how}


def result(data: Mapping[str, Any]) -> HostReply:
    return HostReply(data=data)


@dataclass
class FakeLink:
    host: FakeHost

    def call(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        data: Iterable[bytes] = (),
        on_event: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> HostReply:
        assert timeout_s > 0
        assert on_event is None or callable(on_event)
        return self.host.answer(argv, b"".join(data))

    def close(self) -> None:
        self.host.connections += 1


@dataclass
class FakeFleet:
    """Satisfies Links, Plays, WheelStore, RunJournal and Clock at once: one small world."""

    hosts: dict[str, FakeHost]
    journal: list[Json] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    fetches: int = 0
    here: dict[str, Path] = field(default_factory=dict)  # wheels by sha256
    play_fails_on: str = ""
    play_loses: str = ""
    time: float = 0.0
    is_stopping: bool = False

    def link(self, host: Host) -> FakeLink:
        return FakeLink(self.hosts[host.name])

    def close(self) -> None:
        return

    def run(
        self,
        playbook: str,
        hosts: Sequence[Host],
        variables: Mapping[str, Mapping[str, Any]],
        *,
        timeout_s: float,
        on_event: Callable[[Event], None],
    ) -> dict[str, PlayResult]:
        assert (playbook, callable(on_event)) == ("prepare", True)
        assert timeout_s > 0
        assert set(variables) == {host.name for host in hosts}
        return {host.name: self._played(host.name) for host in hosts}

    def _played(self, host: str) -> PlayResult:
        if host == self.play_loses:
            return PlayResult(host=host, ok=False, changed=False, text="no route", data={}, is_unreachable=True)
        if host == self.play_fails_on:
            return PlayResult(host=host, ok=False, changed=False, text="no space", data={})
        return PlayResult(host=host, ok=True, changed=True, text="staged", data={"staged": {"generation": NEW["id"]}})

    def fetch(self, wheels: Sequence[Wheel], on_event: Callable[[str], None]) -> dict[str, Path]:
        self.fetches += 1
        on_event("fetching")
        return {wheel.sha256: Path(wheel.filename) for wheel in wheels}

    def fetched(self, wheels: Sequence[Wheel]) -> dict[str, Path]:
        return {wheel.sha256: self.here[wheel.sha256] for wheel in wheels if wheel.sha256 in self.here}

    def open(self, _path: Path) -> BinaryIO:
        return io.BytesIO(b"wheel")

    def append(self, record: Mapping[str, Any]) -> None:
        self.journal.append(dict(record))

    def read(self) -> list[Json]:
        return self.journal

    def now(self) -> float:
        return 1_764_500_000.0 + self.time

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def fleet_of(*hosts: FakeHost, **options: Any) -> FakeFleet:
    return FakeFleet(hosts={host.name: host for host in hosts}, **options)


def run_on(fleet: FakeFleet) -> Run:
    return Run(
        id="r-1",
        holder="ann@laptop",
        links=fleet,
        renewals=Renewals(fleet, period_s=0.01, timeout_s=1),
        journal=fleet,
        clock=fleet,
        emit=fleet.events.append,
        is_stopping=lambda: fleet.is_stopping,
    )


def as_hosts(fleet: FakeFleet) -> dict[str, Host]:
    return {name: Host(name=name, address=name) for name in fleet.hosts}


def lost() -> ConnectionFailed:
    return ConnectionFailed("the connection broke")
