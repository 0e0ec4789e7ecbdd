"""The conversation with sudo, byte by byte; the real sudo is asked in tests/lab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import SecretStr
from tests.unit.adapters.real_sshd import Heard

from cudaup.adapters.become import RootShell
from cudaup.adapters.shell import CommandStreams
from cudaup.domain.errors import AuthenticationFailed
from cudaup.domain.inventory import Become

Play = Callable[[CommandStreams, str, str], int]

_PASSWORD = "correct horse"  # noqa: S105  the test's own


class ScriptedShell:
    """Plays sudo's side; keeps the command line and what came in on standard input."""

    def __init__(self, play: Play) -> None:
        self.host = "h1"
        self.argv: list[str] = []
        self.received: list[bytes] = []
        self._play = play

    def run(self, argv: Sequence[str], streams: CommandStreams, *, timeout_s: float) -> int:
        del timeout_s
        self.argv = list(argv)
        prompt = argv[2].partition("-p ")[2].partition(" ")[0]
        mark = argv[6].split()[2]
        with ThreadPoolExecutor(1) as pool:
            feeding = pool.submit(lambda: self.received.extend(streams.stdin()))
            try:
                return self._play(streams, prompt, mark)
            finally:
                streams.ended()
                feeding.result()

    def close(self) -> None: ...


def run(play: Play, password: str | None = _PASSWORD) -> tuple[int, Heard, ScriptedShell]:
    shell = ScriptedShell(play)
    heard = Heard(b"payload")
    become = Become(password=SecretStr(password) if password else None)
    return RootShell(shell, become).run(["id", "-u"], heard, timeout_s=5), heard, shell


def test_a_password_that_is_asked_for_goes_before_the_input_and_only_once() -> None:
    def play(streams: CommandStreams, prompt: str, mark: str) -> int:
        streams.stderr(b"We trust you have received the usual lecture\n" + prompt[:7].encode())
        streams.stderr(prompt[7:].encode())
        streams.stderr(mark.encode() + b"warning of the command\n")
        streams.stdout(b"0\n")
        return 4

    status, heard, shell = run(play)
    assert (status, bytes(heard.out), bytes(heard.err)) == (4, b"0\n", b"warning of the command\n")
    assert shell.received == [b"correct horse\n", b"payload"]


def test_without_a_prompt_no_password_is_written() -> None:
    def play(streams: CommandStreams, _prompt: str, mark: str) -> int:
        streams.stderr(mark.encode())
        return 0

    assert run(play)[2].received == [b"payload"]


def test_a_second_prompt_is_a_rejected_password_at_once() -> None:
    def play(streams: CommandStreams, prompt: str, _mark: str) -> int:
        streams.stderr(prompt.encode())
        streams.stderr(b"Sorry, try again.\n" + prompt.encode())
        raise AssertionError("it went on")

    with pytest.raises(AuthenticationFailed, match="h1: sudo password rejected"):
        run(play)


def test_a_refusal_carries_sudos_own_words() -> None:
    def play(streams: CommandStreams, _prompt: str, _mark: str) -> int:
        streams.stderr(b"ops is not in the sudoers file.\n")
        return 1

    with pytest.raises(AuthenticationFailed, match="ops is not in the sudoers file"):
        run(play)


def test_without_a_password_sudo_may_not_ask() -> None:
    def play(streams: CommandStreams, _prompt: str, _mark: str) -> int:
        streams.stderr(b"sudo: a password is required\n")
        return 1

    with pytest.raises(AuthenticationFailed, match="set `ansible_become_password`"):
        run(play, password=None)


def test_the_password_is_in_no_command_line_and_no_error() -> None:
    lines: list[str] = []

    def play(streams: CommandStreams, prompt: str, _mark: str) -> int:
        streams.stderr(prompt.encode())
        return 1

    shell = ScriptedShell(play)
    become = Become(password=SecretStr(_PASSWORD))
    with pytest.raises(AuthenticationFailed) as caught:
        RootShell(shell, become).run(["id"], Heard(), timeout_s=5)
    lines += [*shell.argv, str(caught.value), repr(caught.value), repr(become)]
    assert not [line for line in lines if _PASSWORD in line]
