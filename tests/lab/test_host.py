"""The host by itself, under real systemd, with no controller in sight: a reboot in transit, a timer that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.lab.command import Cudaup, by_hand, eventually, service, small_stack
from tests.lab.conftest import take_down, unique_name

from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab

HOST = "h1"
OLD = {"msgpack": "1.0.8", "packaging": "23.2"}
NEW = {"msgpack": "1.2.4", "packaging": "26.4"}
SUITE = '{"cases": ["imports", "record"], "imports": ["msgpack"]}'


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One host that was upgraded by the command line and is on its new generation."""
    name, folder = unique_name(), tmp_path_factory.mktemp("host")
    try:
        lab = Lab.up(name, hosts=1)
        Cudaup(folder / "state").run("apply", "-i", lab.inventory, "-s", small_stack(folder, "by-hand"), "--yes")
        assert service(lab, HOST)["versions"] == NEW
        yield lab
    finally:
        take_down(name)


def told(lab: Lab, *arguments: str) -> dict[str, Any]:
    answer = by_hand(lab, HOST, *arguments)
    assert answer["kind"] == "result", answer
    data: dict[str, Any] = answer["data"]
    return data


def activate(lab: Lab, generation: str, *, ceiling_s: float) -> None:
    """By hand the time to live does not count: the person is there until the ceiling."""
    times = ("--ttl", "5", "--ceiling", f"{ceiling_s:g}")
    assert told(lab, "activate", generation, *times, "--suite", SUITE)["state"] == "awaiting-confirm"


def old_and_new(lab: Lab) -> tuple[str, str]:
    """Both generations, with the host confirmed on the old one."""
    status = told(lab, "status")
    old, new = (each["id"] for each in status["generations"])
    if status["current"]["id"] != old:
        activate(lab, old, ceiling_s=120)
        assert told(lab, "confirm") == {"state": "confirmed", "generation": old}
    assert service(lab, HOST)["versions"] == OLD
    return old, new


def assert_on_old(lab: Lab, old: str, epoch: int) -> None:
    ask = ["curl", "-sf", "127.0.0.1:8000"]
    eventually("the service answers", lambda: lab.run(HOST, ask, check=False).returncode == 0)
    assert service(lab, HOST)["versions"] == OLD
    status = told(lab, "status")
    assert (status["transit"], status["busy"], status["current"]["id"]) == (None, None, old)
    assert status["last_end"] == {"epoch": epoch, "end": "proven", "generation": old}
    assert told(lab, "recover") == {"state": "clean", "actions": []}


def test_a_reboot_while_it_awaits_its_confirmation_puts_the_host_back_at_boot(lab: Lab) -> None:
    old, new = old_and_new(lab)
    activate(lab, new, ceiling_s=120)
    assert service(lab, HOST)["versions"] == NEW
    epoch = told(lab, "status")["transit"]["epoch"]
    lab.fault(HOST, "reboot")
    recovery = ["systemctl", "is-active", "cudaup-recover"]
    eventually("recovery has run", lambda: lab.run(HOST, recovery, check=False).stdout == "active\n")
    assert_on_old(lab, old, epoch)


def test_a_timer_that_is_killed_comes_back_and_fires(lab: Lab) -> None:
    old, new = old_and_new(lab)
    activate(lab, new, ceiling_s=12)
    pending = told(lab, "status")["transit"]
    assert pending["timer_alive"] is True
    lab.run(HOST, ["systemctl", "kill", "--signal=KILL", "cudaup-deadman-*"])
    assert told(lab, "status")["transit"]["timer_alive"] is False
    eventually("it comes back", lambda: told(lab, "status")["transit"]["timer_alive"], within_s=10)
    eventually("it fires", lambda: told(lab, "status")["transit"] is None, within_s=30)
    assert_on_old(lab, old, pending["epoch"])
