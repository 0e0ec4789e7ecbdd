"""Host keys against a real server: refused with fingerprint, line and way out; never learned."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.adapters.real_sshd import Heard, Sshd, StartSshd, make_key

from cudaup.adapters.ssh import SshShell
from cudaup.adapters.ssh_dial import Dialer
from cudaup.domain.errors import HostKeyRejected, UnsupportedSetting
from cudaup.domain.inventory import Host


@pytest.fixture
def dialer() -> Iterator[Dialer]:
    with closing(Dialer()) as made:
        yield made


def connect(host: Host, dialer: Dialer) -> int:
    return SshShell(host, dialer).run(["true"], Heard(), timeout_s=30)


def public(key: Path) -> str:
    return " ".join(key.with_suffix(".pub").read_text().split()[:2])


def shown_fingerprint(key: Path) -> str:
    command = ["ssh-keygen", "-lf", str(key.with_suffix(".pub"))]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[1]


def test_an_unknown_host_is_refused_with_fingerprint_and_the_line_to_add(stranger: Sshd, dialer: Dialer) -> None:
    with pytest.raises(HostKeyRejected) as caught:
        connect(stranger.host(), dialer)
    text = str(caught.value)
    assert "h1: host key is unknown" in text
    assert f"found:  ssh-ed25519 {shown_fingerprint(stranger.host_key)}" in text
    assert f"`echo '[127.0.0.1]:{stranger.port} {public(stranger.host_key)}' >> {stranger.known_hosts}`" in text


def test_the_line_it_names_is_the_one_that_helps(stranger: Sshd, dialer: Dialer) -> None:
    with pytest.raises(HostKeyRejected) as caught:
        connect(stranger.host(), dialer)
    assert caught.value.fix is not None
    subprocess.run(["/bin/sh", "-c", caught.value.fix.rpartition("then `")[2].rstrip("`")], check=True)
    assert connect(stranger.host(), dialer) == 0


@pytest.mark.parametrize("setting", ["no", "accept-new"])
def test_a_lax_setting_adds_nothing_and_is_named(stranger: Sshd, dialer: Dialer, setting: str) -> None:
    with pytest.raises(HostKeyRejected, match="never adds a key"):
        connect(stranger.host(f"StrictHostKeyChecking={setting}"), dialer)
    assert stranger.known_hosts.read_text() == ""


def test_a_changed_key_names_the_line_and_both_fingerprints(stranger: Sshd, dialer: Dialer, tmp_path: Path) -> None:
    old = make_key(tmp_path / "old")
    stranger.known_hosts.write_text(f"# two lines\nother {public(old)}\n[127.0.0.1]:{stranger.port} {public(old)}\n")
    with pytest.raises(HostKeyRejected) as caught:
        connect(stranger.host(), dialer)
    text = str(caught.value)
    assert text.startswith(f"h1: {stranger.known_hosts}:3: host key has changed")
    assert f"wanted: ssh-ed25519 {shown_fingerprint(old)}" in text
    assert f"found:  ssh-ed25519 {shown_fingerprint(stranger.host_key)}" in text
    assert f"`ssh-keygen -R '[127.0.0.1]:{stranger.port}' -f {stranger.known_hosts}`" in text


def test_a_revoked_key_is_refused_even_beside_a_good_line(stranger: Sshd, dialer: Dialer) -> None:
    key, name = public(stranger.host_key), f"[127.0.0.1]:{stranger.port}"
    stranger.known_hosts.write_text(f"{name} {key}\n@revoked * {key}\n")
    with pytest.raises(HostKeyRejected, match=r"^h1: .*known_hosts:2: host key is revoked"):
        connect(stranger.host(), dialer)


def test_an_authority_alone_is_unsupported_and_says_so(stranger: Sshd, dialer: Dialer) -> None:
    stranger.known_hosts.write_text(f"@cert-authority * {public(stranger.host_key)}\n")
    with pytest.raises(UnsupportedSetting, match=r"^h1: .*known_hosts:1: only a `@cert-authority` line"):
        connect(stranger.host(), dialer)


def test_an_alias_is_what_is_looked_up(stranger: Sshd, dialer: Dialer) -> None:
    stranger.known_hosts.write_text(f"rack-7 {public(stranger.host_key)}\n")
    assert connect(stranger.host("HostKeyAlias=rack-7"), dialer) == 0


def test_a_server_with_several_keys_shows_the_one_we_know(
    start_sshd: StartSshd, dialer: Dialer, tmp_path: Path
) -> None:
    rsa = tmp_path / "rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(rsa)], check=True)
    server = start_sshd(f"HostKey {rsa}")
    server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {public(rsa)}\n")
    assert connect(server.host(), dialer) == 0
