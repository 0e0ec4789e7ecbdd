"""What `ssh -G` says becomes settings; what cudaup cannot do is refused by name."""

from __future__ import annotations

import pytest

from cudaup.adapters.ssh_config import JumpHost, SshSettings, config_file_args, parse_proxy_jump, parse_ssh_g
from cudaup.domain.errors import UnsupportedSetting

_BASE = """\
host gpu7
user ops
hostname 10.0.0.7
port 2222
identitiesonly yes
stricthostkeychecking accept-new
gssapiauthentication yes
identityfile ~/.ssh/id_%r
identityfile /keys/%h
globalknownhostsfile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2
userknownhostsfile /home/ann/.ssh/known_hosts
connecttimeout none
serveraliveinterval 0
"""


def parsed(*lines: str, base: str = _BASE) -> SshSettings:
    environment = {"SSH_AUTH_SOCK": "/run/agent", "HOME": "/home/ann", "MY_AGENT": "/run/mine"}
    return parse_ssh_g("\n".join((*lines, base)), environment=environment, alias="gpu7")


def test_where_and_as_whom() -> None:
    settings = parsed()
    assert (settings.hostname, settings.port, settings.user) == ("10.0.0.7", 2222, "ops")


def test_tokens_in_identity_files_are_expanded() -> None:
    first, second = parsed().identity_files
    assert first.endswith("/.ssh/id_ops")
    assert not first.startswith("~")
    assert second == "/keys/10.0.0.7"


def test_known_hosts_files_keep_openssh_order_users_first() -> None:
    assert parsed().known_hosts_files == (
        "/home/ann/.ssh/known_hosts",
        "/etc/ssh/ssh_known_hosts",
        "/etc/ssh/ssh_known_hosts2",
    )


def test_the_name_looked_up_carries_an_unusual_port_then_not() -> None:
    assert parsed().known_hosts_names == ("[10.0.0.7]:2222", "10.0.0.7")


def test_an_alias_stands_alone_without_a_port() -> None:
    assert parsed("hostkeyalias rack-7").known_hosts_names == ("rack-7",)


@pytest.mark.parametrize(
    ("line", "agent"),
    [
        ("identityagent none", None),
        ("identityagent SSH_AUTH_SOCK", "/run/agent"),
        ("identityagent $MY_AGENT", "/run/mine"),
        ("identityagent /run/%r", "/run/ops"),
        ("", "/run/agent"),
    ],
)
def test_which_agent_is_asked(line: str, agent: str | None) -> None:
    assert parsed(line).identity_agent == agent


def test_a_proxy_command_gets_host_port_and_user() -> None:
    assert (
        parsed("proxycommand tunnel --to %h:%p --as %r 100%%").proxy_command
        == "tunnel --to 10.0.0.7:2222 --as ops 100%"
    )


def test_an_unknown_token_is_refused_not_passed_on() -> None:
    with pytest.raises(UnsupportedSetting, match="%K"):
        parsed("proxycommand tunnel %K")


def test_none_is_no_proxy() -> None:
    settings = parsed("proxycommand none", "proxyjump none")
    assert (settings.proxy_command, settings.proxy_jump) == (None, ())


def test_jump_hosts_in_every_spelling() -> None:
    assert parse_proxy_jump("ann@a:2200,[fe80::1]:22,ssh://c:23/,d") == (
        JumpHost(address="a", user="ann", port=2200),
        JumpHost(address="fe80::1", port=22),
        JumpHost(address="c", port=23),
        JumpHost(address="d"),
    )


def test_no_timeout_is_told_from_a_timeout() -> None:
    assert parsed().connect_timeout_s is None
    assert parsed("connecttimeout 7").connect_timeout_s == 7


@pytest.mark.parametrize(
    "name", ["pkcs11provider", "knownhostscommand", "revokedhostkeys", "certificatefile", "bindaddress"]
)
def test_what_would_change_trust_or_way_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedSetting, match=f"`{name}`"):
        parsed(f"{name} /some/thing")


def test_gssapi_beside_keys_is_fine_but_alone_is_refused() -> None:
    assert parsed("preferredauthentications gssapi-with-mic,publickey").user == "ops"
    with pytest.raises(UnsupportedSetting, match="gssapi-with-mic"):
        parsed("preferredauthentications gssapi-with-mic,hostbased")


def test_only_the_configuration_file_is_handed_on_to_a_jump_host() -> None:
    assert config_file_args(("-o", "User=x", "-F", "lab.conf", "-v")) == ("-F", "lab.conf")
    assert config_file_args(("-Flab.conf",)) == ("-F", "lab.conf")
    assert config_file_args(("-o", "Port=1")) == ()
