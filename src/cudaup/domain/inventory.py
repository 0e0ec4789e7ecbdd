"""A host as the inventory describes it: how to reach it. Read by Ansible, never parsed here."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import SecretStr


class Transport(StrEnum):
    SSH = "ssh"
    LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Become:
    """Commands become root by sudo. The password never leaves memory but into sudo's standard input."""

    password: SecretStr | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Host:
    """`ssh_args` are the user's own ssh options (`ansible_ssh_common_args` and its kin), handed to `ssh -G`."""

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    password: SecretStr | None = field(default=None, repr=False)
    private_key_file: str | None = None
    ssh_args: tuple[str, ...] = ()
    transport: Transport = Transport.SSH
    become: Become | None = None
    python: str = "python3"

    @property
    def is_local(self) -> bool:
        return self.transport is Transport.LOCAL
