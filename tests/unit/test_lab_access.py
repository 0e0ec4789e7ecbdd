from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudaup.lab import access
from cudaup.lab.spec import Disk, Init, LabSpec, fleet_of


def written(directory: Path, *, warden_pid: int = 0, user: str | None = None, bastion: bool = False) -> LabSpec:
    """Where no process 0 is: from outside the lab's network namespace, unless told otherwise."""
    lab = LabSpec(
        name="lab",
        directory=directory,
        root=Path("/root-of-hosts"),
        cgroup=directory / "cgroup",
        hosts=fleet_of(2, "none", bastion=bastion),
        init=Init.SSHD,
        disk=Disk.parse("tmpfs:1g"),
        user=user,
    )
    access.make_keys(lab)
    access.write_configs(lab, warden_pid)
    return lab


def resolved(config: Path, host: str) -> dict[str, str]:
    """As OpenSSH itself understands the file."""
    done = subprocess.run(["ssh", "-G", "-F", str(config), host], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def inventory(path: Path) -> Any:
    return yaml.safe_load(path.read_text())["gpu"]


@pytest.mark.parametrize("word", ["h1", "10.77.0.2"])
def test_a_host_is_reached_by_name_and_address_through_the_proxy(tmp_path: Path, word: str) -> None:
    written(tmp_path)
    settings = resolved(tmp_path / "ssh_config", word)
    assert settings["hostname"] == "10.77.0.2"
    assert settings["proxycommand"] == f"{tmp_path}/proxy %h %p"
    assert settings["stricthostkeychecking"] == "true"
    assert settings["userknownhostsfile"] == f"{tmp_path}/known_hosts"
    assert settings["user"] == "root"


def test_the_inventory_hands_on_the_ssh_configuration(tmp_path: Path) -> None:
    written(tmp_path)
    arguments = inventory(tmp_path / "inventory.yml")["vars"]["ansible_ssh_common_args"]
    assert shlex.split(arguments) == ["-F", f"{tmp_path}/ssh_config"]


def test_inside_the_labs_own_network_there_is_no_proxy(tmp_path: Path) -> None:
    written(tmp_path, warden_pid=os.getpid())
    assert "proxycommand" not in resolved(tmp_path / "ssh_config", "h1")


@pytest.mark.parametrize(("warden_pid", "has_proxy"), [(0, True), (os.getpid(), False)], ids=["dead", "alive"])
def test_behind_a_bastion_every_host_is_jumped_to(tmp_path: Path, warden_pid: int, *, has_proxy: bool) -> None:
    written(tmp_path, warden_pid=warden_pid, bastion=True)
    inner, bastion = (resolved(tmp_path / "ssh_config", host) for host in ("h2", "bastion"))
    assert (inner["proxyjump"], "proxycommand" in inner) == ("bastion", False)
    assert ("proxyjump" in bastion, "proxycommand" in bastion) == (False, has_proxy)
    assert set(inventory(tmp_path / "inventory.yml")["hosts"]) == {"h1", "h2"}


def test_a_user_becomes_root_with_a_password_of_this_lab_only(tmp_path: Path) -> None:
    passwords = set()
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, user="ann")
        variables = inventory(tmp_path / folder / "inventory.yml")["vars"]
        assert (variables["ansible_user"], variables["ansible_become"]) == ("ann", True)
        passwords.add(variables["ansible_become_password"])
    assert len(passwords) == 2


def test_private_files_are_private(tmp_path: Path) -> None:
    written(tmp_path, user="ann")
    for name in ("id_ed25519", "keys/h1", "password"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_without_the_lab_the_proxy_says_so(tmp_path: Path) -> None:
    written(tmp_path)
    failed = subprocess.run([tmp_path / "proxy", "10.77.0.2", "22"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stderr) == (1, "the lab `lab` is not up\n")
