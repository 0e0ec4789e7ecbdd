from __future__ import annotations

from typing import Any

import pytest
from tests.unit.domain.builders import make_facts, make_status

from cudaup.domain.facts import Unreachable, is_settled

TRANSIT = {"from": "0001-aaaaaa", "to": "0002-bbbbbb", "epoch": 3, "phase": "stopped"}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, True),
        ({"lease": {"state": "held", "epoch": 3, "holder": "ann"}}, True),
        ({"lease": {"state": "quarantined", "epoch": 3}}, False),
        ({"transit": TRANSIT}, False),
    ],
)
def test_a_host_in_transit_or_quarantine_is_not_settled(changes: dict[str, Any], wanted: bool) -> None:  # noqa: FBT001 - a table
    assert is_settled(make_facts(cudaup=make_status(**changes))) is wanted


def test_a_host_whose_service_is_down_is_not_settled() -> None:
    assert not is_settled(make_facts(services=[{"unit": "ml.service", "active": "inactive"}]))


def test_an_untouched_host_is_settled_and_a_lost_one_is_not() -> None:
    assert is_settled(make_facts())
    assert not is_settled(Unreachable(reason="away"))
