"""Ansible's variables become a Host, or are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from cudaup.domain.errors import UnsupportedSetting
from cudaup.domain.inventory import Host, Transport
from cudaup.domain.inventory_vars import host_from_vars


def host(name: str = "gpu1", **variables: Any) -> Host:
    return host_from_vars(name, variables)


def test_a_bare_name_is_reached_by_ssh_under_that_name() -> None:
    assert host() == Host(name="gpu1", address="gpu1")


def test_the_older_names_of_variables_work_and_the_newer_win() -> None:
    old = host(ansible_ssh_host="10.0.0.1", ansible_ssh_port="2222", ansible_ssh_user="ops")
    assert (old.address, old.port, old.user) == ("10.0.0.1", 2222, "ops")
    assert host(ansible_ssh_user="old", ansible_user="new").user == "new"


def test_ssh_options_keep_their_order_and_quotes() -> None:
    made = host(ansible_ssh_extra_args="-v", ansible_ssh_common_args='-o ProxyCommand="ssh -W %h:%p b" -F x')
    assert made.ssh_args == ("-o", "ProxyCommand=ssh -W %h:%p b", "-F", "x", "-v")


@pytest.mark.parametrize(
    ("name", "variables", "transport"),
    [
        ("localhost", {}, Transport.LOCAL),
        ("localhost", {"ansible_port": 2222}, Transport.SSH),
        ("localhost", {"ansible_connection": "ssh"}, Transport.SSH),
        ("gpu1", {"ansible_connection": "local"}, Transport.LOCAL),
        ("gpu1", {"ansible_connection": "cudaup.stack.broker"}, Transport.SSH),
    ],
)
def test_who_is_this_machine(name: str, variables: dict[str, Any], transport: Transport) -> None:
    assert host(name, **variables).transport is transport


@pytest.mark.parametrize("value", [True, "yes", "True", 1])
def test_become_in_every_spelling_of_true(value: object) -> None:
    made = host(ansible_become=value, ansible_become_pass="pw").become  # noqa: S106  the test's own
    assert made is not None
    assert made.password is not None
    assert made.password.get_secret_value() == "pw"


def test_no_become_unless_asked() -> None:
    assert host(ansible_become=False, ansible_become_password="pw").become is None  # noqa: S106  the test's own


@pytest.mark.parametrize(
    "variables",
    [
        {"ansible_connection": "docker"},
        {"ansible_become": True, "ansible_become_method": "su"},
        {"ansible_become": True, "ansible_become_user": "postgres"},
        {"ansible_port": "ssh"},
        {"ansible_host": "{{ lookup('env', 'X') }}"},
        {"ansible_password": {"__ansible_vault": "$ANSIBLE_VAULT;1.1"}},
    ],
)
def test_what_cannot_be_obeyed_is_refused_by_name(variables: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSetting, match=f"gpu1: `{list(variables)[-1]}` cannot be used"):
        host(**variables)


@pytest.mark.parametrize(
    ("variables", "python"),
    [
        ({}, "python3"),
        ({"ansible_python_interpreter": "auto_silent"}, "python3"),
        ({"ansible_python_interpreter": "/usr/bin/python3.11"}, "/usr/bin/python3.11"),
        ({"ansible_python_interpreter": "/a", "cudaup_python": "/b"}, "/b"),
    ],
)
def test_which_python_runs_the_host_program(variables: dict[str, Any], python: str) -> None:
    assert host(**variables).python == python


def test_secrets_are_in_no_repr() -> None:
    made = host(ansible_password="pw-login", ansible_become=True, ansible_become_password="pw-sudo")  # noqa: S106  the test's own
    assert "pw-" not in repr(made)
