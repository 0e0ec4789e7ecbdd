"""Servers that live as long as the test session, and ways to look at one with other eyes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.adapters.real_sshd import Sshd, StartSshd, answers, free_port, make_key, spawn, trust
from tests.waiting import eventually


@pytest.fixture(scope="session")
def start_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartSshd]:
    """Call it with further lines for sshd_config; the client key is the same for all servers."""
    client_key = make_key(tmp_path_factory.mktemp("client") / "id")
    if os.geteuid() == 0:  # sshd refuses to start as root without it
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    running: list[subprocess.Popen[bytes]] = []

    def start(*lines: str) -> Sshd:
        directory = tmp_path_factory.mktemp("sshd")
        server = Sshd(
            port=free_port(), directory=directory, client_key=client_key, host_key=make_key(directory / "host")
        )
        running.append(spawn(server, lines))
        trust(server)
        eventually(lambda: answers(server.port), f"sshd on {server.port}")
        return server

    yield start
    for process in running:
        process.terminate()
    for process in running:
        process.wait(10)


@pytest.fixture(scope="session")
def sshd(start_sshd: StartSshd) -> Sshd:
    return start_sshd()


@pytest.fixture
def stranger(sshd: Sshd, tmp_path: Path) -> Sshd:
    """The same server, but with a known_hosts of the test's own (empty at first)."""
    (tmp_path / "known_hosts").touch()
    return replace(sshd, directory=tmp_path)


@pytest.fixture
def agent(sshd: Sshd, tmp_path: Path) -> Iterator[str]:
    """An ssh-agent with the client key; its socket."""
    path = str(tmp_path / "agent")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    eventually(lambda: Path(path).exists(), "ssh-agent")
    subprocess.run(["ssh-add", "-q", str(sshd.client_key)], env={**os.environ, "SSH_AUTH_SOCK": path}, check=True)
    yield path
    process.terminate()
    process.wait(10)
