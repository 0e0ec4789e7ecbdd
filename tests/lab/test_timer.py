"""The promise an operator builds on: whoever loses a host in mid-upgrade finds it on its old stack, serving."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab.command import Cudaup, by_hand, service, small_stack
from tests.waiting import eventually

from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab

NEW = {"msgpack": "1.2.4", "packaging": "26.4"}
OLD = {"msgpack": "1.0.8", "packaging": "23.2"}


def is_in_transit(lab: Lab) -> bool:
    return lab.run("h1", ["test", "-e", "/opt/cudaup/transit.json"], check=False).returncode == 0


def test_a_host_cut_off_after_its_switch_goes_back_alone_and_status_tells_the_truth(
    lab_factory: Callable[..., Lab], tmp_path: Path
) -> None:
    lab, cudaup = lab_factory(hosts=1), Cudaup(tmp_path / "state")
    near = ("-i", lab.inventory)
    run = cudaup.start("apply", "-v", *near, "-s", small_stack(tmp_path, "lost"), "--yes")
    assert run.stderr is not None
    for line in run.stderr:
        if line.split()[:2] == ["h1", "activate/start"]:
            break
    lab.fault("h1", "cut")
    assert lab.run("h1", ["readlink", "/opt/cudaup/current"]).stdout.startswith("generations/0002-")
    assert is_in_transit(lab)
    assert "unreachable" in cudaup.run("status", *near, expect=5)

    eventually(lambda: not is_in_transit(lab), "its timer has fired")
    assert service(lab, "h1")["versions"] == OLD  # and still cut off

    lab.fault("h1", "restore")
    out, err = run.communicate(timeout=240)
    assert (run.returncode, "h1: rolled-back:" in out) == (4, True), out + err
    facts = cudaup.json("status", *near)["h1"]
    current = facts["cudaup"]["current"]
    assert (current["kind"], current["proven"] is not None) == ("adopted", True)
    assert (facts["cudaup"]["transit"], facts["cudaup"]["last_end"]["end"]) == (None, "proven")
    assert [unit["active"] for unit in facts["services"]] == ["active"]


def test_a_person_on_the_host_goes_back_without_controller_network_or_lease(
    lab_factory: Callable[..., Lab], tmp_path: Path
) -> None:
    lab, cudaup = lab_factory(hosts=1), Cudaup(tmp_path / "state")
    apply = ("apply", "-i", lab.inventory, "-s", small_stack(tmp_path, "by-hand"), "--yes")
    assert cudaup.outcomes(*apply) == {"h1": "applied"}
    lab.fault("h1", "cut")
    answer = by_hand(lab, "h1", "rollback")
    assert (answer["kind"], answer["data"]["state"]) == ("result", "rolled-back-proven")
    assert service(lab, "h1")["versions"] == OLD
    assert by_hand(lab, "h1", "rollback")["code"] == "not-found"  # said twice, it does not go forwards

    lab.fault("h1", "restore")
    assert "proven" in cudaup.run("status", "-i", lab.inventory)
    assert cudaup.outcomes(*apply) == {"h1": "applied"}
    assert service(lab, "h1")["versions"] == NEW
