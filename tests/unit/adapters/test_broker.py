"""Ansible for real over the broker, and clients that behave badly."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.adapters.real_sshd import Sshd, StartSshd
from tests.waiting import eventually

from cudaup.adapters import frames
from cudaup.adapters.broker import Broker, shells_of
from cudaup.adapters.connections import Connections
from cudaup.adapters.frames import FrameKind
from cudaup.adapters.runner import playbooks_directory


@pytest.fixture
def broker(sshd: Sshd) -> Iterator[Broker]:
    with closing(Connections()) as connections, Broker(shells_of(connections, [sshd.host()])) as running:
        yield running


def client(broker: Broker, command: str, host: str = "h1") -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(broker.socket_path)
    request = {"host": host, "command": command, "timeout_s": 30}
    frames.send(connection, FrameKind.REQUEST, json.dumps(request).encode())
    return connection


def answer(connection: socket.socket) -> tuple[FrameKind, dict[str, object], bytes]:
    out = b""
    while True:
        frame = frames.receive(connection)
        assert frame is not None, "the broker went away"
        kind, payload = frame
        if kind in {FrameKind.DONE, FrameKind.FAILED}:
            return kind, json.loads(payload), out
        out += payload if kind is FrameKind.STDOUT else b""


def ask(broker: Broker, command: str, *chunks: bytes) -> tuple[FrameKind, dict[str, object], bytes]:
    with client(broker, command) as connection:
        for chunk in chunks:
            frames.send(connection, FrameKind.STDIN, chunk)
        frames.send(connection, FrameKind.STDIN_END)
        return answer(connection)


def test_input_output_and_status_cross_the_socket(broker: Broker) -> None:
    assert ask(broker, "cat; exit 3", b"one ", b"two") == (FrameKind.DONE, {"status": 3}, b"one two")


def test_one_client_may_ask_again_even_when_its_input_was_not_read(broker: Broker) -> None:
    with client(broker, "exit 1") as connection:
        assert answer(connection)[1] == {"status": 1}
        frames.send(connection, FrameKind.STDIN, b"too late")
        frames.send(connection, FrameKind.STDIN_END)
        request = {"host": "h1", "command": "cat", "timeout_s": 30}
        frames.send(connection, FrameKind.REQUEST, json.dumps(request).encode())
        frames.send(connection, FrameKind.STDIN, b"fresh")
        frames.send(connection, FrameKind.STDIN_END)
        assert answer(connection) == (FrameKind.DONE, {"status": 0}, b"fresh")


def test_thirty_clients_at_once(broker: Broker) -> None:
    with ThreadPoolExecutor(30) as pool:
        outputs = pool.map(lambda number: ask(broker, f"echo {number}")[2], range(30))
        assert list(outputs) == [f"{number}\n".encode() for number in range(30)]


def test_a_host_outside_the_run_is_refused(broker: Broker) -> None:
    with client(broker, "id", host="h9") as connection:
        kind, failure, _ = answer(connection)
    assert (kind, failure["kind"]) == (FrameKind.FAILED, "UsageError")


def test_clients_that_die_leave_no_session_behind(broker: Broker) -> None:
    # More than one connection has sessions for: if one leaked, the last command would wait for half a minute.
    for connection in [client(broker, "sleep 30") for _ in range(12)]:
        frames.send(connection, FrameKind.STDIN_END)
        connection.close()
    begin = os.times().elapsed
    assert ask(broker, "echo alive")[2] == b"alive\n"
    assert os.times().elapsed - begin < 10


def test_nonsense_ends_only_the_client_that_talks_it(broker: Broker) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(broker.socket_path)
        connection.sendall(b"GET /")
        assert connection.recv(1) == b""
    assert ask(broker, "echo alive")[2] == b"alive\n"


def test_the_socket_is_private_and_gone_afterwards(sshd: Sshd) -> None:
    with closing(Connections()) as connections:
        with Broker(shells_of(connections, [sshd.host()])) as running:
            directory = Path(running.socket_path).parent
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert not directory.exists()


_PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.copy: {content: "{{ 'z' * 300000 }}", dest: "DIR/{{ inventory_hostname }}", mode: "0600"}
    - ansible.builtin.fetch: {src: "DIR/{{ inventory_hostname }}", dest: "DIR/back-{{ inventory_hostname }}", flat: yes}
    - ansible.builtin.meta: reset_connection
    - ansible.builtin.command: "true"
      changed_when: false
"""


def test_ansible_playbook_by_hand_opens_its_own(start_sshd: StartSshd, tmp_path: Path) -> None:
    """One login per host and reset, shared by all forks; the process that held them ends with the playbook."""
    server = start_sshd()
    host = server.host()
    playbook, inventory = tmp_path / "site.yml", tmp_path / "hosts.json"
    playbook.write_text(_PLAYBOOK.replace("DIR", str(tmp_path)))
    variables = {
        "ansible_connection": "cudaup.stack.broker",
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": host.user,
        "ansible_ssh_private_key_file": host.private_key_file,
        "ansible_ssh_common_args": " ".join(host.ssh_args),
        "ansible_python_interpreter": sys.executable,
    }
    inventory.write_text(json.dumps({"all": {"hosts": {"h1": {}, "h2": {}}, "vars": variables}}))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(inventory), str(playbook)],
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(playbooks_directory() / "collections"),
            "ANSIBLE_HOME": str(tmp_path / "ansible"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [len((tmp_path / f"back-{name}").read_bytes()) for name in ("h1", "h2")] == [300_000, 300_000]
    assert (server.directory / "log").read_text().count("Accepted publickey") == 4
    eventually(lambda: not _has_argument(str(tmp_path / "ansible")), "the broker process's end")


def _has_argument(part: str) -> bool:
    found = subprocess.run(["pgrep", "-f", f"broker_process .*{part}"], capture_output=True, check=False)
    return found.returncode == 0
