"""One host over ssh: one transport, made when first needed, reused by every command, remade when it broke."""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import paramiko

from cudaup.adapters.shell import KILLED, MAY_HAVE_GONE_ON, CommandStreams, Deadline, command_line, too_late
from cudaup.adapters.ssh_dial import Dialer
from cudaup.domain.errors import ConnectionFailed
from cudaup.domain.inventory import Host

_CHUNK = 64 * 1024
_SESSIONS = 8  # stock sshd allows ten on one connection
_OPEN_S = 20
_TICK_S = 0.5

# Everything paramiko logs reaches the caller as an exception; with no handler set up it would land on stderr.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


class SshShell:
    """Commands of one host share its transport; at most `_SESSIONS` at a time."""

    def __init__(self, host: Host, dialer: Dialer) -> None:
        self._host = host
        self._dialer = dialer
        self._lock = threading.Lock()
        self._sessions = threading.BoundedSemaphore(_SESSIONS)
        self._transport: paramiko.Transport | None = None
        self._retired: list[paramiko.Transport] = []

    @property
    def host(self) -> str:
        return self._host.name

    def run(self, argv: Sequence[str], streams: CommandStreams, *, timeout_s: float) -> int:
        deadline = Deadline(timeout_s)
        try:
            with self._sessions:
                return self._run(argv, streams, deadline)
        finally:
            streams.ended()

    def close(self) -> None:
        with self._lock:
            held, self._transport, self._retired = [self._transport, *self._retired], None, []
        for transport in held:
            if transport is not None:
                transport.close()

    def _run(self, argv: Sequence[str], streams: CommandStreams, deadline: Deadline) -> int:
        channel = self._open_session(deadline)
        try:
            channel.exec_command(command_line(argv))
        except (paramiko.SSHException, EOFError, OSError) as error:
            channel.close()
            raise self._lost(str(error)) from error
        return self._converse(channel, streams, deadline)

    def _converse(self, channel: paramiko.Channel, streams: CommandStreams, deadline: Deadline) -> int:
        # A thread feeds standard input, so that a command that writes before it reads cannot stall.
        with ThreadPoolExecutor(1, thread_name_prefix=f"stdin-{self.host}") as pool:
            feeding = pool.submit(_feed, channel, streams.stdin())
            feeding.add_done_callback(lambda done: channel.close() if done.exception() else None)
            try:
                self._drain(channel, streams, deadline)
                return self._exit_status(channel, deadline)
            finally:
                if feeding.done():
                    feeding.result()  # an input that broke off explains whatever came after it
                channel.close()
                streams.ended()

    def _open_session(self, deadline: Deadline) -> paramiko.Channel:
        """On a held transport that turns out dead or full nothing has started, so a fresh one is tried, once.

        sshd counts a session until its command ends, also one that we gave up on. A transport that is full for that
        reason still carries the commands of others: it is retired, not closed.
        """
        transport, is_fresh = self._connected()
        try:
            return transport.open_session(timeout=min(_OPEN_S, deadline.remaining()))
        except paramiko.ChannelException as error:
            self._retire(transport)
            if is_fresh:
                raise self._lost(str(error)) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._drop(transport)
            if is_fresh:
                raise self._lost(str(error)) from error
        return self._open_session(deadline)

    def _connected(self) -> tuple[paramiko.Transport, bool]:
        with self._lock:
            if self._transport is not None and self._transport.is_active():
                return self._transport, False
            self._transport = self._dialer.dial(self._host)
            return self._transport, True

    def _retire(self, transport: paramiko.Transport) -> None:
        with self._lock:
            if self._transport is transport:
                self._transport = None
                self._retired.append(transport)

    def _drop(self, transport: paramiko.Transport) -> None:
        with self._lock:
            if self._transport is transport:
                self._transport = None
        transport.close()

    def _drain(self, channel: paramiko.Channel, streams: CommandStreams, deadline: Deadline) -> None:
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        has_ended = False
        while not has_ended:
            if streams.is_cancelled():
                raise ConnectionFailed("cancelled", host=self.host, fix=MAY_HAVE_GONE_ON)
            poller.poll(min(_TICK_S, deadline.remaining()) * 1000)
            has_ended = bool(
                channel.eof_received or channel.closed
            )  # read first: what came before the end is drained below
            while channel.recv_ready() or channel.recv_stderr_ready():
                _pass_on(channel, streams)
                if deadline.is_over():
                    break
            if deadline.is_over():
                raise too_late(self.host, deadline.seconds)

    def _exit_status(self, channel: paramiko.Channel, deadline: Deadline) -> int:
        if not channel.status_event.wait(deadline.remaining()):
            raise too_late(self.host, deadline.seconds)
        if channel.exit_status >= 0:
            return channel.exit_status
        transport = channel.get_transport()
        if transport is not None and transport.is_active():
            return KILLED
        raise self._lost("no exit status came")

    def _lost(self, found: str) -> ConnectionFailed:
        return ConnectionFailed(
            "the connection broke",
            host=self.host,
            found=found or "closed by the other side",
            fix=MAY_HAVE_GONE_ON,
        )


def _pass_on(channel: paramiko.Channel, streams: CommandStreams) -> None:
    if channel.recv_ready():
        streams.stdout(channel.recv(_CHUNK))
    if channel.recv_stderr_ready():
        streams.stderr(channel.recv_stderr(_CHUNK))


def _feed(channel: paramiko.Channel, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        try:
            channel.sendall(chunk)
        except (OSError, EOFError):  # the command ended without reading all of it
            return
    with suppress(OSError, EOFError):
        channel.shutdown_write()
