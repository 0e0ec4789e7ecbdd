"""What goes wrong after an upgrade, and that the words and exit codes for it are true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.lab.command import Cudaup, by_hand, service, small_stack
from tests.waiting import eventually

from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab

NEW = {"msgpack": "1.2.4", "packaging": "26.4"}
OLD = {"msgpack": "1.0.8", "packaging": "23.2"}


@pytest.fixture
def cudaup(tmp_path: Path) -> Cudaup:
    return Cudaup(tmp_path / "state")


@pytest.fixture
def upgraded(lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path) -> Lab:
    """One host on its new generation, confirmed."""
    lab = lab_factory(hosts=1)
    cudaup.run("apply", "-i", lab.inventory, "-s", small_stack(tmp_path, "new"), "--yes")
    assert service(lab, "h1")["versions"] == NEW
    return lab


def active(lab: Lab) -> str:
    return lab.run("h1", ["systemctl", "is-active", "ml.service"], check=False).stdout.strip()


def test_a_service_that_crashes_on_the_new_stack_is_told_and_a_rollback_makes_it_serve_again(
    upgraded: Lab, cudaup: Cudaup, tmp_path: Path
) -> None:
    """CUDAUP_TEST is in the new generation's environment only."""
    dies = "import os,sys\nif 'CUDAUP_TEST' in os.environ: sys.exit(3)\n"
    upgraded.run("h1", ["sh", "-c", "cat - /opt/ml/serve.py >/tmp/s && cp /tmp/s /opt/ml/serve.py"], input=dies)
    upgraded.run("h1", ["systemctl", "restart", "ml.service"], check=False)
    eventually(lambda: active(upgraded) == "failed", "systemd gives up", within_s=60)

    assert "SERVICE DOWN: ml.service failed" in cudaup.run("status", "-i", upgraded.inventory, expect=5)
    told = cudaup.run("plan", "-i", upgraded.inventory, "-s", tmp_path / "new.yml", expect=3)
    assert "H010: ml.service is failed" in told
    assert cudaup.outcomes("rollback", "-i", upgraded.inventory, expect=4) == {"h1": "rolled-back"}
    assert service(upgraded, "h1")["versions"] == OLD
    assert "proven" in cudaup.run("status", "-i", upgraded.inventory)


def test_a_rollback_works_on_a_full_disk(upgraded: Lab, cudaup: Cudaup) -> None:
    upgraded.fault("h1", "disk-full")
    assert cudaup.outcomes("rollback", "-i", upgraded.inventory, expect=4) == {"h1": "rolled-back"}
    assert service(upgraded, "h1")["versions"] == OLD


def test_after_a_reboot_a_host_can_be_upgraded_again_and_forgotten(
    upgraded: Lab, cudaup: Cudaup, tmp_path: Path
) -> None:
    """Filesystems such as overlays number files anew at each boot: nothing may rest on inode numbers."""
    upgraded.fault("h1", "reboot")
    eventually(lambda: active(upgraded) == "active", "the service is up again", within_s=30)
    assert cudaup.outcomes("rollback", "-i", upgraded.inventory, expect=4) == {"h1": "rolled-back"}
    later = small_stack(tmp_path, "later")
    assert cudaup.outcomes("apply", "-i", upgraded.inventory, "-s", later, "--yes") == {"h1": "applied"}
    assert cudaup.outcomes("rollback", "-i", upgraded.inventory, "--to", "1", expect=4) == {"h1": "rolled-back"}
    assert by_hand(upgraded, "h1", "forget")["kind"] == "result"
    assert upgraded.run("h1", ["stat", "-c", "%F", "/root/ml-env"]).stdout == "directory\n"
    assert service(upgraded, "h1")["versions"] == OLD


def test_a_way_back_that_is_not_whole_is_refused_and_nothing_is_disturbed(upgraded: Lab, cudaup: Cudaup) -> None:
    damage = "for f in /root/.ml-env.*/lib/python3.11/site-packages/msgpack/__init__.py; do echo >>$f; done"
    upgraded.run("h1", ["sh", "-c", damage])
    before = service(upgraded, "h1")["pid"]
    refused = cudaup.json("rollback", "-i", upgraded.inventory, expect=3)
    assert "is not what was recorded" in refused["hosts"][0]["reason"]
    assert service(upgraded, "h1")["pid"] == before


def test_a_login_that_is_not_root_is_told_so(lab_factory: Callable[..., Lab], cudaup: Cudaup, tmp_path: Path) -> None:
    lab = lab_factory(hosts=1, user="ops")
    cudaup.run("apply", "-i", lab.inventory, "-s", small_stack(tmp_path, "sudo"), "--yes")
    plain = yaml.safe_load(lab.inventory.read_text())
    variables = plain["gpu"]["vars"]
    plain["gpu"]["vars"] = {key: value for key, value in variables.items() if "become" not in key}
    (tmp_path / "plain.yml").write_text(yaml.safe_dump(plain))
    refused = cudaup.json("rollback", "-i", tmp_path / "plain.yml", expect=3)
    assert "this needs root, and runs as user id 1000" in refused["hosts"][0]["reason"]
    assert service(lab, "h1")["versions"] == NEW
