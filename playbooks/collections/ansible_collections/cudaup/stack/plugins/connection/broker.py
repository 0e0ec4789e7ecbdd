# SPDX-License-Identifier: GPL-3.0-or-later
# This file imports Ansible's plugin classes, so it is under the GNU General Public License v3.0 or later;
# see docs/adr/0002-licences.md.
"""Tasks over connections that another process holds: cudaup's, or one started here for a playbook run by hand."""

from __future__ import annotations

DOCUMENTATION = r"""
name: broker
short_description: Run tasks over cudaup's own ssh connections
version_added: 0.1.0
author: The cudaup authors (@cudaup)
description:
  - Every command goes through a unix socket to a process that holds one authenticated ssh transport per host.
  - Inside cudaup that process is cudaup itself, and commands run as root already.
  - In an C(ansible-playbook) started by hand the first connection starts one; it ends with the playbook.
  - Host settings come from OpenSSH (C(ssh -G)), so jump hosts, aliases and key files of C(~/.ssh/config) work.
  - Host keys are always verified. Needs the Python package cudaup in Ansible's own Python.
options:
  inventory_name:
    description: The host's name in the inventory.
    default: inventory_hostname
    vars:
      - name: inventory_hostname
  host:
    description: Address to connect to.
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_host
      - name: ansible_ssh_host
  port:
    description: Port to connect to.
    type: int
    vars:
      - name: ansible_port
      - name: ansible_ssh_port
    keyword:
      - name: port
  remote_user:
    description: User to log in as.
    vars:
      - name: ansible_user
      - name: ansible_ssh_user
    keyword:
      - name: remote_user
    cli:
      - name: user
  password:
    description: Password to log in with when no key is accepted.
    vars:
      - name: ansible_password
      - name: ansible_ssh_pass
      - name: ansible_ssh_password
  private_key_file:
    description: Private key to log in with.
    vars:
      - name: ansible_private_key_file
      - name: ansible_ssh_private_key_file
    cli:
      - name: private_key_file
        option: --private-key
  ssh_args:
    description: Options for C(ssh -G).
    default: ""
    vars:
      - name: ansible_ssh_args
  ssh_common_args:
    description: Further options for C(ssh -G).
    default: ""
    vars:
      - name: ansible_ssh_common_args
    cli:
      - name: ssh_common_args
  ssh_extra_args:
    description: Further options for C(ssh -G).
    default: ""
    vars:
      - name: ansible_ssh_extra_args
    cli:
      - name: ssh_extra_args
  pipelining:
    description: Modules go through standard input, nothing is stored on the host.
    type: bool
    default: true
    vars:
      - name: ansible_pipelining
  time_limit:
    description: Seconds one command may take in all.
    type: int
    default: 7200
    vars:
      - name: cudaup_time_limit
  broker:
    description: Socket of the process that holds the connections.
    env:
      - name: CUDAUP_BROKER
    vars:
      - name: cudaup_broker
"""

import fcntl
import json
import multiprocessing
import os
import shlex
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible import constants as C  # noqa: N812  Ansible's own name for it
from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

try:
    from cudaup.adapters import frames
except ImportError as missing:
    raise AnsibleConnectionFailure(
        f"the connection cudaup.stack.broker needs the Python package cudaup in {sys.executable}; "
        "install it there, or set ansible_connection=ssh"
    ) from missing


class Connection(ConnectionBase):
    """One worker's way to one host."""

    transport = "cudaup.stack.broker"
    has_pipelining = True
    has_tty = False

    def _connect(self) -> Connection:
        if not self._connected:
            path = self.get_option("broker")
            self._socket = _connected(path) if path else _own_broker()
            self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        exchange = _Exchange(self._socket, self.become if sudoable else None, in_data or b"")
        status, stdout, stderr = exchange.run(self._request(cmd))
        # A negative status would be lost in Ansible's own checks; shells call a killed command 137.
        return (status if status >= 0 else 137), stdout, stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        super().put_file(in_path, out_path)
        self._plain(f"cat > {shlex.quote(out_path)}", Path(in_path).read_bytes())

    def fetch_file(self, in_path: str, out_path: str) -> None:
        super().fetch_file(in_path, out_path)
        Path(out_path).write_bytes(self._plain(f"cat {shlex.quote(in_path)}", b""))

    def reset(self) -> None:
        """For `meta: reset_connection`: the next command comes over a new login."""
        self._connect()
        _Exchange(self._socket, None, b"").run(self._request(None))

    def close(self) -> None:
        if self._connected:
            self._socket.close()
        self._connected = False

    def _plain(self, command: str, data: bytes) -> bytes:
        self._connect()
        status, stdout, stderr = _Exchange(self._socket, None, data).run(self._request(command))
        if status:
            raise AnsibleConnectionFailure(
                f"`{command}` ended with {status}: {stderr.decode(errors='replace').strip()}"
            )
        return stdout

    def _request(self, command: str | None) -> dict[str, Any]:
        name = self.get_option("inventory_name")
        limit = self.get_option("time_limit")
        if self.get_option("broker"):
            return {"host": name, "command": command, "timeout_s": limit}
        given = ("port", "password", "private_key_file", "ssh_args", "ssh_common_args", "ssh_extra_args")
        options = {key: self.get_option(key) for key in given}
        options |= {"name": name, "address": self.get_option("host"), "user": self.get_option("remote_user")}
        return {"options": options, "command": command, "timeout_s": limit}


