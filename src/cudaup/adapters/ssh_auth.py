"""Logging in over a fresh transport: agent, key files, password, in OpenSSH's order. Nothing here is ever retried."""

from __future__ import annotations

import base64
import binascii
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.agent import AgentKey, AgentSSH
from pydantic import SecretStr

from cudaup.adapters.ssh_config import SshSettings
from cudaup.domain.errors import AuthenticationFailed, UnsupportedSetting


@dataclass
class _Attempt:
    """What was tried and what was not, for the one error at the end."""

    tried: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    hardware_keys: list[str] = field(default_factory=list)


class _Agent(AgentSSH):
    """paramiko's own agent class knows no path but SSH_AUTH_SOCK."""

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self._socket: socket.socket | None = None
        if path is None:
            return
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            return
        self._socket = connection
        self._connect(connection)  # type: ignore[attr-defined]  # missing in the stubs

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def log_in(transport: paramiko.Transport, name: str, settings: SshSettings, password: SecretStr | None) -> None:
    """Raises AuthenticationFailed naming every key that was tried or left out, and why."""
    attempt = _Attempt()
    agent = _Agent(settings.identity_agent)
    try:
        for label, key in _candidates(agent, settings, attempt):
            attempt.tried.append(label)
            if _accepts_key(transport, settings.user, key, password, attempt):
                return
    finally:
        agent.close()
    if password is not None and transport.is_active():
        attempt.tried.append("password")
        if _accepts_password(transport, settings.user, password):
            return
    raise _refusal(name, settings, attempt)


def _accepts_key(
    transport: paramiko.Transport, user: str, key: paramiko.PKey, password: SecretStr | None, attempt: _Attempt
) -> bool:
    if not transport.is_active():  # sshd's MaxAuthTries
        return False
    try:
        further = transport.auth_publickey(user, key)
    except (paramiko.AuthenticationException, paramiko.SSHException, EOFError):
        return False
    if not further:
        return True
    attempt.left_out.append(f"the host also wants {' or '.join(further)}")
    return password is not None and _accepts_password(transport, user, password)


def _accepts_password(transport: paramiko.Transport, user: str, password: SecretStr) -> bool:
    try:
        return not transport.auth_password(user, password.get_secret_value())
    except (paramiko.AuthenticationException, paramiko.SSHException, EOFError):
        return False


def _refusal(name: str, settings: SshSettings, attempt: _Attempt) -> AuthenticationFailed | UnsupportedSetting:
    if attempt.hardware_keys and not attempt.tried:
        return UnsupportedSetting(
            "only hardware-backed keys are configured, which paramiko cannot use",
            host=name,
            found=", ".join(attempt.hardware_keys),
            fix="give the host a plain key too, or use Ansible's own `ssh` plugin for playbooks",
        )
    left_out = attempt.left_out + [f"{one} is hardware-backed" for one in attempt.hardware_keys]
    return AuthenticationFailed(
        f"login as {settings.user} was refused",
        host=name,
        found=f"tried {', '.join(attempt.tried) or 'nothing'}" + (f"; {'; '.join(left_out)}" if left_out else ""),
        fix="check user and key (`ansible_user`, `ansible_ssh_private_key_file`); encrypted keys need `ssh-add` first",
    )


def _candidates(agent: _Agent, settings: SshSettings, attempt: _Attempt) -> Iterator[tuple[str, paramiko.PKey]]:
    in_agent: dict[bytes | None, AgentKey] = {key.asbytes(): key for key in agent.get_keys()}
    wanted = [_public_blob(path) for path in settings.identity_files]
    for blob in dict.fromkeys(blob for blob in wanted if blob in in_agent):
        yield from _agent_key(in_agent[blob], attempt)
    if not settings.identities_only:
        for key in (key for blob, key in in_agent.items() if blob not in wanted):
            yield from _agent_key(key, attempt)
    for path, blob in zip(settings.identity_files, wanted, strict=True):
        if blob not in in_agent and Path(path).is_file():
            yield from _file_key(path, attempt)


def _agent_key(key: AgentKey, attempt: _Attempt) -> Iterator[tuple[str, paramiko.PKey]]:
    label = f"agent key {key.comment or key.get_name()}"
    if key.get_name().startswith("sk-"):
        attempt.hardware_keys.append(label)
        return
    yield label, key


def _file_key(path: str, attempt: _Attempt) -> Iterator[tuple[str, paramiko.PKey]]:
    if _public_type(path).startswith("sk-"):
        attempt.hardware_keys.append(path)
        return
    try:
        yield path, paramiko.PKey.from_path(path)
    except TypeError:  # cryptography's word for "a password is needed"
        attempt.left_out.append(f"{path} is encrypted and not in an agent")
    except UnsupportedAlgorithm:
        attempt.hardware_keys.append(path)
    except (ValueError, OSError, paramiko.SSHException) as error:
        attempt.left_out.append(f"{path} cannot be read: {error}")


def _public_type(path: str) -> str:
    words = _public_words(path)
    return words[0] if words else ""


def _public_blob(path: str) -> bytes | None:
    words = _public_words(path)
    try:
        return base64.b64decode(words[1]) if len(words) > 1 else None
    except binascii.Error:
        return None


def _public_words(path: str) -> list[str]:
    """The public half: beside the key, or the file itself (`IdentityFile id.pub` with the key in an agent)."""
    for candidate in (Path(f"{path}.pub"), Path(path)):
        if candidate.is_file():
            try:
                words = candidate.read_text(encoding="utf-8").split()
            except (UnicodeDecodeError, OSError):
                return []
            if words and not words[0].startswith("-----"):
                return words
    return []
