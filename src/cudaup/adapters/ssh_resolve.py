"""Asks OpenSSH how it would reach a host (`ssh -G`): Include, Match, HostKeyAlias and the rest then simply work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from cudaup.adapters.ssh_config import JumpHost, SshSettings, config_file_args, parse_ssh_g
from cudaup.domain.errors import UsageError
from cudaup.domain.inventory import Host

_LIMIT_S = 30  # `Match exec` may run commands


def resolve(host: Host) -> SshSettings:
    arguments = [*host.ssh_args]
    if host.port is not None:
        arguments += ["-p", str(host.port)]
    if host.user is not None:
        arguments += ["-l", host.user]
    if host.private_key_file is not None:
        arguments += ["-i", host.private_key_file]
    return _ask(arguments, host.address, host.name)


def resolve_jump(jump: JumpHost, ssh_args: Sequence[str]) -> SshSettings:
    """A jump host has settings of its own; only the configuration file is handed on, as OpenSSH does it."""
    arguments = [*config_file_args(ssh_args)]
    if jump.port is not None:
        arguments += ["-p", str(jump.port)]
    if jump.user is not None:
        arguments += ["-l", jump.user]
    return _ask(arguments, jump.address, str(jump))


def _ask(arguments: Sequence[str], address: str, name: str) -> SshSettings:
    command = ["ssh", "-G", *arguments, "--", address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except FileNotFoundError:
        raise UsageError("`ssh` is not installed here", fix="install the OpenSSH client") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"`ssh -G` gave no answer in {_LIMIT_S} s", host=name, fix="look at `Match exec`") from None
    if done.returncode:
        raise UsageError("OpenSSH does not accept the settings", host=name, found=done.stderr.strip())
    return parse_ssh_g(done.stdout, environment=os.environ, alias=address)
