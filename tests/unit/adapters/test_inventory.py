"""Inventories through Ansible itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cudaup.adapters.inventory import AnsibleInventories
from cudaup.domain.errors import UnsupportedSetting, UsageError
from cudaup.domain.inventory import Host, Transport

_INI = """
[gpu]
a ansible_host=10.0.0.1
b ansible_host="{{ inventory_hostname }}.example.net" ansible_port=2222

[racks:children]
gpu
"""
_GROUP_VARS = """
ansible_user: ops
ansible_become: true
ansible_become_password: "{{ vault_password }}"
ansible_ssh_common_args: '-o ProxyCommand="ssh -W %h:%p bastion"'
"""


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hosts whose sudo password is in a vault, behind a template."""
    (tmp_path / "hosts.ini").write_text(_INI)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "gpu.yml").write_text(_GROUP_VARS)
    vault = tmp_path / "group_vars" / "all.yml"
    vault.write_text("vault_password: s3cret\n")
    key = tmp_path / "vault-key"
    key.write_text("open sesame\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(key))
    subprocess.run([sys.executable, "-m", "ansible", "vault", "encrypt", str(vault)], check=True, capture_output=True)
    return tmp_path / "hosts.ini"


def read(*sources: object, limit: str | None = None) -> dict[str, Host]:
    return {host.name: host for host in AnsibleInventories().read([str(source) for source in sources], limit)}


def test_group_variables_templates_and_vaults_are_resolved(inventory: Path) -> None:
    hosts = read(inventory)
    a, b = hosts["a"], hosts["b"]
    assert (a.address, a.port, b.address, b.port) == ("10.0.0.1", None, "b.example.net", 2222)
    assert b.user == "ops"
    assert b.ssh_args == ("-o", "ProxyCommand=ssh -W %h:%p bastion")
    assert b.become is not None
    assert b.become.password is not None
    assert b.become.password.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(hosts)


def test_a_limit_is_ansibles(inventory: Path) -> None:
    assert list(read(inventory, limit="racks:!a")) == ["b"]


def test_a_host_of_two_groups_comes_once_where_ansible_lists_it_first(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.ini"
    hosts.write_text("[a]\nz\nm\n[b]\nm\nc\n")
    assert list(read(hosts)) == ["z", "m", "c"]


def test_a_limit_that_matches_nothing_is_an_error(inventory: Path) -> None:
    with pytest.raises(UsageError, match="nosuch"):
        read(inventory, limit="nosuch")


def test_localhost_alone_is_this_machine() -> None:
    assert read("localhost,")["localhost"].transport is Transport.LOCAL


def test_an_unreadable_inventory_names_the_file_and_ansibles_reason(tmp_path: Path) -> None:
    broken = tmp_path / "hosts.yml"
    broken.write_text("all: {hosts: [\n")
    with pytest.raises(UsageError, match=r"hosts\.yml: Ansible cannot read the inventory\n  found:  .*YAML"):
        read(broken)


def test_an_undefined_variable_is_the_hosts_error_not_an_empty_value(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.ini"
    hosts.write_text("fine ansible_host=10.0.0.1\nlost ansible_host='{{ nowhere }}'\n")
    with pytest.raises(UsageError, match=r"lost: Ansible cannot resolve `ansible_host`\n.*'nowhere' is undefined"):
        read(hosts)


def test_everything_that_cannot_be_obeyed_comes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("a ansible_port=ssh\nb\nc ansible_connection=winrm\n")
    with pytest.raises(UnsupportedSetting) as raised:
        AnsibleInventories().read([str(path)], None)
    told = str(raised.value)
    assert ("a: `ansible_port` cannot be used" in told, "c: `ansible_connection` cannot be used" in told) == (
        True,
        True,
    )
    assert "b:" not in told


def test_an_inventory_without_a_name_is_not_the_folder_we_are_in() -> None:
    with pytest.raises(UsageError, match="no name"):
        AnsibleInventories().read([""], None)


def test_a_limit_that_is_no_expression_is_not_all_hosts(inventory: Path) -> None:
    """Ansible itself takes it for no limit at all."""
    with pytest.raises(UsageError, match="no regular expression"):
        AnsibleInventories().read([str(inventory)], "a,!~[")
