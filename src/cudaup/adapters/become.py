"""Commands as root through sudo. The password is written only when sudo has asked, and nowhere else."""

from __future__ import annotations

import queue
import secrets
from collections.abc import Iterable, Sequence
from enum import Enum, auto

from pydantic import SecretStr

from cudaup.adapters.shell import CommandStreams, Shell, Tail
from cudaup.domain.errors import AuthenticationFailed
from cudaup.domain.inventory import Become

# A user who is root already needs no sudo, and some of those hosts have none.
_BECOME = '[ "$(id -u)" = 0 ] || set -- sudo -H {how} -- "$@"; exec "$@"'
_ANNOUNCE = 'printf %s {started} >&2; exec "$@"'


class RootShell:
    """Another shell's commands, as root."""

    def __init__(self, shell: Shell, become: Become) -> None:
        self._shell = shell
        self._password = become.password

    @property
    def host(self) -> str:
        return self._shell.host

    def run(self, argv: Sequence[str], streams: CommandStreams, *, timeout_s: float) -> int:
        sudo = _SudoStreams(streams, self.host, self._password)
        status = self._shell.run(sudo.wrap(argv), sudo, timeout_s=timeout_s)
        sudo.require_started()
        return status

    def close(self) -> None:
        self._shell.close()


class _Heard(Enum):
    PROMPT = auto()
    STARTED = auto()
    ENDED = auto()


class _SudoStreams(CommandStreams):
    """Stands before the command's own streams until the command has started.

    sudo's prompt and the start mark are random and both on standard error, so standard output stays the command's.
    """

    def __init__(self, streams: CommandStreams, host: str, password: SecretStr | None) -> None:
        self._streams = streams
        self._host = host
        self._password = password
        self._prompt = f"cudaup-sudo-{secrets.token_hex(8)}:"
        self._mark = f"cudaup-started-{secrets.token_hex(8)}"
        self._heard: queue.SimpleQueue[_Heard] = queue.SimpleQueue()
        self._preamble = b""
        self._was_asked = False
        self._has_started = False

    def wrap(self, argv: Sequence[str]) -> list[str]:
        how = "-n" if self._password is None else f"-S -p {self._prompt}"
        shell = ["/bin/sh", "-c"]
        return [*shell, _BECOME.format(how=how), "sh", *shell, _ANNOUNCE.format(started=self._mark), "sh", *argv]

    def stdin(self) -> Iterable[bytes]:
        heard = self._heard.get()
        if heard is _Heard.PROMPT and self._password is not None:
            yield self._password.get_secret_value().encode() + b"\n"
            heard = self._heard.get()
        if heard is _Heard.STARTED:
            yield from self._streams.stdin()

    def stdout(self, data: bytes) -> None:
        self._streams.stdout(data)

    def stderr(self, data: bytes) -> None:
        if self._has_started:
            self._streams.stderr(data)
            return
        self._preamble += data
        self._listen()

    def is_cancelled(self) -> bool:
        return self._streams.is_cancelled()

    def ended(self) -> None:
        self._heard.put(_Heard.ENDED)
        self._streams.ended()

    def require_started(self) -> None:
        """Raises AuthenticationFailed with sudo's own words when the command never ran."""
        if self._has_started:
            return
        said = Tail()
        said.add(self._preamble.replace(self._prompt.encode(), b""))
        fix = (
            "check the host's sudoers" if self._password else "set `ansible_become_password`, or allow sudo without one"
        )
        raise AuthenticationFailed("sudo refused", host=self._host, found=said.text() or "no words", fix=fix)

    def _listen(self) -> None:
        mark = self._mark.encode()
        if mark in self._preamble:
            self._has_started = True
            rest = self._preamble.partition(mark)[2]
            self._heard.put(_Heard.STARTED)
            if rest:
                self._streams.stderr(rest)
            return
        prompts = self._preamble.count(self._prompt.encode())
        if prompts > 1:
            raise AuthenticationFailed("sudo password rejected", host=self._host, fix="check `ansible_become_password`")
        if prompts and not self._was_asked:
            self._was_asked = True
            self._heard.put(_Heard.PROMPT)
