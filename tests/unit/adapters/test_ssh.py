"""Commands over a real sshd."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.adapters.real_sshd import Heard, Sshd, StartSshd, free_port, make_key
from tests.waiting import eventually

from cudaup.adapters.shell import KILLED, CommandStreams
from cudaup.adapters.ssh import SshShell
from cudaup.adapters.ssh_dial import Dialer
from cudaup.domain.errors import AuthenticationFailed, ConnectionFailed, DeadlineExceeded, UnsupportedSetting
from cudaup.domain.inventory import Host

_MEGABYTE = 1024 * 1024


@pytest.fixture
def dialer() -> Iterator[Dialer]:
    with closing(Dialer()) as made:
        yield made


@pytest.fixture
def shell(sshd: Sshd, dialer: Dialer) -> Iterator[SshShell]:
    with closing(SshShell(sshd.host(), dialer)) as made:
        yield made


def sh(shell: SshShell, script: str, *chunks: bytes, timeout_s: float = 30) -> tuple[int, str, str]:
    heard = Heard(*chunks)
    status = shell.run(["/bin/sh", "-c", script], heard, timeout_s=timeout_s)
    return status, heard.out.decode(), heard.err.decode()


def test_streams_and_status_come_back_apart(shell: SshShell) -> None:
    assert sh(shell, "echo out; echo err >&2; exit 7") == (7, "out\n", "err\n")


def test_words_survive_the_login_shell_as_they_are(shell: SshShell) -> None:
    heard = Heard()
    words = ["a b", "$HOME", "it's", 'say "hi"', "back\\slash", "two\nlines", "!history", "*", ""]
    shell.run(["printf", "<%s>", *words], heard, timeout_s=30)
    assert heard.out.decode() == "".join(f"<{word}>" for word in words)


def test_both_streams_full_at_once_do_not_stall(shell: SshShell) -> None:
    status, out, err = sh(shell, "head -c 2097152 /dev/zero | tr '\\0' e >&2; head -c 2097152 /dev/zero | tr '\\0' o")
    assert (status, out.count("o"), err.count("e")) == (0, 2 * _MEGABYTE, 2 * _MEGABYTE)


def test_twenty_megabytes_go_in_and_come_back_while_being_sent(shell: SshShell) -> None:
    chunks = [os.urandom(_MEGABYTE) for _ in range(20)]
    heard = Heard(*chunks)
    assert shell.run(["cat"], heard, timeout_s=60) == 0
    assert hashlib.sha256(heard.out).digest() == hashlib.sha256(b"".join(chunks)).digest()


def test_a_command_that_reads_nothing_ends_all_the_same(shell: SshShell) -> None:
    assert sh(shell, "exit 5", *[b"x" * _MEGABYTE] * 8)[0] == 5


def test_one_transport_serves_every_command(shell: SshShell) -> None:
    ports = {sh(shell, "echo $SSH_CONNECTION")[1] for _ in range(3)}
    assert len(ports) == 1


def test_after_close_the_next_command_comes_over_a_new_transport(shell: SshShell) -> None:
    before = sh(shell, "echo $SSH_CONNECTION")[1]
    shell.close()
    assert sh(shell, "echo $SSH_CONNECTION")[1] != before


def test_a_hanging_command_meets_the_deadline(shell: SshShell) -> None:
    begin = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"h1: no end within 0\.4 s"):
        sh(shell, "sleep 30", timeout_s=0.4)
    assert time.monotonic() - begin < 5


def test_a_command_that_never_stops_talking_meets_the_deadline(shell: SshShell) -> None:
    with pytest.raises(DeadlineExceeded):
        sh(shell, "exec cat /dev/zero", timeout_s=0.5)


def test_a_killed_command_is_told_from_a_failed_one(shell: SshShell) -> None:
    assert sh(shell, "kill -9 $$")[0] == KILLED


def test_a_connection_cut_under_a_command_is_not_an_exit_status(shell: SshShell) -> None:
    # The command's parent is sshd's own process for this connection.
    with pytest.raises(ConnectionFailed, match="may have gone on"):
        sh(shell, "kill -9 $PPID; sleep 30")
    assert sh(shell, "echo back")[1] == "back\n"


def test_an_input_that_breaks_off_is_the_callers_error_not_the_commands(shell: SshShell) -> None:
    class Broken(CommandStreams):
        def stdin(self) -> Iterable[bytes]:
            yield b"half"
            raise FileNotFoundError("the wheel")

    with pytest.raises(FileNotFoundError, match="the wheel"):
        shell.run(["cat"], Broken(), timeout_s=30)


def test_many_commands_at_once_stay_under_sshds_session_limit(start_sshd: StartSshd, dialer: Dialer) -> None:
    with closing(SshShell(start_sshd("MaxSessions 10").host(), dialer)) as shell, ThreadPoolExecutor(24) as pool:
        outputs = pool.map(lambda number: sh(shell, f"sleep 0.1; echo {number}")[1], range(24))
        assert list(outputs) == [f"{number}\n" for number in range(24)]


def test_a_wrong_key_is_one_error_that_names_the_key(sshd: Sshd, dialer: Dialer, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    host = dataclasses.replace(sshd.host("IdentitiesOnly=yes"), private_key_file=str(other))
    with pytest.raises(AuthenticationFailed, match=f"login as .* was refused\n  found:  tried {other}"):
        sh(SshShell(host, dialer), "true")


def test_a_certificate_beside_its_key_is_shown_with_it(start_sshd: StartSshd, dialer: Dialer, tmp_path: Path) -> None:
    authority, key = make_key(tmp_path / "ca"), make_key(tmp_path / "id")
    server = start_sshd(f"TrustedUserCAKeys {authority}.pub", "AuthorizedKeysFile none")
    host = dataclasses.replace(server.host("IdentitiesOnly=yes"), private_key_file=str(key))
    with pytest.raises(AuthenticationFailed):
        sh(SshShell(host, dialer), "true")
    assert host.user is not None
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", host.user, f"{key}.pub"]
    subprocess.run(sign, check=True)
    assert sh(SshShell(host, dialer), "echo in")[1] == "in\n"


def test_an_encrypted_key_without_an_agent_is_refused_by_name(sshd: Sshd, dialer: Dialer, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", "-N", "secret")
    host = dataclasses.replace(sshd.host("IdentitiesOnly=yes"), private_key_file=str(locked))
    with pytest.raises(AuthenticationFailed, match=f"{locked} is encrypted and not in an agent"):
        sh(SshShell(host, dialer), "true")


def test_a_hardware_key_alone_is_refused_as_unsupported(sshd: Sshd, dialer: Dialer, tmp_path: Path) -> None:
    key = tmp_path / "id_sk"
    key.write_text("a handle, not a key")
    key.with_suffix(".pub").write_text("sk-ssh-ed25519@openssh.com AAAA test")
    host = dataclasses.replace(sshd.host("IdentitiesOnly=yes"), private_key_file=str(key))
    with pytest.raises(UnsupportedSetting, match="hardware-backed"):
        sh(SshShell(host, dialer), "true")


def test_an_agent_holds_the_encrypted_key(sshd: Sshd, dialer: Dialer, agent: str) -> None:
    args = ("-F", "none", "-o", f"UserKnownHostsFile={sshd.known_hosts}", "-o", f"IdentityAgent={agent}")
    host = dataclasses.replace(sshd.host(), private_key_file=None, ssh_args=args)
    assert sh(SshShell(host, dialer), "echo in")[1] == "in\n"


def test_nobody_listening_is_retried_only_for_the_time_given(sshd: Sshd, dialer: Dialer) -> None:
    host = dataclasses.replace(sshd.host("ConnectTimeout=1"), port=free_port())
    begin = time.monotonic()
    with pytest.raises(ConnectionFailed, match=r"h1: cannot connect to 127\.0\.0\.1:\d+\n  found: .*refused"):
        sh(SshShell(host, dialer), "true")
    assert 0.9 < time.monotonic() - begin < 5


def test_a_jump_host_is_passed_through_and_shared(
    start_sshd: StartSshd, sshd: Sshd, dialer: Dialer, tmp_path: Path
) -> None:
    bastion = start_sshd()
    config = _config(tmp_path, sshd, bastion, f"ProxyJump 127.0.0.1:{bastion.port}")
    shells = [SshShell(_behind(sshd, config, name), dialer) for name in ("h1", "h2")]
    outputs = [sh(shell, "echo $SSH_CONNECTION")[1].split() for shell in shells]
    assert [output[3] for output in outputs] == [str(sshd.port)] * 2
    accepted = (bastion.directory / "log").read_text().count("Accepted publickey")
    assert accepted == 1


def test_a_bastion_that_forbids_forwarding_says_so_at_once(
    start_sshd: StartSshd, sshd: Sshd, dialer: Dialer, tmp_path: Path
) -> None:
    bastion = start_sshd("AllowTcpForwarding no")
    config = _config(tmp_path, sshd, bastion, f"ProxyJump 127.0.0.1:{bastion.port}")
    with pytest.raises(ConnectionFailed, match="AllowTcpForwarding"):
        sh(SshShell(_behind(sshd, config, "h1"), dialer), "true")


def test_a_proxy_command_carries_the_connection_and_ends_with_it(sshd: Sshd, dialer: Dialer, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    relay = tmp_path / "relay.py"
    relay.write_text(_RELAY)
    shell = SshShell(sshd.host(f"ProxyCommand=sh -c 'echo $$ > {pid}; python3 {relay} %h %p; true'"), dialer)
    assert sh(shell, "echo through")[1] == "through\n"
    shell.close()
    eventually(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "the proxy command's end")


def test_a_proxy_command_that_fails_is_quoted(sshd: Sshd, dialer: Dialer) -> None:
    shell = SshShell(sshd.host("ProxyCommand=echo no such tunnel >&2; exit 1", "ConnectTimeout=1"), dialer)
    with pytest.raises(ConnectionFailed, match="no such tunnel"):
        sh(shell, "true")


def _config(tmp_path: Path, target: Sshd, bastion: Sshd, line: str) -> Path:
    """Settings of the bastion come from the user's file, as for OpenSSH: only `-F` is handed on to it."""
    known = tmp_path / "known_hosts"
    known.write_text(target.known_hosts.read_text() + bastion.known_hosts.read_text())
    config = tmp_path / "config"
    shared = f"UserKnownHostsFile {known}\nIdentityFile {target.client_key}\nIdentityAgent none\n"
    config.write_text(f"Match host target\n  HostName 127.0.0.1\n  {line}\nMatch all\n{shared}")
    return config


def _behind(target: Sshd, config: Path, name: str) -> Host:
    return Host(name=name, address="target", port=target.port, ssh_args=("-F", str(config)))


_RELAY = """
import os, select, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    for f in select.select([0, s], [], [])[0]:
        data = os.read(f if f == 0 else s.fileno(), 65536)
        if not data:
            sys.exit()
        (s.sendall(data) if f == 0 else os.write(1, data))
"""
