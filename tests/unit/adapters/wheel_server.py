"""A real HTTP server on loopback that gives one file, with range requests or without, and counts what it sent."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class WheelServer(ThreadingHTTPServer):
    """`breaks_after`: an answer ends early, after that many bytes, as often as `breaks` says."""

    daemon_threads = True

    def __init__(self, data: bytes, *, has_ranges: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)  # what waits there counts as sent
        self.data = data
        self.has_ranges = has_ranges
        self.status = 200
        self.breaks, self.breaks_after = 0, 0
        self.requests: list[str | None] = []
        self.sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/pkg-1.0-py3-none-any.whl"


class _Handler(BaseHTTPRequestHandler):
    server: WheelServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        wanted = self.headers.get("Range")
        server.requests.append(wanted)
        if server.status != 200:
            self.send_error(server.status)
            return
        start, end = 0, len(server.data)
        match = _RANGE.fullmatch(wanted or "") if server.has_ranges else None
        if match:
            first, last = match.groups()
            start = int(first) if first else max(0, end - int(last))
            end = min(end, int(last) + 1) if first and last else end
        self.send_response(206 if match else 200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", f'"{hash(server.data)}"')
        if match:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(server.data)}")
        self.end_headers()
        self._send(server.data[start:end])

    def _send(self, body: bytes) -> None:
        if self.server.breaks:
            self.server.breaks -= 1
            body = body[: self.server.breaks_after]
            self.close_connection = True
        for at in range(0, len(body), 1 << 14):
            try:
                self.wfile.write(body[at : at + (1 << 14)])
            except ConnectionError:
                return
            self.server.sent += len(body[at : at + (1 << 14)])

    def log_message(self, *_arguments: object) -> None:
        """Nothing on standard error."""


@contextmanager
def serving(data: bytes, *, has_ranges: bool = True) -> Iterator[WheelServer]:
    server = WheelServer(data, has_ranges=has_ranges)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
