"""What is interrupted: commands whose journal writes, all together, are every kind there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.lab.sweep.faults import EVERY, WITHOUT_OPERATOR, Fault
from tests.lab.sweep.station import HOST, SPOILT, Snapshot, Station
from tests.waiting import eventually


class Command(Protocol):
    """`cudaup`, or the host program by hand."""

    def has_ended(self) -> bool: ...
    def wait(self, limit_s: float) -> bool: ...
    def kill(self) -> None: ...
    def words(self) -> str: ...
    def said(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Prelude:
    """What happens first, so that something else than the command writes: at that point, that fault."""

    point: str
    fault: Fault


def _upgrade(station: Station, _: Snapshot, target: str, **how: Any) -> Command:
    return station.apply(target, **how)


def _roll_back(station: Station, before: Snapshot, target: str, **how: Any) -> Command:
    return station.start("rollback", "--to", before.generation(target), **how)


def _roll_back_by_hand(station: Station, before: Snapshot, target: str, **_: Any) -> Command:
    return station.by_hand("rollback", "--to", before.generation(target))


def _by_hand(*argv: str) -> Callable[..., Command]:
    return lambda station, *_, **__: station.by_hand(*argv)


def _other(now: str) -> str:
    return "b" if now == "a" else "a"


def _leave(_: Station) -> None:
    """Nothing needs to be prepared."""


def _on_what_was_there(station: Station) -> None:
    now = station.snapshot()
    if now.variant:
        assert station.ask("rollback", "--to", now.generation(""))["kind"] == "result"
    eventually(lambda: station.look()["service"] == "", "the old service runs")


def _on_one_of_two(station: Station) -> None:
    """A command before may have left one stack, or none."""
    for variant in ("a", "b"):
        if not station.snapshot().generation(variant):
            command = station.apply(variant)
            command.wait(120)
            assert command.words() == "applied", command.said()


def _untouched(station: Station) -> None:
    """A host as it was before cudaup."""
    _on_what_was_there(station)
    assert station.ask("forget")["kind"] == "result"


def _spoil(station: Station) -> None:
    """Until the next boot no stack is healthy, also not the one that goes back."""
    station.lab.run(HOST, ["touch", SPOILT])


def _quarantine(station: Station) -> None:
    _spoil(station)
    command = station.apply("spoilt")
    command.wait(120)
    assert command.words() == "rollback-unproven", command.said()
    station.lab.run(HOST, ["rm", SPOILT])


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`start` sends the host to the variant `target`.

    `points` are the writes that are its own, or all of them; of the host's journal, or with `is_of_run` of the run's on
    the controller. `op!` stands for its intent and its outcome; `#2` for the second time since the prelude.
    """

    name: str
    start: Callable[..., Command]
    points: tuple[str, ...]
    target: Callable[[str], str] = _other
    prepare: Callable[[Station], None] = _leave
    prelude: Prelude | None = None
    faults: tuple[Fault, ...] = EVERY
    is_rollback: bool = False
    is_of_run: bool = False


def _spelled(*points: str) -> Iterator[str]:
    for point in points:
        name, mark, count = point.partition("!")
        yield from (f"{name} intent{count}", f"{name} done{count}") if mark else (point,)


def _in_full(*points: str) -> tuple[str, ...]:
    return tuple(_spelled(*points))


_SWITCH_AND_END = ("switch!", "transit-end!")
_ROLLBACK = ("lease-take!", "rollback!", "arm!", "revert!", *_SWITCH_AND_END, "lease-release!")
_LEASE = ("run-started", "lease!", "release!", "host-settled", "run-ended")
_ALL = (
    Scenario(
        name="first",
        start=_upgrade,
        points=_in_full(
            *("lease-take!", "blob-put!"),
            *("host-install!", "recover!", "adopt!", "adopt-exchange!", "stage!"),
        ),
        prepare=_untouched,
        target=lambda _: "a",
    ),
    Scenario(
        name="upgrade",
        start=_upgrade,
        points=_in_full("lease-take!", "activate!", "arm!", "stop!", "confirm!", *_SWITCH_AND_END, "lease-release!"),
    ),
    Scenario(
        name="sick",
        start=_upgrade,
        points=_in_full("revert!", "switch!#2", "transit-end!", "activate failed", "lease-release!"),
        target=lambda _: "sick",
    ),
    Scenario(
        name="spoilt",
        start=_upgrade,
        points=_in_full("quarantine!", "transit-end!"),
        target=lambda _: "spoilt",
        prepare=_spoil,
    ),
    Scenario(
        name="lost",
        start=_upgrade,
        points=_in_full("deadman!", "revert!", *_SWITCH_AND_END),
        prelude=Prelude(point="activate done", fault=Fault.KILL_CONTROLLER),
        faults=WITHOUT_OPERATOR,
    ),
    Scenario(
        name="boot",
        start=_upgrade,
        points=_in_full("recover!", "revert!", *_SWITCH_AND_END, "activate failed"),
        prelude=Prelude(point="switch done", fault=Fault.REBOOT),
        faults=WITHOUT_OPERATOR,
    ),
    Scenario(
        name="rollback",
        start=_roll_back,
        points=_in_full(*_ROLLBACK),
        prepare=_on_one_of_two,
        is_rollback=True,
    ),
    Scenario(
        name="by-hand",
        start=_roll_back_by_hand,
        points=_in_full(*_ROLLBACK),
        prepare=_on_one_of_two,
        faults=WITHOUT_OPERATOR,
        is_rollback=True,
    ),
    Scenario(
        name="clear",
        start=_by_hand("lease", "clear"),
        points=_in_full("lease-clear!"),
        prepare=_quarantine,
        faults=WITHOUT_OPERATOR,
    ),
    Scenario(name="gc", start=_by_hand("gc"), points=_in_full("gc!"), faults=WITHOUT_OPERATOR),
    Scenario(
        name="forget",
        start=_by_hand("forget"),
        points=("forget intent",),
        prepare=_on_what_was_there,
        faults=WITHOUT_OPERATOR,
    ),
    Scenario(
        name="run",
        start=_upgrade,
        points=_in_full(*_LEASE, "prepare!", "activate!", "confirm!"),
        is_of_run=True,
    ),
    Scenario(
        name="run-first",
        start=_upgrade,
        points=_in_full("relay!"),
        prepare=_untouched,
        target=lambda _: "a",
        is_of_run=True,
    ),
    Scenario(
        name="run-back",
        start=_roll_back,
        points=_in_full(*_LEASE, "rollback!"),
        prepare=_on_one_of_two,
        is_of_run=True,
        is_rollback=True,
    ),
)
SCENARIOS = {scenario.name: scenario for scenario in _ALL}
_KNOWN = frozenset(point.partition(" ")[0] for each in _ALL for point in each.points)


def unknown(written: Sequence[str]) -> set[str]:
    """What was written and is no point of any scenario yet."""
    return {line.partition(" ")[0] for line in written} - _KNOWN
