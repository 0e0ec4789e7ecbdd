"""The host by itself, under real systemd, with no controller in sight: a reboot in transit, a timer that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.lab.command import Cudaup, by_hand, service, small_stack
from tests.lab.conftest import take_down, unique_name
from tests.waiting import eventually

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


def answers(lab: Lab) -> bool:
    return lab.run(HOST, ["curl", "-sf", "127.0.0.1:8000"], check=False).returncode == 0


def assert_on_old(lab: Lab, old: str, epoch: int) -> None:
    eventually(lambda: answers(lab), "the service answers")
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
    eventually(lambda: lab.run(HOST, recovery, check=False).stdout == "active\n", "recovery has run")
    assert told(lab, "status")["current"]["id"] == old
    eventually(lambda: told(lab, "status")["transit"] is None, "the timer has proven it")
    assert_on_old(lab, old, epoch)


def test_a_timer_that_is_killed_comes_back_and_fires(lab: Lab) -> None:
    old, new = old_and_new(lab)
    activate(lab, new, ceiling_s=12)
    pending = told(lab, "status")["transit"]
    assert pending["timer_alive"] is True
    lab.run(HOST, ["systemctl", "kill", "--signal=KILL", "cudaup-deadman-*"])
    assert told(lab, "status")["transit"]["timer_alive"] is False
    eventually(lambda: told(lab, "status")["transit"]["timer_alive"], "it comes back", within_s=10)
    eventually(lambda: told(lab, "status")["transit"] is None, "it fires", within_s=30)
    assert_on_old(lab, old, pending["epoch"])


def test_a_disk_that_goes_read_only_while_the_service_stops_does_not_keep_it_down(lab: Lab) -> None:
    """Nothing can be recorded, so nothing is switched; the old service runs again, and the timer waits for the disk."""
    old, new = old_and_new(lab)
    folder = "/run/systemd/system/ml.service.d"
    hold = "[Service]\nExecStop=/bin/sh -c 'while test -e /run/hold; do sleep 0.1; done'\n"
    lab.run(HOST, ["sh", "-c", f"mkdir -p {folder}; cat >{folder}/hold.conf"], input=hold)
    lab.run(HOST, ["sh", "-c", "systemctl daemon-reload; touch /run/hold"])
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(by_hand, lab, HOST, "activate", new, "--ttl", "5", "--ceiling", "15", "--suite", SUITE)
        eventually(
            lambda: (told(lab, "status")["transit"] or {}).get("phase") == "stopped", "the service is being stopped"
        )
        lab.fault(HOST, "readonly")
        lab.run(HOST, ["rm", "/run/hold"])
        failed = answer.result(timeout=60)
    assert (failed["kind"], failed["code"], failed["data"]["state"]) == ("failed", "revert", "in-transit")
    assert f"the host stays on {old}, asked to start: ml.service" in failed["text"]
    eventually(lambda: answers(lab), "the service answers")
    assert service(lab, HOST)["versions"] == OLD
    pending = told(lab, "status")["transit"]
    assert (pending["phase"], pending["timer_alive"]) == ("stopped", True)

    lab.fault(HOST, "restore")
    eventually(lambda: told(lab, "status")["transit"] is None, "it settles")
    assert told(lab, "recover")["state"] == "settled"  # the intents whose outcomes could not be written
    assert_on_old(lab, old, pending["epoch"])
