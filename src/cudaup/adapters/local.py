"""The machine cudaup runs on, as a host: the same conversation over pipes."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from cudaup.adapters.shell import KILLED, CommandStreams, Deadline, too_late
from cudaup.domain.errors import ConnectionFailed

_CHUNK = 64 * 1024
_TICK_S = 0.5


class LocalShell:
    """Commands get a session of their own: a Ctrl-C meant for cudaup must not end a switch half way."""

    def __init__(self, host: str) -> None:
        self._host = host

    @property
    def host(self) -> str:
        return self._host

    def run(self, argv: Sequence[str], streams: CommandStreams, *, timeout_s: float) -> int:
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        except FileNotFoundError:
            streams.ended()
            return 127  # what a shell says
        with process:
            try:
                return self._converse(process, streams, Deadline(timeout_s))
            finally:
                _end(process)

    def close(self) -> None:
        """Nothing is held."""

    def _converse(self, process: subprocess.Popen[bytes], streams: CommandStreams, deadline: Deadline) -> int:
        with ThreadPoolExecutor(1, thread_name_prefix="stdin-local") as pool:
            feeding = pool.submit(_feed, process, streams.stdin())
            feeding.add_done_callback(lambda done: _end(process) if done.exception() else None)
            try:
                self._drain(process, streams, deadline)
                status = process.wait(deadline.remaining())
            except subprocess.TimeoutExpired:
                raise too_late(self._host, deadline.seconds) from None
            finally:
                if process.returncode is None:
                    _end(process)
                streams.ended()
            feeding.result()
            return status if status >= 0 else KILLED

    def _drain(self, process: subprocess.Popen[bytes], streams: CommandStreams, deadline: Deadline) -> None:
        with selectors.DefaultSelector() as selector:
            for stream, sink in ((process.stdout, streams.stdout), (process.stderr, streams.stderr)):
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ, sink)
            while selector.get_map():
                if streams.is_cancelled():
                    raise ConnectionFailed("cancelled", host=self._host)
                if deadline.is_over():
                    raise too_late(self._host, deadline.seconds)
                for key, _ in selector.select(min(_TICK_S, deadline.remaining())):
                    data = os.read(key.fd, _CHUNK)
                    key.data(data) if data else selector.unregister(key.fileobj)


def _feed(process: subprocess.Popen[bytes], chunks: Iterable[bytes]) -> None:
    stdin = process.stdin
    if stdin is None:
        return
    try:
        for chunk in chunks:
            stdin.write(chunk)
        stdin.flush()
    except BrokenPipeError:  # the command ended without reading all of it
        pass
    finally:
        with suppress(BrokenPipeError):
            stdin.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the command with what it started; a process that made itself independent (the timer) is not in the group."""
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
