"""From settings to an authenticated transport: directly, through bastions, or through a proxy command."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import tempfile
import threading
from typing import Any

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from cudaup.adapters.retrying import SSH_CONNECT, NotReached, within
from cudaup.adapters.ssh_auth import log_in
from cudaup.adapters.ssh_config import JumpHost, SshSettings
from cudaup.adapters.ssh_resolve import resolve, resolve_jump
from cudaup.adapters.ssh_trust import HostKeyCheck
from cudaup.domain.errors import ConnectionFailed, UnsupportedSetting
from cudaup.domain.inventory import Host

_ATTEMPT_S = 10
_CONNECT_S = 20
_KEEPALIVE_S = 15
_DEAD_AFTER_S = 30  # unacknowledged data for so long means the host or the network is gone


class Dialer:
    """Makes transports. Bastions are kept and shared by every host behind them; hosts' own transports are not kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bastions: dict[tuple[str, ...], tuple[threading.Lock, list[paramiko.Transport]]] = {}

    def dial(self, host: Host) -> paramiko.Transport:
        settings = resolve(host)
        return self._connect(host.name, settings, host, ())

    def close(self) -> None:
        with self._lock:
            held = [transport for _, kept in self._bastions.values() for transport in kept]
            self._bastions.clear()
        for transport in held:
            transport.close()

    def _connect(self, name: str, settings: SshSettings, host: Host, via: tuple[str, ...]) -> paramiko.Transport:
        is_target = not via
        policy = within(SSH_CONNECT, settings.connect_timeout_s or _CONNECT_S)

        def attempt() -> paramiko.Transport:
            return _handshake(name, settings, self._open(name, settings, host, via))

        transport: paramiko.Transport = policy(attempt)
        with contextlib.ExitStack() as unless_done:
            unless_done.callback(transport.close)
            log_in(transport, name, settings, host.password if is_target else None)
            transport.set_keepalive(settings.server_alive_interval_s or _KEEPALIVE_S)
            unless_done.pop_all()
        return transport

    def _open(self, name: str, settings: SshSettings, host: Host, via: tuple[str, ...]) -> Any:
        if settings.proxy_jump:
            bastion = self._bastion(settings.proxy_jump, host, via)
            return _channel_through(bastion, name, settings)
        if settings.proxy_command:
            return _ProxyCommand(settings.proxy_command, name)
        return _tcp(name, settings)

    def _bastion(self, chain: tuple[JumpHost, ...], host: Host, via: tuple[str, ...]) -> paramiko.Transport:
        last = chain[-1]
        if str(last) in via:
            raise UnsupportedSetting(
                "ProxyJump leads back to itself", host=host.name, found=" -> ".join((*via, str(last)))
            )
        key = (*(str(hop) for hop in chain), *host.ssh_args)
        with self._lock:
            lock, kept = self._bastions.setdefault(key, (threading.Lock(), []))
        with lock:
            if kept and kept[0].is_active():
                return kept[0]
            settings = resolve_jump(last, host.ssh_args)
            if chain[:-1]:
                settings = _through(settings, chain[:-1])
            kept[:] = [self._connect(f"bastion {last}", settings, host, (*via, str(last)))]
            return kept[0]


def _through(settings: SshSettings, chain: tuple[JumpHost, ...]) -> SshSettings:
    # A chain on the command line wins over what the hop's own configuration says, as in OpenSSH.
    return dataclasses.replace(settings, proxy_jump=chain, proxy_command=None)


def _handshake(name: str, settings: SshSettings, stream: Any) -> paramiko.Transport:
    check = HostKeyCheck(name, settings)
    transport = paramiko.Transport(stream)
    transport.banner_timeout = _attempt_s(settings)
    transport.auth_timeout = 30
    options = transport.get_security_options()
    options.key_types = check.preferred_types(tuple(options.key_types))
    with contextlib.ExitStack() as unless_done:
        unless_done.callback(transport.close)
        try:
            transport.start_client(timeout=_attempt_s(settings))
            offered = transport.get_remote_server_key()
        except IncompatiblePeer as error:
            raise ConnectionFailed("no common ssh algorithm", host=name, found=str(error)) from None
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise NotReached("no ssh handshake", host=name, found=_why(stream, error), fix=_look(settings)) from None
        check.require(offered.get_name(), offered.asbytes())
        unless_done.pop_all()
    return transport


def _why(stream: Any, error: Exception) -> str:
    said = stream.complaint() if isinstance(stream, _ProxyCommand) else ""
    return said or str(error) or "connection closed"


def _attempt_s(settings: SshSettings) -> int:
    return settings.connect_timeout_s or _ATTEMPT_S


def _look(settings: SshSettings) -> str:
    return f"try `ssh -v -p {settings.port} {settings.user}@{settings.hostname}`"


def _tcp(name: str, settings: SshSettings) -> socket.socket:
    try:
        stream = socket.create_connection((settings.hostname, settings.port), _attempt_s(settings))
    except socket.gaierror as error:
        raise ConnectionFailed(f"cannot resolve {settings.hostname}", host=name, found=str(error)) from None
    except OSError as error:
        place = f"{settings.hostname}:{settings.port}"
        raise NotReached(f"cannot connect to {place}", host=name, found=str(error), fix=_look(settings)) from None
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_S * 1000)
    return stream


def _channel_through(bastion: paramiko.Transport, name: str, settings: SshSettings) -> paramiko.Channel:
    target = (settings.hostname, settings.port)
    try:
        return bastion.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=_attempt_s(settings))
    except paramiko.ChannelException as error:
        refused = f"the bastion cannot reach {settings.hostname}:{settings.port}"
        if error.code == 1:  # administratively prohibited
            fix = "allow TCP forwarding on the bastion (AllowTcpForwarding, PermitOpen)"
            raise ConnectionFailed(refused, host=name, found=error.text, fix=fix) from None
        raise NotReached(refused, host=name, found=error.text) from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise NotReached("the connection to the bastion broke", host=name, found=str(error)) from None


class _ProxyCommand(socket.socket):
    """Our end of a socket pair; the command at the other end is ended with every process it started."""

    def __init__(self, command: str, name: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        self._lock = threading.Lock()
        self._said = ""
        self._complaint = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the command
        with theirs:
            try:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec {command}"],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._complaint,
                    start_new_session=True,
                )
            except OSError as error:
                super().close()
                raise ConnectionFailed("cannot start the proxy command", host=name, found=str(error)) from None

    def complaint(self) -> str:
        """What the command said on standard error; paramiko may have closed us by now."""
        self.close()
        return self._said

    def close(self) -> None:
        super().close()
        with self._lock:
            if not self._complaint.closed:
                self._end()
                self._complaint.seek(0)
                self._said = self._complaint.read(2000).decode(errors="replace").strip()
                self._complaint.close()

    def _end(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
