"""Lends the controller's connections to Ansible's workers over a unix socket: whoever can connect is root on the fleet.

So the socket lies in a 0700 directory and the peer's user id is checked.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import socketserver
import struct
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cudaup.adapters import frames
from cudaup.adapters.connections import Connections
from cudaup.adapters.frames import FrameKind
from cudaup.adapters.shell import CommandStreams, Shell
from cudaup.domain.errors import ConnectionFailed, CudaupError, UsageError
from cudaup.domain.inventory import Host

_HANG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
_TICK_MS = 200

ShellFor = Callable[[dict[str, Any]], Shell]


def shells_of(connections: Connections, hosts: Sequence[Host]) -> ShellFor:
    """The hosts of a run by their inventory names, and no others."""
    by_name = {host.name: host for host in hosts}

    def shell_for(request: dict[str, Any]) -> Shell:
        host = by_name.get(request["host"])
        if host is None:
            raise UsageError(f"{request['host']} is not a host of this run")
        return connections.shell(host)

    return shell_for


class Broker:
    """Serves from the moment it is entered until it is left; `shell_for` says which shell a request is for."""

    def __init__(self, shell_for: ShellFor) -> None:
        self._shell_for = shell_for
        self._directory = ""
        self._server: _Server | None = None
        self.socket_path = ""

    def __enter__(self) -> Self:
        self._directory = tempfile.mkdtemp(prefix="cudaup-")  # 0700
        self.socket_path = str(Path(self._directory, "broker"))
        self._server = _Server(self.socket_path, self._shell_for)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="broker", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None:
            self._server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    """Listens at `path`; each client gets a thread."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, path: str, shell_for: ShellFor) -> None:
        self.shell_for = shell_for
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__(path, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        del client_address
        if not hasattr(socket, "SO_PEERCRED"):  # elsewhere the directory's mode has to do
            return True
        _pid, uid, _gid = struct.unpack("3i", request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return bool(uid == os.geteuid())

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def stop(self) -> None:
        """Commands still running for a client are given up, as when the client dies."""
        self.shutdown()
        self.server_close()
        with self._lock:
            left = list(self._open)
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(socketserver.BaseRequestHandler):
    """One client; its requests come one after another."""

    server: _Server
    request: socket.socket

    def handle(self) -> None:
        try:
            while (frame := frames.receive(self.request)) is not None:
                kind, payload = frame
                if kind is not FrameKind.REQUEST:
                    return
                self._serve(json.loads(payload))
        except (OSError, ValueError, ConnectionFailed):
            return  # a client that is gone or talks nonsense; the connection is closed either way

    def _serve(self, request: dict[str, Any]) -> None:
        streams = _ClientStreams(self.request)
        try:
            shell = self.server.shell_for(request)
            status = _obey(shell, request, streams)
        except CudaupError as error:
            streams.finish(FrameKind.FAILED, {"kind": type(error).__name__, "text": str(error)})
        else:
            streams.finish(FrameKind.DONE, {"status": status})


def _obey(shell: Shell, request: dict[str, Any], streams: CommandStreams) -> int:
    if request["command"] is None:  # a reset
        shell.close()
        return 0
    return shell.run(["/bin/sh", "-c", request["command"]], streams, timeout_s=request["timeout_s"])


class _ClientStreams(CommandStreams):
    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._hang_up = select.poll()
        self._hang_up.register(client.fileno(), _HANG_UP)
        self._readable = select.poll()
        self._readable.register(client.fileno(), select.POLLIN)
        self._has_ended = False
        self._has_all_stdin = False

    def stdin(self) -> Iterable[bytes]:
        while not self._has_ended:
            if not self._readable.poll(_TICK_MS):
                continue
            kind, payload = self._next()
            if kind is FrameKind.STDIN_END:
                self._has_all_stdin = True
                return
            yield payload

    def stdout(self, data: bytes) -> None:
        frames.send(self._client, FrameKind.STDOUT, data)

    def stderr(self, data: bytes) -> None:
        frames.send(self._client, FrameKind.STDERR, data)

    def is_cancelled(self) -> bool:
        return bool(self._hang_up.poll(0))

    def ended(self) -> None:
        self._has_ended = True

    def finish(self, kind: FrameKind, answer: dict[str, Any]) -> None:
        """Answers, then throws away input that the command did not read."""
        frames.send(self._client, kind, json.dumps(answer).encode())
        while not self._has_all_stdin:
            self._has_all_stdin = self._next()[0] is FrameKind.STDIN_END

    def _next(self) -> tuple[FrameKind, bytes]:
        frame = frames.receive(self._client)
        if frame is None:
            # Half an input must not look like a whole one to the command.
            raise ConnectionFailed("Ansible's worker went away")
        return frame
