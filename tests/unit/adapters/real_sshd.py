"""A real sshd of the test's own: own port, host key, authorized keys. Also the streams that tests listen with."""

from __future__ import annotations

import getpass
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudaup.adapters.shell import CommandStreams
from cudaup.domain.inventory import Host

StartSshd = Callable[..., "Sshd"]


@dataclass(frozen=True, kw_only=True)
class Sshd:
    """A running server and what a client needs for it."""

    port: int
    directory: Path
    client_key: Path
    host_key: Path

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    def ssh_args(self, *options: str) -> tuple[str, ...]:
        """Nothing of the developer's own configuration may reach a test."""
        fixed = (f"UserKnownHostsFile={self.known_hosts}", "GlobalKnownHostsFile=none", "IdentityAgent=none", *options)
        return ("-F", "none", *(word for option in fixed for word in ("-o", option)))

    def host(self, *options: str) -> Host:
        return Host(
            name="h1",
            address="127.0.0.1",
            port=self.port,
            user=getpass.getuser(),
            private_key_file=str(self.client_key),
            ssh_args=self.ssh_args(*options),
        )


class Heard(CommandStreams):
    """Sends chunks and keeps what comes back."""

    def __init__(self, *chunks: bytes) -> None:
        self.out = bytearray()
        self.err = bytearray()
        self._chunks = chunks

    def stdin(self) -> Sequence[bytes]:
        return self._chunks

    def stdout(self, data: bytes) -> None:
        self.out += data

    def stderr(self, data: bytes) -> None:
        self.err += data


def make_key(path: Path, *options: str) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path), *options]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def spawn(server: Sshd, lines: Sequence[str]) -> subprocess.Popen[bytes]:
    (server.directory / "authorized_keys").write_text(server.client_key.with_suffix(".pub").read_text())
    config = server.directory / "sshd_config"
    fixed = (
        f"Port {server.port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {server.host_key}",
        f"AuthorizedKeysFile {server.directory}/authorized_keys",
        f"PidFile {server.directory}/pid",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "PrintMotd no",
        "MaxStartups 200",
        "Subsystem sftp internal-sftp",
    )
    config.write_text("\n".join((*lines, *fixed)) + "\n")
    log = (server.directory / "log").open("wb")
    with log:
        return subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log)


def trust(server: Sshd) -> None:
    key = server.host_key.with_suffix(".pub").read_text()
    server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {key}")