class _Exchange:
    """One command: its input is sent from a thread while its output is read here."""

    def __init__(self, broker: socket.socket, become: Any, data: bytes) -> None:
        self._broker = broker
        self._become = become
        self._data = data
        self._streams = {frames.FrameKind.STDOUT: bytearray(), frames.FrameKind.STDERR: bytearray()}
        self._sender: threading.Thread | None = None
        self._was_asked = False

    def run(self, request: dict[str, Any]) -> tuple[int, bytes, bytes]:
        try:
            frames.send(self._broker, frames.FrameKind.REQUEST, json.dumps(request).encode())
            if self._become is None or not self._become.expect_prompt():
                self._send_input()
            kind, answer = self._last_frame()
        except (OSError, ValueError) as error:
            raise AnsibleConnectionFailure(f"the process that holds the connections broke off: {error}") from None
        if kind is frames.FrameKind.FAILED:
            is_login = answer["kind"] == "AuthenticationFailed"
            raise (AnsibleAuthenticationFailure if is_login else AnsibleConnectionFailure)(answer["text"])
        return (
            answer["status"],
            bytes(self._streams[frames.FrameKind.STDOUT]),
            bytes(self._streams[frames.FrameKind.STDERR]),
        )

    def _last_frame(self) -> tuple[frames.FrameKind, dict[str, Any]]:
        while True:
            frame = frames.receive(self._broker)
            if frame is None:
                raise AnsibleConnectionFailure("the process that holds the connections is gone")
            kind, payload = frame
            if kind in self._streams:
                self._streams[kind] += payload
                self._answer_sudo()
                continue
            self._send_input(is_over=True)
            return kind, json.loads(payload)

    def _answer_sudo(self) -> None:
        """Ansible's become plugin knows its prompt and its success mark; only the conversation is ours."""
        if self._sender is not None or self._become is None:
            return
        for stream in self._streams.values():
            heard = bytes(stream)
            if self._become.check_success(heard):
                stream[:] = self._become.strip_become_success(heard)
                self._send_input()
                return
            if self._become.check_incorrect_password(heard):
                raise AnsibleAuthenticationFailure("Incorrect sudo password")
            if self._become.check_password_prompt(heard) and not self._was_asked:
                self._was_asked = True
                password = self._become.get_option("become_pass")
                frames.send(self._broker, frames.FrameKind.STDIN, password.encode() + b"\n")

    def _send_input(self, *, is_over: bool = False) -> None:
        """At most once; a command that is over gets the end without the input."""
        if self._sender is None:
            data = b"" if is_over else self._data
            self._sender = threading.Thread(target=_send_all, args=(self._broker, data), daemon=True)
            self._sender.start()
        if is_over:
            self._sender.join()


def _send_all(broker: socket.socket, data: bytes) -> None:
    with suppress(OSError):  # whoever reads the answers notices too, and says so
        for start in range(0, len(data), frames.CHUNK):
            frames.send(broker, frames.FrameKind.STDIN, data[start : start + frames.CHUNK])
        frames.send(broker, frames.FrameKind.STDIN_END)


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise AnsibleConnectionFailure(f"nothing answers at {path}: {error}") from None
    return connection


def _own_broker() -> socket.socket:
    """Ansible's local temporary directory is this playbook's own, 0700, shared by its workers, removed at its end.

    A file there holds the socket's path, as the directory's own may be too long for a socket.
    """
    with Path(C.DEFAULT_LOCAL_TMP, "cudaup").open("a+", encoding="utf-8") as place:
        fcntl.flock(place, fcntl.LOCK_EX)
        place.seek(0)
        path = place.read()
        if not path:
            path = _start_broker(place.name)
            place.write(path)
    return _connected(path)


def _start_broker(place: str) -> str:
    worker = multiprocessing.parent_process()
    playbook = os.getpid() if worker is None else worker.pid
    process = subprocess.Popen(
        [sys.executable, "-m", "cudaup.adapters.broker_process", str(playbook), place],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    with process.stdout as answer:
        said = answer.readline().strip()
        if not said.startswith("/"):
            words = (said + answer.read()).strip().rpartition("\n")[2]
            raise AnsibleConnectionFailure(
                f"cannot start `{sys.executable} -m cudaup.adapters.broker_process`: {words}"
            )
    return said
