"""The host program's protocol over the local machine and over a server that talks too much."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.real_sshd import Heard, StartSshd
from tests.waiting import eventually

from cudaup.adapters.connections import Connections
from cudaup.adapters.link import StreamedLink
from cudaup.adapters.local import LocalShell
from cudaup.adapters.shell import CommandStreams
from cudaup.domain.errors import ConnectionFailed, DeadlineExceeded, HostFailed, HostProgramBroken, HostRefused
from cudaup.domain.inventory import Host, Transport

_NOISE = "echo Welcome; printf 'no line end, TOKEN '; echo to stderr >&2; exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\""


@pytest.fixture
def connections() -> Iterator[Connections]:
    with closing(Connections()) as made:
        yield made


@pytest.fixture
def here() -> Host:
    return Host(name="here", address="localhost", transport=Transport.LOCAL)


def test_an_answer_comes_through_banner_and_profile_noise(
    start_sshd: StartSshd, connections: Connections, tmp_path: Path
) -> None:
    banner = tmp_path / "banner"
    banner.write_text("*** authorised use only ***\n")
    server = start_sshd(f"Banner {banner}", f"ForceCommand {_NOISE}")
    reply = connections.link(server.host()).call(["lease", "show", "--root", str(tmp_path)], timeout_s=30)
    assert reply.data["lease"]["state"] == "free"


def test_a_refusal_is_raised_with_its_code(here: Host, connections: Connections) -> None:
    with pytest.raises(HostRefused) as caught:
        connections.link(here).call(["no-such-verb"], timeout_s=30)
    assert (caught.value.host, caught.value.code) == ("here", "usage")


def test_data_after_the_request_reaches_the_verb(here: Host, connections: Connections, tmp_path: Path) -> None:
    content = b"wheel" * 100_000
    digest = hashlib.sha256(content).hexdigest()
    argv = ["blob", "put", "--sha256", digest, "--name", "a-1-py3-none-any.whl", "--size", str(len(content))]
    argv += ["--root", str(tmp_path / "cudaup")]
    connections.link(here).call(argv, timeout_s=60, data=iter([content[:7], content[7:]]))
    stored = tmp_path / "cudaup" / "blobs" / digest / "a-1-py3-none-any.whl"
    assert stored.read_bytes() == content


def test_a_missing_python_says_what_to_install(here: Host, connections: Connections) -> None:
    host = dataclasses.replace(here, python="python3-of-nowhere")
    with pytest.raises(HostProgramBroken, match="cannot run `python3-of-nowhere`"):
        connections.link(host).call(["status"], timeout_s=30)


def test_a_missing_python_over_ssh_says_the_same(start_sshd: StartSshd, connections: Connections) -> None:
    host = dataclasses.replace(start_sshd().host(), python="python3-of-nowhere")
    with pytest.raises(HostProgramBroken, match=r"Python 3\.8 or newer"):
        connections.link(host).call(["status"], timeout_s=30)


class Saying:
    """A shell whose command prints these lines behind the token."""

    host = "h1"

    def __init__(self, *lines: str, then: Exception | None = None) -> None:
        self._lines = lines
        self._then = then

    def run(self, argv: Any, streams: CommandStreams, *, timeout_s: float) -> int:
        del timeout_s
        for line in self._lines:
            for piece in (f"{argv[-1]} {line}"[:9], f"{argv[-1]} {line}"[9:] + "\n"):  # cut across the token
                streams.stdout(piece.encode())
        if self._then is not None:
            raise self._then
        return 0

    def close(self) -> None: ...


def call(shell: Saying, events: list[Any] | None = None) -> Any:
    link = StreamedLink(shell, Host(name="h1", address="h1"))
    return link.call(["status"], timeout_s=5, on_event=None if events is None else events.append)


_EVENT = '{"kind": "event", "step": "smoke", "state": "started"}'


def test_events_come_one_by_one_and_are_not_the_answer() -> None:
    events: list[Any] = []
    reply = call(Saying(_EVENT, _EVENT, '{"kind": "result", "data": {"x": 1}}'), events)
    assert ([event["step"] for event in events], reply.data) == (["smoke", "smoke"], {"x": 1})


def test_failed_is_an_error_that_says_in_which_state_the_host_is() -> None:
    with pytest.raises(HostFailed, match="why") as raised:
        call(Saying('{"kind": "failed", "code": "smoke", "text": "why", "data": {"state": "reverted-proven"}}'))
    assert raised.value.data == {"state": "reverted-proven"}


def test_a_crash_is_broken_with_its_traceback() -> None:
    with pytest.raises(HostProgramBroken, match="Traceback of it"):
        call(Saying('{"kind": "broken", "text": "Traceback of it"}'))


def test_no_answer_at_all_is_broken() -> None:
    with pytest.raises(HostProgramBroken, match="ended with status 0 and gave no answer"):
        call(Saying(_EVENT))


def test_an_answer_that_was_out_before_the_connection_broke_counts() -> None:
    broke = ConnectionFailed("the connection broke")
    assert call(Saying('{"kind": "result", "data": {"x": 2}}', then=broke)).data == {"x": 2}
    with pytest.raises(ConnectionFailed):
        call(Saying(_EVENT, then=broke))


def test_a_local_command_beyond_its_deadline_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(DeadlineExceeded):
        LocalShell("here").run(["/bin/sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], Heard(), timeout_s=0.3)
    eventually(lambda: not Path("/proc", pid.read_text().strip()).exists(), "the child's end")
