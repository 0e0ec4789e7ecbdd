"""Where everything lies under cudaup's root on a host. Names only, nothing is read or written here."""

from pathlib import Path
from typing import NamedTuple

DEFAULT_ROOT = Path("/opt/cudaup")


class Layout(NamedTuple):
    root: Path

    @property
    def program(self) -> Path:
        return self.root / "bin" / "cudaup-host"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def uv_cache(self) -> Path:
        return self.root / "uv-cache"

    @property
    def generations(self) -> Path:
        return self.root / "generations"

    @property
    def current(self) -> Path:
        return self.root / "current"

    @property
    def previous(self) -> Path:
        return self.root / "previous"

    @property
    def lease(self) -> Path:
        return self.root / "lease.json"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def transit(self) -> Path:
        return self.root / "transit.json"

    @property
    def adopted(self) -> Path:
        return self.root / "adopted.json"

    @property
    def failed(self) -> Path:
        return self.root / "failed"

    def generation(self, generation_id: str) -> Path:
        return self.generations / generation_id
