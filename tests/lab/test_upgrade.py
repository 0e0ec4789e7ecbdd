"""One fleet upgraded, put back and refused, by the command line over real ssh and Ansible."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.lab.command import DEMO, Cudaup, by_hand, service, small_stack
from tests.waiting import eventually

from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab

NEW = {"msgpack": "1.2.4", "packaging": "26.4"}
OLD = {"msgpack": "1.0.8", "packaging": "23.2"}
ONLY_THE_OLD_IS_HEALTHY = {
    "command": ["sh", "-c", "curl -sf http://127.0.0.1:8000/ | grep -q 1.0.8"],
    "timeout_s": 60,
}


@pytest.fixture
def cudaup(tmp_path: Path) -> Cudaup:
    return Cudaup(tmp_path / "state")


def test_the_demo_stack_is_planned_applied_proven_and_rolled_back(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=1)
    aside_before = lab.run("h1", ["stat", "-c", "%i", "/root/ml-env"]).stdout
    plan = tmp_path / "plan.json"
    text = cudaup.run("plan", "-i", lab.inventory, "-s", DEMO, "-o", plan, "--detailed-exitcode", expect=2)
    assert "adopt /root/ml-env" in text
    assert "[simulated: driver, gpus]" in text
    assert service(lab, "h1")["versions"] == OLD  # a plan changes nothing

    report = cudaup.json("apply", plan, "--yes")
    assert report["hosts"][0]["outcome"] == "applied"
    verdicts = {case["case"]: (case["verdict"], case["simulated"]) for case in report["hosts"][0]["smoke"]}
    assert verdicts == {
        "driver": ("waived", True),
        "imports": ("pass", False),
        "record": ("pass", False),
        "nvcc": ("pass", False),
        "launch": ("waived", True),
    }
    live = service(lab, "h1")
    assert live["versions"] == NEW
    current = cudaup.host_status(lab, "h1")["current"]["id"]
    assert live["cuda_home"] == f"/opt/cudaup/generations/{current}/cuda"
    assert cudaup.outcomes("apply", "-i", lab.inventory, "-s", DEMO, "--yes") == {"h1": "unchanged"}

    assert cudaup.outcomes("rollback", "-i", lab.inventory, expect=4) == {"h1": "rolled-back"}
    assert service(lab, "h1")["versions"] == OLD
    assert cudaup.outcomes("rollback", "-i", lab.inventory) == {"h1": "unchanged"}  # asked twice: not forwards again

    assert by_hand(lab, "h1", "forget")["kind"] == "result"
    assert lab.run("h1", ["stat", "-c", "%F %i", "/root/ml-env"]).stdout == f"directory {aside_before}"
    assert lab.run("h1", ["test", "-e", "/opt/cudaup"], check=False).returncode == 1
    assert service(lab, "h1")["versions"] == OLD


def test_one_of_three_fails_its_smoke_and_is_put_back_by_itself(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=3)
    # The new stack looks into /opt/site first; only on h2 another msgpack lies there, and only an import can see it.
    lab.run("h2", ["sh", "-c", "mkdir /opt/site && echo 'version = (1, 0, 8)' >/opt/site/msgpack.py"])
    stack = small_stack(tmp_path, "shadowed", env={"PYTHONPATH": "/opt/site"})
    report = cudaup.json("apply", "-i", lab.inventory, "-s", stack, "--yes", expect=4)
    assert {host["host"]: host["outcome"] for host in report["hosts"]} == {
        "h1": "applied",
        "h2": "rolled-back",
        "h3": "applied",
    }
    assert [service(lab, host)["versions"] for host in ("h1", "h2", "h3")] == [NEW, OLD, NEW]
    second = cudaup.host_status(lab, "h2")
    assert (second["current"]["kind"], second["transit"], second["lease"]["state"]) == ("adopted", None, "free")
    evidence = json.loads(lab.run("h2", ["sh", "-c", "cat /opt/cudaup/failed/*.json"]).stdout)
    assert evidence["verdict"] == "proven"


def test_a_host_that_moved_since_the_plan_is_refused_with_what_moved(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=2)
    plan = tmp_path / "plan.json"
    cudaup.run("plan", "-i", lab.inventory, "-s", small_stack(tmp_path, "stale"), "-o", plan)
    lab.fault("h1", "reboot")
    report = cudaup.json("apply", plan, "--yes", expect=3)
    first, second = report["hosts"]
    assert (first["outcome"], second["outcome"]) == ("refused", "applied")
    assert "boot id: planned for" in first["reason"]
    assert service(lab, "h1")["versions"] == OLD


def test_the_second_of_two_controllers_is_told_who_holds_the_lease(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=1)
    stack = small_stack(tmp_path, "two")
    plan = tmp_path / "plan.json"
    cudaup.run("plan", "-i", lab.inventory, "-s", stack, "-o", plan)
    first = cudaup.start("apply", plan, "--yes")
    eventually(
        lambda: lab.run("h1", ["test", "-e", "/opt/cudaup/lease.json"], check=False).returncode == 0,
        "the first has the lease",
    )
    told = cudaup.run("apply", "-i", lab.inventory, "-s", stack, "--yes", expect=3)
    assert "upgrade to small-two" in told
    assert "held" in told
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, out + err


def test_a_controller_that_comes_back_after_another_took_over_is_fenced(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=1)
    short = {"lease_s": 3, "ttl_s": 3}
    old = cudaup.start("apply", "-i", lab.inventory, "-s", small_stack(tmp_path, "old", timers=short), "--yes")
    eventually(
        lambda: lab.run("h1", ["test", "-e", "/opt/cudaup/lease.json"], check=False).returncode == 0, "it has the lease"
    )
    old.send_signal(signal.SIGSTOP)
    eventually(lambda: bool(cudaup.host_status(lab, "h1")["lease"]["expired"]), "its lease runs out")
    later = small_stack(tmp_path, "later", timers={"lease_s": 30, "ttl_s": 15})
    assert cudaup.outcomes("apply", "-i", lab.inventory, "-s", later, "--yes") == {"h1": "applied"}
    old.send_signal(signal.SIGCONT)
    out, err = old.communicate(timeout=120)
    assert old.returncode == 3, out + err
    assert "epoch" in out
    assert cudaup.host_status(lab, "h1")["current"]["name"] == "small-later"


def test_ctrl_c_settles_what_is_switching_and_leaves_the_rest(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=3)
    run = cudaup.start("apply", "-v", "-i", lab.inventory, "-s", small_stack(tmp_path, "stop"), "--yes", "--json")
    assert run.stderr is not None
    for line in run.stderr:
        if line.split()[:2] == ["h1", "activate"]:
            break
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 130, out + err
    report = json.loads(out)
    assert [host["outcome"] for host in report["hosts"]] == ["applied", "refused", "refused"]
    assert report["hosts"][1]["reason"] == "stopped by the operator before anything was disrupted"
    assert [service(lab, host)["versions"] for host in ("h1", "h2", "h3")] == [NEW, OLD, OLD]
    assert cudaup.host_status(lab, "h2")["lease"]["state"] == "free"


def test_a_second_ctrl_c_leaves_at_once_and_the_hosts_timer_puts_it_back(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=1)
    stack = small_stack(tmp_path, "left", timers={"lease_s": 4, "ttl_s": 4}, health=ONLY_THE_OLD_IS_HEALTHY)
    run = cudaup.start("apply", "-v", "-i", lab.inventory, "-s", stack, "--yes")
    assert run.stderr is not None
    for line in run.stderr:
        if line.split()[:2] == ["h1", "activate/health"]:
            break
    run.send_signal(signal.SIGINT)
    for line in run.stderr:
        if line.startswith("stopping"):
            break
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=10)
    assert run.returncode == 5, out + err
    assert "h1: in-transit: the run broke off before this host was settled during activate" in out
    eventually(lambda: by_hand(lab, "h1", "status")["data"]["transit"] is None, "it went back")
    assert service(lab, "h1")["versions"] == OLD


def test_an_operator_lost_in_the_middle_of_a_switch_leaves_a_host_that_puts_itself_back(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=1)
    stack = small_stack(tmp_path, "cut", timers={"lease_s": 6, "ttl_s": 6})
    run = cudaup.start("apply", "-v", "-i", lab.inventory, "-s", stack, "--yes")
    assert run.stderr is not None
    for line in run.stderr:
        if line.split()[:2] == ["h1", "activate/stop"]:
            break
    lab.fault("h1", "cut")
    transit = "/opt/cudaup/transit.json"
    eventually(lambda: lab.run("h1", ["test", "-e", transit], check=False).returncode == 1, "it went back")
    assert service(lab, "h1")["versions"] == OLD
    lab.fault("h1", "restore")
    out, err = run.communicate(timeout=240)
    assert run.returncode == 4, out + err
    assert "the host went back" in out


def test_a_rollback_needs_no_index_and_no_wheel_on_the_controller(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=1)
    cudaup.run("apply", "-i", lab.inventory, "-s", small_stack(tmp_path, "offline"), "--yes")
    bare = Cudaup(
        tmp_path / "other-laptop",
        {"CUDAUP_CACHE": str(tmp_path / "empty"), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"},
    )
    lab.run("h1", ["rm", "-r", "/opt/cudaup/blobs", "/opt/cudaup/uv-cache"])
    assert bare.outcomes("rollback", "-i", lab.inventory, expect=4) == {"h1": "rolled-back"}
    assert service(lab, "h1")["versions"] == OLD
    assert not (tmp_path / "empty").exists()


def test_through_a_bastion_as_a_user_with_sudo_and_a_password(
    lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path
) -> None:
    lab = lab_factory(hosts=2, user="ops", bastion=True)
    stack = small_stack(tmp_path, "bastion")
    applied = cudaup.outcomes("apply", "-i", lab.inventory, "-s", stack, "--yes")
    assert applied == {"h1": "applied", "h2": "applied"}
    assert service(lab, "h1")["versions"] == NEW
    owners = lab.run("h1", ["find", "/opt/cudaup", "/root/ml-env/", "!", "-user", "root"]).stdout
    assert owners == ""
    password = yaml.safe_load(lab.inventory.read_text())["gpu"]["vars"]["ansible_become_password"]
    kept = [path for path in cudaup.state.rglob("*") if path.is_file() and password in path.read_text()]
    assert kept == []  # in no plan and no journal
