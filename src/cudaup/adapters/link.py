"""The host program over a shell: streamed in, run from memory, answered in JSON lines. See docs/host-program.md."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from cudaup.adapters.hostprogram import zipapp
from cudaup.adapters.shell import KILLED, CommandStreams, Shell, Tail
from cudaup.app.ports import HostReply, Json, OnHostEvent
from cudaup.domain.errors import ConnectionFailed, HostFailed, HostProgramBroken, HostRefused
from cudaup.domain.inventory import Host
from cudaup.host import boot

_PYTHON_FIX = "install Python 3.8 or newer there, or set `cudaup_python` to one in the inventory"


class StreamedLink:
    """A HostLink: one command per call, nothing stored on the host by the call itself."""

    def __init__(self, shell: Shell, host: Host) -> None:
        self._shell = shell
        self._host = host

    def call(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        data: Iterable[bytes] = (),
        on_event: OnHostEvent | None = None,
    ) -> HostReply:
        token = secrets.token_hex(12)
        request = json.dumps({"argv": list(argv)}).encode()
        program = zipapp()
        head = f"{token}\n{len(program)} {len(request)}\n".encode()
        streams = _ProgramStreams(token, itertools.chain((head + program + request,), data), on_event)
        try:
            status = self._shell.run(boot.argv(self._host.python, token), streams, timeout_s=timeout_s)
        except ConnectionFailed:
            if streams.answer is None:
                raise
            status = 0  # the answer was out before the connection broke
        if streams.answer is None:
            raise self._no_answer(status, streams)
        return self._reply(streams.answer)

    def close(self) -> None:
        self._shell.close()

    def _reply(self, answer: Json) -> HostReply:
        kind, text, data = answer.get("kind"), str(answer.get("text", "")), answer.get("data") or {}
        if kind == "refused":
            raise HostRefused(text, code=str(answer.get("code")), host=self._host.name, fix=answer.get("fix") or None)
        if kind == "failed":
            raise HostFailed(text, data=data, host=self._host.name)
        if kind != "result":
            raise HostProgramBroken("the host program crashed: please report this", host=self._host.name, found=text)
        return HostReply(data=data)

    def _no_answer(self, status: int, streams: _ProgramStreams) -> HostProgramBroken:
        host, python = self._host.name, self._host.python
        if status in {126, 127}:
            return HostProgramBroken(f"cannot run `{python}`", host=host, found=streams.said(), fix=_PYTHON_FIX)
        how = "was killed" if status == KILLED else f"ended with status {status}"
        return HostProgramBroken(f"the host program {how} and gave no answer", host=host, found=streams.said())


class _ProgramStreams(CommandStreams):
    """Reads the lines behind the token; anything else (banner, profile, warnings) is kept only for an error text."""

    def __init__(self, token: str, chunks: Iterable[bytes], on_event: OnHostEvent | None) -> None:
        self.answer: dict[str, Any] | None = None
        self._mark = f"{token} ".encode()
        self._chunks = chunks
        self._on_event = on_event
        self._line = bytearray()
        self._noise = Tail(4000)

    def stdin(self) -> Iterable[bytes]:
        return self._chunks

    def stdout(self, data: bytes) -> None:
        first, *rest = data.split(b"\n")
        self._line += first
        for part in rest:
            self._take(bytes(self._line))
            self._line[:] = part

    def stderr(self, data: bytes) -> None:
        self._noise.add(data)

    def said(self) -> str:
        return self._noise.text() or "nothing said"

    def _take(self, line: bytes) -> None:
        _, mark, text = line.partition(self._mark)  # a banner without a line end may stand before it
        if not mark:
            self._noise.add(line + b"\n")
            return
        value = json.loads(text)
        if value.get("kind") != "event":
            self.answer = value
        elif self._on_event is not None:
            self._on_event(value)
