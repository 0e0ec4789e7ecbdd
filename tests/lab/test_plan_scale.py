"""A plan of fifty hosts: one connection and one command each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab.command import Cudaup, small_stack

from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab
HOSTS = 50


def test_a_plan_of_fifty_hosts_is_one_login_and_one_command_each(
    lab_factory: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = lab_factory(hosts=HOSTS)
    before = {host: sessions(lab, host) for host in ("h1", "h25", "h50")}
    plan = tmp_path / "plan.json"
    cudaup = Cudaup(tmp_path / "state")
    cudaup.run("plan", "-i", lab.inventory, "-s", small_stack(tmp_path, "fifty"), "-o", plan)
    made = json.loads(plan.read_text())
    assert Counter(host["verdict"] for host in made["hosts"]) == {"change": HOSTS}
    assert len({host["fingerprint"]["boot_id"] for host in made["hosts"]}) == HOSTS
    assert sorted(name for wave in made["waves"] for name in wave) == sorted(f"h{n}" for n in range(1, HOSTS + 1))
    for host, old in before.items():
        assert sessions(lab, host) == (old[0] + 1, old[1] + 1)


def sessions(lab: Lab, host: str) -> tuple[int, int]:
    """Logins accepted and commands started so far, from sshd's own log."""
    log = lab.run(host, ["journalctl", "-u", "ssh", "-o", "cat", "--no-pager"]).stdout
    return log.count("Accepted publickey"), log.count("Starting session: command")
