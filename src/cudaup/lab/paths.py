"""Names of the files in a lab's folder that more than one module uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Files:
    directory: Path

    @property
    def user_key(self) -> Path:
        return self.directory / "id_ed25519"

    def host_key(self, host: str) -> Path:
        return self.directory / "keys" / host

    @property
    def password(self) -> Path:
        return self.directory / "password"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def proxy(self) -> Path:
        return self.directory / "proxy"

    @property
    def ssh_config(self) -> Path:
        return self.directory / "ssh_config"

    @property
    def inventory(self) -> Path:
        return self.directory / "inventory.yml"

    @property
    def spec(self) -> Path:
        return self.directory / "spec.json"

    @property
    def warden_pid(self) -> Path:
        return self.directory / "warden.pid"

    @property
    def control(self) -> Path:
        return self.directory / "control"

    @property
    def log(self) -> Path:
        return self.directory / "lab.log"
