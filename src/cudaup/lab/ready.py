"""Whether hosts are up: sshd has sent its banner and, where systemd runs it, the service answers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cudaup.lab import kernel
from cudaup.lab.kernel import Namespaces
from cudaup.lab.running import RunningHost
from cudaup.lab.spec import BASTION, HostSpec, Init

SSH_PORT, SERVICE_PORT = 22, 8000
_STEP_S = 0.02


class Probe:
    def __init__(self, hosts: Mapping[str, RunningHost]) -> None:
        self._hosts = hosts

    def wait(self, reap: Callable[[], None], timeout_s: float) -> dict[str, float]:
        """Seconds until all were ready, by port. Raises TimeoutError or RuntimeError naming the host."""
        start = time.monotonic()
        took = {}
        for port, question, answer in (
            (SSH_PORT, b"", b"SSH-"),
            (SERVICE_PORT, b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.0 200"),
        ):
            pending = [host for host in self._hosts.values() if port == SSH_PORT or host.lab.init is Init.SYSTEMD]
            while pending := [host for host in pending if not self._answers(host.spec, port, question, answer)]:
                reap()
                dead = [host.spec.name for host in pending if host.pid is None]
                if dead:
                    raise RuntimeError(f"{', '.join(dead)} died while booting")
                if time.monotonic() - start > timeout_s:
                    names = ", ".join(host.spec.name for host in pending)
                    raise TimeoutError(f"no answer from port {port} of {names} in {timeout_s:.0f} s")
                time.sleep(_STEP_S)
            took[str(port)] = round(time.monotonic() - start, 2)
        return took

    def _answers(self, host: HostSpec, port: int, question: bytes, answer: bytes) -> bool:
        try:
            with self._socket(host) as connection:
                connection.settimeout(2.0)
                connection.connect((host.address, port))
                connection.sendall(question)
                return connection.recv(64).startswith(answer)
        except OSError:
            return False

    def _socket(self, host: HostSpec) -> socket.socket:
        """A socket belongs to the namespace it was made in: the lab's, or behind the bastion the bastion's."""
        if not host.is_inner:
            return socket.socket()
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            kernel.enter(Path(f"/proc/{self._hosts[BASTION].pid}/ns/net"), Namespaces.NET)
            return socket.socket()
        finally:
            kernel.enter(Path(f"/proc/self/fd/{home}"), Namespaces.NET)
            os.close(home)
