"""Whether the key a host offers is the one we know. Never learns a key: an unknown one is refused, with the way out."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence

from cudaup.adapters.known_hosts import KnownKey, fingerprint, lookup, read
from cudaup.adapters.ssh_config import SshSettings
from cudaup.domain.errors import HostKeyRejected, UnsupportedSetting

_COMPARE = "compare the fingerprint with the host's own (`ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` there)"
_BEWARE = "somebody may be in between; if the host was installed anew"
_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")


class HostKeyCheck:
    """One host's known keys, read once per connection."""

    def __init__(self, name: str, settings: SshSettings) -> None:
        self._name = name
        self._settings = settings
        self._known = lookup(read(settings.known_hosts_files), settings.known_hosts_names)
        self._shown = settings.known_hosts_names[0]

    def preferred_types(self, supported: Sequence[str]) -> list[str]:
        """Known types first: a server with several keys must show the one we can compare."""
        known: set[str] = set()
        for entry in self._plain():
            known.update(_RSA_SIGNATURES if entry.key_type == "ssh-rsa" else (entry.key_type,))
        return [one for one in supported if one in known] + [one for one in supported if one not in known]

    def require(self, key_type: str, key: bytes) -> None:
        for entry in self._known:
            if entry.marker == "@revoked" and entry.key == key:
                raise HostKeyRejected(
                    "host key is revoked",
                    host=self._name,
                    where=entry.place,
                    found=f"{key_type} {fingerprint(key)}",
                    fix="do not connect; find out who revoked the key and why",
                )
        plain = self._plain()
        if not plain:
            raise self._unknown(key_type, key)
        if all(entry.key != key for entry in plain):
            raise self._changed(plain, key_type, key)

    def _plain(self) -> list[KnownKey]:
        return [entry for entry in self._known if not entry.marker]

    def _unknown(self, key_type: str, key: bytes) -> HostKeyRejected | UnsupportedSetting:
        authority = next((entry for entry in self._known if entry.marker == "@cert-authority"), None)
        if authority is not None:
            return UnsupportedSetting(
                "only a `@cert-authority` line vouches for this host, and host certificates are not supported",
                host=self._name,
                where=authority.place,
                found=f"{key_type} {fingerprint(key)}",
                fix=self._add_line(key_type, key),
            )
        return HostKeyRejected(
            "host key is unknown",
            host=self._name,
            wanted=f"a key for {self._shown} in {' or '.join(self._settings.known_hosts_files)}",
            found=f"{key_type} {fingerprint(key)}{self._remark()}",
            fix=f"{_COMPARE}, then {self._add_line(key_type, key)}",
        )

    def _changed(self, plain: Sequence[KnownKey], key_type: str, key: bytes) -> HostKeyRejected:
        same_type = [entry for entry in plain if entry.key_type == key_type]
        concerned = (same_type or plain)[0]
        remove = shlex.join(["ssh-keygen", "-R", self._shown, "-f", concerned.path])
        return HostKeyRejected(
            "host key has changed",
            host=self._name,
            where=concerned.place,
            wanted=f"{concerned.key_type} {fingerprint(concerned.key)}",
            found=f"{key_type} {fingerprint(key)}{self._remark()}",
            fix=f"{_BEWARE}, `{remove}`, then {self._add_line(key_type, key)}",
        )

    def _add_line(self, key_type: str, key: bytes) -> str:
        file = next(iter(self._settings.known_hosts_files), "known_hosts")
        return f"`echo '{self._shown} {key_type} {base64.b64encode(key).decode()}' >> {file}`"

    def _remark(self) -> str:
        strict = self._settings.strict_host_key_checking
        if strict in {"no", "off", "false", "accept-new"}:
            return f" (StrictHostKeyChecking is {strict} here; cudaup checks all the same and never adds a key)"
        return ""
