"""How a controller gets in: keys, known hosts, ssh configuration, inventories, all inside the lab's folder."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cudaup.lab.paths import Files
from cudaup.lab.spec import BASTION, LabSpec


def make_keys(lab: LabSpec) -> None:
    """One key to log in, one per host, and the hosts' public ones as known hosts."""
    files = Files(lab.directory)
    (lab.directory / "keys").mkdir()
    _make_key(files.user_key)
    lines = [f"{host.name},{host.address} {_make_key(files.host_key(host.name))}" for host in lab.hosts]
    files.known_hosts.write_text("".join(lines))
    if lab.user:
        files.password.touch(mode=0o600)
        files.password.write_text(secrets.token_urlsafe(16))


def _make_key(path: Path) -> str:
    key = Ed25519PrivateKey.generate()
    openssh = serialization.PrivateFormat.OpenSSH
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, openssh, serialization.NoEncryption()))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    line = f"{public.decode()}\n"
    path.with_suffix(".pub").write_text(line)
    return line


def write_configs(lab: LabSpec, warden_pid: int) -> None:
    """For use from anywhere on the machine, also inside the lab's network namespace."""
    files = Files(lab.directory)
    files.proxy.write_text(_proxy(lab, warden_pid))
    files.proxy.chmod(0o700)
    files.ssh_config.write_text("\n".join(_ssh_config(lab, files, warden_pid)))
    files.inventory.write_text(_inventory(lab, files))


def _proxy(lab: LabSpec, warden_pid: int) -> str:
    """Joins the lab's `guests` cgroup first, so that `lab down` also ends connections that still hold the namespace."""
    busybox = lab.root / "root/bin/busybox"
    return f"""#!/bin/sh
# usage: proxy ADDRESS PORT - standard input and output into the network namespace of the lab `{lab.name}`
if ! echo $$ 2>/dev/null >{lab.cgroup}/guests/cgroup.procs; then
    echo "the lab \\`{lab.name}\\` is not up" >&2
    exit 1
fi
exec nsenter --net=/proc/{warden_pid}/ns/net {busybox} nc "$1" "$2"
"""


def _ssh_config(lab: LabSpec, files: Files, warden_pid: int) -> Iterator[str]:
    """The proxy only where it is needed: of ProxyJump and ProxyCommand OpenSSH takes the one it reads first."""
    for host in lab.hosts:
        yield f"Host {host.name} {host.address}"
        yield f"    HostName {host.address}"
        if host.is_inner:
            yield f"    ProxyJump {BASTION}"
    yield f"""
Host *
    User {lab.user or "root"}
    IdentityFile {files.user_key}
    IdentitiesOnly yes
    UserKnownHostsFile {files.known_hosts}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes

Match !exec "/usr/bin/test /proc/self/ns/net -ef /proc/{warden_pid}/ns/net"
    ProxyCommand {files.proxy} %h %p
"""


def _inventory(lab: LabSpec, files: Files) -> str:
    variables: dict[str, str | bool] = {
        "ansible_user": lab.user or "root",
        "ansible_ssh_common_args": f"-F {files.ssh_config}",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    if lab.user:
        # Group variables of an inventory file are the weakest of all: group_vars, host variables and -e override them.
        variables |= {"ansible_become": True, "ansible_become_password": files.password.read_text()}
    hosts = [host for host in lab.hosts if host.name != BASTION]
    lines = ["gpu:", "  hosts:"]
    lines += [f"    {host.name}: {{ansible_host: {host.address}}}" for host in hosts]
    lines += ["  vars:", *(f"    {name}: {json.dumps(value)}" for name, value in variables.items())]
    return "".join(f"{line}\n" for line in lines)
