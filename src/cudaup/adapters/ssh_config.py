"""What OpenSSH would do for one host, read from the text of `ssh -G`. Pure: who runs ssh is `ssh_resolve`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudaup.domain.errors import UnsupportedSetting

_MULTIPLE = frozenset({"identityfile", "certificatefile"})
_OFF = frozenset({"none", "no", "false", ""})
# Settings that change whom we trust or how packets leave; obeying only half of them would be worse than refusing.
_UNSUPPORTED = {
    "pkcs11provider": "keys on a smart card are not supported; add the key to an ssh-agent",
    "knownhostscommand": "put the host keys in a known_hosts file",
    "revokedhostkeys": "mark the keys `@revoked` in a known_hosts file",
    "certificatefile": "put the certificate beside its key as KEY-cert.pub",
    "bindaddress": "set the route instead",
    "bindinterface": "set the route instead",
}
_TOKEN = re.compile(r"%(.)")


@dataclass(frozen=True, kw_only=True)
class JumpHost:
    """One hop of a ProxyJump, as written; its own settings come from OpenSSH again."""

    address: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.address}" + (f":{self.port}" if self.port else "")


@dataclass(frozen=True, kw_only=True)
class SshSettings:
    """Paths are absolute, tokens are expanded. `connect_timeout_s` is None when the user set none."""

    hostname: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None
    proxy_jump: tuple[JumpHost, ...] = ()
    proxy_command: str | None = None
    known_hosts_files: tuple[str, ...] = ()
    strict_host_key_checking: str = "ask"
    host_key_alias: str | None = None
    connect_timeout_s: int | None = None
    server_alive_interval_s: int = 0

    @property
    def known_hosts_names(self) -> tuple[str, ...]:
        """The names to look for, in OpenSSH's order: the alias alone, else `[host]:port`, then the bare host."""
        if self.host_key_alias:
            return (self.host_key_alias,)
        host = self.hostname.lower()
        return (host,) if self.port == 22 else (f"[{host}]:{self.port}", host)


def parse_ssh_g(text: str, *, environment: Mapping[str, str], alias: str) -> SshSettings:
    """Raises UnsupportedSetting for what cudaup cannot do, by name."""
    values, lists = _lines(text)
    _refuse_unsupported(values, lists, alias)
    expand = _Expansion(values, environment, alias)
    return SshSettings(
        hostname=values["hostname"],
        port=int(values["port"]),
        user=values["user"],
        identity_files=tuple(expand.path(one) for one in lists["identityfile"]),
        identities_only=values.get("identitiesonly") == "yes",
        identity_agent=expand.agent(values.get("identityagent", "SSH_AUTH_SOCK")),
        proxy_jump=parse_proxy_jump(values.get("proxyjump", "none")),
        proxy_command=expand.command(values.get("proxycommand", "none")),
        known_hosts_files=tuple(
            expand.path(one)
            for key in ("userknownhostsfile", "globalknownhostsfile")
            for one in values.get(key, "none").split()
            if one != "none"
        ),
        strict_host_key_checking=values.get("stricthostkeychecking", "ask"),
        host_key_alias=values.get("hostkeyalias"),
        connect_timeout_s=_seconds(values.get("connecttimeout", "none")),
        server_alive_interval_s=_seconds(values.get("serveraliveinterval", "0")) or 0,
    )


def parse_proxy_jump(text: str) -> tuple[JumpHost, ...]:
    """`[user@]host[:port],...` or ssh:// URIs, in the order they are passed through."""
    if text in _OFF:
        return ()
    return tuple(_jump_host(part) for part in text.split(","))


def config_file_args(ssh_args: Sequence[str]) -> tuple[str, ...]:
    """`-F FILE` out of the user's ssh options: the one option that OpenSSH hands on to a jump host."""
    for index, argument in enumerate(ssh_args):
        if argument == "-F" and index + 1 < len(ssh_args):
            return ("-F", ssh_args[index + 1])
        if argument.startswith("-F") and len(argument) > 2:
            return ("-F", argument[2:])
    return ()


def _jump_host(part: str) -> JumpHost:
    rest = part.strip().removeprefix("ssh://").rstrip("/")
    user, _, place = rest.rpartition("@")
    bracketed = re.fullmatch(r"\[(.+)\](?::(\d+))?", place) or re.fullmatch(r"([^:]+)(?::(\d+))?", place)
    if bracketed is None:
        return JumpHost(address=place, user=user or None)
    return JumpHost(address=bracketed[1], user=user or None, port=int(bracketed[2]) if bracketed[2] else None)


def _lines(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    values: dict[str, str] = {}
    lists: dict[str, list[str]] = {key: [] for key in _MULTIPLE}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in _MULTIPLE:
            lists[key].append(value)
        else:
            values.setdefault(key, value)
    return values, lists


def _refuse_unsupported(values: Mapping[str, str], lists: Mapping[str, list[str]], alias: str) -> None:
    for key, fix in _UNSUPPORTED.items():
        found = values.get(key, " ".join(lists.get(key, ())))
        if found.lower() not in _OFF:
            raise UnsupportedSetting(f"ssh setting `{key}` is not supported", host=alias, found=found, fix=fix)
    methods = values.get("preferredauthentications", "publickey").split(",")
    if not {"publickey", "password", "keyboard-interactive"} & set(methods):
        raise UnsupportedSetting(
            "ssh setting `preferredauthentications` leaves no method that cudaup can do",
            host=alias,
            wanted="publickey or password among them",
            found=",".join(methods),
        )


def _seconds(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None


class _Expansion:
    """`~`, `${NAME}` and `%` tokens; `ssh -G` prints them as written for identities and proxy commands."""

    def __init__(self, values: Mapping[str, str], environment: Mapping[str, str], alias: str) -> None:
        self._environment = environment
        self._alias = alias
        self._tokens = {
            "%": "%",
            "h": values["hostname"],
            "n": alias,
            "p": values["port"],
            "r": values["user"],
            "u": environment.get("USER", ""),
            "d": os.path.expanduser("~"),  # noqa: PTH111  a text for a token, not a path we open
        }

    def _expanded(self, text: str) -> str:
        def token(match: re.Match[str]) -> str:
            try:
                return self._tokens[match[1]]
            except KeyError:
                raise UnsupportedSetting(
                    f"ssh token `%{match[1]}` is not supported", host=self._alias, found=text
                ) from None

        return _TOKEN.sub(token, text)

    def path(self, text: str) -> str:
        named = re.sub(r"\$\{(\w+)\}", lambda match: self._environment.get(match[1], ""), text)
        return os.path.expanduser(self._expanded(named))  # noqa: PTH111  `~user` forms too, as OpenSSH has them

    def command(self, text: str) -> str | None:
        return None if text in _OFF else self._expanded(text)

    def agent(self, text: str) -> str | None:
        if text == "none":
            return None
        if text == "SSH_AUTH_SOCK":
            return self._environment.get("SSH_AUTH_SOCK")
        if text.startswith("$") and not text.startswith("${"):
            return self._environment.get(text[1:])
        return self.path(text)
