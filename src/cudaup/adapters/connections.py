"""All hosts of a run: one shell each, made when first asked for, kept until the end."""

from __future__ import annotations

import os
import threading

from cudaup.adapters.become import RootShell
from cudaup.adapters.link import StreamedLink
from cudaup.adapters.local import LocalShell
from cudaup.adapters.shell import Shell
from cudaup.adapters.ssh import SshShell
from cudaup.adapters.ssh_dial import Dialer
from cudaup.domain.inventory import Become, Host


class Connections:
    """The Links of a run. Thread-safe; hosts are told apart by their whole value, not only by name."""

    def __init__(self) -> None:
        self._dialer = Dialer()
        self._lock = threading.Lock()
        self._shells: dict[Host, Shell] = {}

    def link(self, host: Host) -> StreamedLink:
        return StreamedLink(self.shell(host), host)

    def shell(self, host: Host) -> Shell:
        with self._lock:
            if host not in self._shells:
                self._shells[host] = self._make(host)
            return self._shells[host]

    def close(self) -> None:
        with self._lock:
            shells = list(self._shells.values())
            self._shells.clear()
        for shell in shells:
            shell.close()
        self._dialer.close()

    def _make(self, host: Host) -> Shell:
        become = host.become
        if host.is_local:
            if become is None and os.geteuid() != 0:
                become = Become()  # everything cudaup does to a host needs root; without a password: `sudo -n`
            shell: Shell = LocalShell(host.name)
        else:
            shell = SshShell(host, self._dialer)
        return shell if become is None else RootShell(shell, become)
