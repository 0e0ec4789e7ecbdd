from __future__ import annotations

import pytest
from tests.unit.app.fake_fleet import FakeHost, as_hosts, fleet_of, lost
from tests.unit.domain.builders import make_facts

from cudaup.app.collect import collect, require_distinct
from cudaup.domain.errors import HostRefused, UsageError
from cudaup.domain.facts import Facts, Unreachable

OTHER = make_facts(host={"boot_id": "22222222-2222-3333-4444-555555555555"})


def test_one_lost_host_is_an_observation_beside_the_others() -> None:
    fleet = fleet_of(FakeHost("a"), FakeHost("b", breaks={"facts": lost()}))
    observed = collect(fleet, tuple(as_hosts(fleet).values()), "/root/ml-env")
    assert isinstance(observed["a"], Facts)
    assert observed["b"] == Unreachable(reason="the connection broke")


def test_a_host_that_refuses_to_be_asked_stands_beside_the_others_too() -> None:
    fleet = fleet_of(FakeHost("a"), FakeHost("b", breaks={"facts": HostRefused("no", code="unsupported")}))
    observed = collect(fleet, tuple(as_hosts(fleet).values()), None)
    assert (isinstance(observed["a"], Facts), observed["b"]) == (True, Unreachable(reason="no"))


def test_two_names_for_one_machine_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="a and c are one machine"):
        require_distinct({"a": make_facts(), "b": OTHER, "c": make_facts()})


def test_machines_cloned_with_their_machine_id_are_still_two() -> None:
    observed: dict[str, Facts | Unreachable] = {
        "a": make_facts(),
        "b": OTHER,
        "c": Unreachable(reason="away"),
        "d": Unreachable(reason="away"),
    }
    assert require_distinct(observed) is observed
