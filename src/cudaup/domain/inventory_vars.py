"""Ansible's connection variables of one host -> Host. Pure; what cannot be obeyed is refused by name."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from cudaup.domain.errors import UnsupportedSetting
from cudaup.domain.inventory import Become, Host, Transport

_ADDRESS = ("ansible_host", "ansible_ssh_host")
_PORT = ("ansible_port", "ansible_ssh_port")
_USER = ("ansible_user", "ansible_ssh_user")
_PASSWORD = ("ansible_password", "ansible_ssh_password", "ansible_ssh_pass")
_KEY = ("ansible_private_key_file", "ansible_ssh_private_key_file")
_SSH_ARGS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_BECOME_PASSWORD = ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
_PYTHON = ("cudaup_python", "ansible_python_interpreter")
_OTHERS = ("ansible_connection", "ansible_become", "ansible_become_user", "ansible_become_method")
_OVER_SSH = frozenset({"ssh", "smart", "paramiko", "paramiko_ssh", "cudaup.stack.broker", "ansible.builtin.ssh"})
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

CONNECTION_VARIABLES = (
    *_ADDRESS, *_PORT, *_USER, *_PASSWORD, *_KEY, *_SSH_ARGS, *_BECOME_PASSWORD, *_PYTHON, *_OTHERS,
)  # fmt: skip


def needs_ansible(value: Any) -> bool:
    """Whether only Ansible can say what the value is: a template, or encrypted by Ansible Vault."""
    return isinstance(value, Mapping) or (isinstance(value, str) and ("{{" in value or "{%" in value))


def host_from_vars(name: str, variables: Mapping[str, Any]) -> Host:
    """Raises UnsupportedSetting naming the variable."""
    given = _Given(name, variables)
    transport = _transport(given)
    return Host(
        name=name,
        address=given.text(*_ADDRESS) or name,
        port=given.number(*_PORT),
        user=given.text(*_USER),
        password=given.secret(*_PASSWORD),
        private_key_file=given.text(*_KEY),
        ssh_args=tuple(word for key in _SSH_ARGS for word in shlex.split(given.text(key) or "")),
        transport=transport,
        become=_become(given),
        python=_python(given),
    )


class _Given:
    """Typed getters; of several names the first that is set wins, the newer one being first."""

    def __init__(self, name: str, variables: Mapping[str, Any]) -> None:
        self.name = name
        self._variables = variables

    def raw(self, *keys: str) -> tuple[str, Any]:
        for key in keys:
            value = self._variables.get(key)
            if value is not None and value != "":
                if needs_ansible(value):
                    raise self.unsupported(key, "a plain value", "a template or vault value that is not resolved")
                return key, value
        return keys[0], None

    def text(self, *keys: str) -> str | None:
        value = self.raw(*keys)[1]
        return None if value is None else str(value)

    def secret(self, *keys: str) -> SecretStr | None:
        value = self.text(*keys)
        return None if value is None else SecretStr(value)

    def number(self, *keys: str) -> int | None:
        key, value = self.raw(*keys)
        if value is None:
            return None
        if not str(value).isdigit():
            raise self.unsupported(key, "a number", repr(value))
        return int(value)

    def is_true(self, *keys: str) -> bool:
        value = self.raw(*keys)[1]
        return str(value).strip().lower() in {"true", "yes", "on", "1", "y", "t"}

    def unsupported(self, key: str, wanted: str, found: str) -> UnsupportedSetting:
        return UnsupportedSetting(
            f"`{key}` cannot be used",
            host=self.name,
            wanted=wanted,
            found=found,
            fix=f"change `{key}` in the inventory",
        )


def _transport(given: _Given) -> Transport:
    """`-i localhost,` says no connection and means this machine; a localhost with a port or a user is an ssh host."""
    key, connection = given.raw("ansible_connection")
    if connection is None:
        is_plain = given.raw(*_ADDRESS, *_PORT, *_USER, *_SSH_ARGS, *_KEY)[1] is None
        return Transport.LOCAL if given.name in _LOCAL_NAMES and is_plain else Transport.SSH
    if connection in {"local", "ansible.builtin.local"}:
        return Transport.LOCAL
    if connection in _OVER_SSH:
        return Transport.SSH
    raise given.unsupported(key, "ssh or local", str(connection))


def _become(given: _Given) -> Become | None:
    if not given.is_true("ansible_become"):
        return None
    for key, only in (("ansible_become_user", "root"), ("ansible_become_method", "sudo")):
        found = given.text(key)
        if found is not None and found.removeprefix("ansible.builtin.") != only:
            raise given.unsupported(key, only, found)
    return Become(password=given.secret(*_BECOME_PASSWORD))


def _python(given: _Given) -> str:
    found = given.text(*_PYTHON)
    return "python3" if found is None or found.startswith("auto") else found
