"""Hosts, fleets and runs in all the states the words of the design allow."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.unit.domain.builders import NOW, OLD, make_facts, make_generation, make_stack, make_status, start_for

from cudaup.domain.facts import Facts, Unreachable
from cudaup.domain.journal import HostSettled, Phase, Record, RunEnded, RunInterrupted, StepRecord
from cudaup.domain.outcome import Outcome
from cudaup.domain.plan import Action

STACK = make_stack()
NEW = make_generation(2, STACK.digest(), name=STACK.name)
UNCONFIRMED = {**NEW, "confirmed": False}
OTHER = make_generation(3, "abcdef" + "0" * 58, name="another")
GENERATIONS = (OLD, NEW, OTHER)
NAMES = tuple("abcdefgh")

_GPUS = [gpu.model_dump() for gpu in make_facts().gpus]
_DISK = make_facts().disks[0].model_dump()


def _mostly(healthy: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Healthy often enough that whole hosts are."""
    return st.sampled_from([healthy] * 12 * len(others) + list(others))


leases = st.fixed_dictionaries(
    {"state": _mostly("free", "held", "quarantined"), "epoch": st.integers(0, 3), "expired": st.booleans()}
)
transits = _mostly(None, {"from": OLD["id"], "to": NEW["id"], "epoch": 3, "phase": "switched"})


@st.composite
def statuses(draw: st.DrawFn) -> dict[str, Any]:
    current, previous = draw(st.permutations([OLD, NEW, OTHER]))[:2]
    return make_status(
        current=draw(_mostly(current, None, UNCONFIRMED)),
        previous=draw(_mostly(previous, None)),
        generations=GENERATIONS,
        lease=draw(leases),
        transit=draw(transits),
    )


@st.composite
def hosts(draw: st.DrawFn) -> Facts:
    loaded = draw(_mostly("590.48.01", "590.48.1", "580.159.04", None))
    return make_facts(
        host={
            "uid": draw(_mostly(0, 1000)),
            "arch": draw(_mostly("x86_64", "aarch64")),
            "glibc": draw(_mostly("2.36", "2.17", None)),
            "time": NOW + draw(_mostly(0, 200, 4000)),
        },
        driver={"loaded": loaded, "on_disk": loaded, "library": draw(_mostly(loaded, "590.48.02"))},
        gpus=_GPUS[: draw(_mostly(8, 0, 7))],
        disks=[{**_DISK, "free_bytes": draw(_mostly(_DISK["free_bytes"], 0))}],
        environment={"state": draw(_mostly("directory", "adopted", "absent", "link"))},
        cudaup=draw(st.one_of(st.none(), statuses())),
    )


fleets: st.SearchStrategy[dict[str, Facts | Unreachable]] = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(hosts(), st.just(Unreachable(reason="timeout"))), max_size=len(NAMES)
)

_UPGRADE = (Action.LEASE, Action.RELAY, Action.PREPARE, Action.ACTIVATE, Action.CONFIRM)
_AFTER_A_FAILED_SWITCH = (
    Outcome.ROLLED_BACK,
    Outcome.ROLLBACK_UNPROVEN,
    Outcome.ROLLBACK_FAILED,
    Outcome.QUARANTINED,
)


def _step(host: str, action: Action, phase: Phase) -> StepRecord:
    return StepRecord(time=NOW, host=host, action=action, phase=phase)


@st.composite
def _host_scripts(draw: st.DrawFn, host: str) -> list[Record]:
    """What a run writes about one host: some steps done, then the end that their last one allows."""
    reached = draw(st.integers(0, len(_UPGRADE)))
    records: list[Record] = [
        _step(host, action, phase) for action in _UPGRADE[:reached] for phase in (Phase.INTENT, Phase.DONE)
    ]
    if reached == len(_UPGRADE):
        return [*records, _settled(host, Outcome.APPLIED)]
    stopped_at = _UPGRADE[reached]
    records.append(_step(host, stopped_at, Phase.INTENT))
    if stopped_at is Action.CONFIRM:
        return [*records, *draw(_unconfirmed(host))]
    how = draw(st.sampled_from([None, Phase.FAILED, Phase.REFUSED]))
    if how is None:
        lost = Outcome.IN_TRANSIT if stopped_at is Action.ACTIVATE else Outcome.UNREACHABLE
        return [*records, _settled(host, lost)]
    records.append(_step(host, stopped_at, how))
    reverted = stopped_at is Action.ACTIVATE and how is Phase.FAILED
    outcome = draw(st.sampled_from(_AFTER_A_FAILED_SWITCH)) if reverted else Outcome.REFUSED
    return [*records, _settled(host, outcome)]


def _unconfirmed(host: str) -> st.SearchStrategy[list[Record]]:
    """No answer, or none that helps; or the host is then found to have put itself back."""
    lost = _settled(host, Outcome.IN_TRANSIT)
    failed = _step(host, Action.CONFIRM, Phase.FAILED)
    put_back = [_step(host, Action.ROLLBACK, Phase.INTENT), _step(host, Action.ROLLBACK, Phase.DONE)]
    return st.sampled_from([[lost], [failed, lost], [failed, *put_back, _settled(host, Outcome.ROLLED_BACK)]])


def _settled(host: str, outcome: Outcome) -> HostSettled:
    return HostSettled(time=NOW, host=host, outcome=outcome, reason="as drawn")


@st.composite
def runs(draw: st.DrawFn) -> tuple[Record, ...]:
    """A whole run of up to three hosts, their records interleaved as threads would, perhaps interrupted."""
    names = NAMES[: draw(st.integers(1, 3))]
    scripts = {name: draw(_host_scripts(name)) for name in names}
    turns = draw(st.permutations([name for name, script in scripts.items() for _ in script]))
    middle: list[Record] = [scripts[name].pop(0) for name in turns]
    if draw(st.booleans()):
        middle.insert(draw(st.integers(0, len(middle))), RunInterrupted(time=NOW))
    return (start_for(*names), *middle, RunEnded(time=NOW))
