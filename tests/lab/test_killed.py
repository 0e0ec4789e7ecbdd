"""The controller killed at any moment: every host ends on the old or the new stack, served and whole, by itself."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab.command import Cudaup, by_hand, kill, service, small_stack
from tests.waiting import eventually

from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab

KILLS = 5  # for each seed
SEEDS = (20261130, 20261201, 20261202, 20261203)
SHORT = {"lease_s": 4, "ttl_s": 4, "ceiling_s": 60}


def is_settled(lab: Lab, host: str) -> bool:
    """Nothing pending or at work on the host, and nobody's lease in the way of the next run."""
    status = by_hand(lab, host, "status")["data"]
    is_still = status["transit"] is None and status["busy"] is None
    return is_still and (status["lease"]["state"] == "free" or status["lease"]["expired"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_sigkill_at_random_moments_leaves_every_host_old_or_new_and_whole(
    lab_factory: Callable[..., Lab], tmp_path: Path, seed: int
) -> None:
    lab = lab_factory(hosts=2)
    cudaup = Cudaup(tmp_path / "state")
    start = time.monotonic()
    cudaup.run("apply", "-i", lab.inventory, "-s", small_stack(tmp_path, "first", timers=SHORT), "--yes")
    whole_run_s = time.monotonic() - start
    dice = random.Random(seed)  # noqa: S311 - moments to kill at, repeatable
    before = dict.fromkeys(lab.hosts, "small-first")
    seen: set[str] = set()
    for number in range(KILLS):
        stack = small_stack(tmp_path, f"kill-{number}", timers=SHORT)
        run = cudaup.start("apply", "-i", lab.inventory, "-s", stack, "--yes")
        try:
            run.communicate(timeout=whole_run_s * (number + dice.random()) / KILLS)
        except subprocess.TimeoutExpired:
            kill(run)
        for host in lab.hosts:
            eventually(lambda host=host: is_settled(lab, host), f"{host} settles itself after kill {number}")  # type: ignore[misc]
            assert by_hand(lab, host, "recover")["data"]["state"] == "clean"
            status = by_hand(lab, host, "status")["data"]
            name = status["current"]["name"]
            assert name in {before[host], f"small-kill-{number}"}
            assert by_hand(lab, host, "verify")["data"]["ok"] is True
            assert service(lab, host)["ok"] is True
            seen.add("new" if name != before[host] else "old")
            before[host] = name
    assert seen == {"old", "new"}  # the moments hit both sides of the switch
