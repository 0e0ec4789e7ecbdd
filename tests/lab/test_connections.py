"""Ways in as real fleets have them: a bastion, a user whose sudo wants a password, and things going wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from cudaup.adapters.broker import Broker, shells_of
from cudaup.adapters.connections import Connections
from cudaup.adapters.inventory import AnsibleInventories
from cudaup.adapters.runner import AnsiblePlays, playbooks_directory
from cudaup.domain.errors import AuthenticationFailed, ConnectionFailed, HostKeyRejected
from cudaup.domain.inventory import Become, Host
from cudaup.lab import registry
from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab

_ROOT_S = 30


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts behind a bastion, entered as a user with a sudo password; sshd alone, as no service is asked."""
    name = f"ways-{os.getpid()}"
    yield Lab.up(name, hosts=2, init="sshd", user="ops", bastion=True)
    registry.release(registry.read(name).spec)


@pytest.fixture(scope="module")
def hosts(lab: Lab) -> tuple[Host, ...]:
    return AnsibleInventories().read([str(lab.inventory)], None)


@pytest.fixture
def connections() -> Iterator[Connections]:
    with closing(Connections()) as made:
        yield made


def with_options(host: Host, *options: str) -> Host:
    """Before the user's own options: the first one counts, as on OpenSSH's command line."""
    return replace(host, ssh_args=(*(word for option in options for word in ("-o", option)), *host.ssh_args))


def who(connections: Connections, host: Host) -> int:
    reply = connections.link(host).call(["facts"], timeout_s=_ROOT_S)
    uid: int = reply.data["host"]["uid"]
    return uid


def test_a_sudo_user_behind_a_bastion_is_root_over_one_bastion_login(
    lab: Lab, hosts: tuple[Host, ...], connections: Connections
) -> None:
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(lambda host: who(connections, host), hosts)) == [0, 0]
    established = lab.run("bastion", ["ss", "-Htn", "state", "established", "sport = :22"]).stdout
    assert len(established.splitlines()) == 1


def test_a_wrong_sudo_password_is_one_refusal_that_does_not_show_it(
    hosts: tuple[Host, ...], connections: Connections
) -> None:
    host = replace(hosts[0], become=Become(password=SecretStr("not the password")))
    with pytest.raises(AuthenticationFailed, match="h1: sudo password rejected") as caught:
        who(connections, host)
    assert "not the password" not in str(caught.value)


def test_no_sudo_password_where_one_is_wanted(hosts: tuple[Host, ...], connections: Connections) -> None:
    with pytest.raises(AuthenticationFailed, match="a password is required"):
        who(connections, replace(hosts[0], become=Become()))


def test_a_host_with_another_hosts_key_is_refused(
    lab: Lab, hosts: tuple[Host, ...], connections: Connections, tmp_path: Path
) -> None:
    known = next(lab.directory.glob("**/known_hosts")).read_text().splitlines()
    swapped = tmp_path / "known_hosts"
    (first, first_key), (second, second_key) = (line.split(" ", 1) for line in known[:2])
    swapped.write_text("\n".join((f"{first} {second_key}", f"{second} {first_key}", *known[2:])))
    with pytest.raises(HostKeyRejected, match=rf"^h1: {swapped}:1: host key has changed"):
        who(connections, with_options(hosts[0], f"UserKnownHostsFile={swapped}"))


def test_an_unreachable_host_is_told_from_its_bastion_and_comes_back(
    lab: Lab, hosts: tuple[Host, ...], connections: Connections
) -> None:
    away = with_options(hosts[1], "ConnectTimeout=2")
    lab.fault("h2", "cut")
    try:
        with pytest.raises(ConnectionFailed, match=r"^h2: .*bastion"):
            who(connections, away)
        assert who(connections, hosts[0]) == 0
    finally:
        lab.fault("h2", "restore")
    assert who(connections, away) == 0


_PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.command: id -u
      changed_when: false
"""


def test_a_play_takes_the_same_way_and_is_root_without_become(
    hosts: tuple[Host, ...], connections: Connections, tmp_path: Path
) -> None:
    (tmp_path / "who.yml").write_text(_PLAYBOOK)
    (tmp_path / "collections").symlink_to(playbooks_directory() / "collections")
    results = AnsiblePlays(connections, tmp_path).run("who", hosts, {}, timeout_s=60, on_event=lambda _: None)
    assert {name: result.data["stdout"] for name, result in results.items()} == {"h1": "0", "h2": "0"}


def test_ansible_playbook_by_hand_becomes_root_by_ansibles_own_sudo(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "who.yml").write_text(_PLAYBOOK + "    - ansible.builtin.ping:\n")
    command = [sys.executable, "-m", "ansible", "playbook", "-v", "-i", str(lab.inventory), str(tmp_path / "who.yml")]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(playbooks_directory() / "collections"),
        "ANSIBLE_HOME": str(tmp_path),
    }
    done = subprocess.run(
        [*command, "-e", "ansible_connection=cudaup.stack.broker"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"stdout": "0"') == 2


def test_another_user_of_this_machine_is_not_served(hosts: tuple[Host, ...], connections: Connections) -> None:
    """Even when the directory's mode did not keep them out."""
    ask = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(1))"
    with Broker(shells_of(connections, hosts)) as broker:
        Path(broker.socket_path).parent.chmod(0o755)
        Path(broker.socket_path).chmod(0o777)
        stranger = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", ask]
        done = subprocess.run([*stranger, broker.socket_path], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "b''\n"
