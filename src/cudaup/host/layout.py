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
    def lock(self) -> Path:
        """Held by whoever changes generations, links or services."""
        return self.root / "lock"

    @property
    def lease_lock(self) -> Path:
        """Held for moments, around lease.json and transit.json, so that a renewal never waits for an activate."""
        return self.root / "lease.lock"

    @property
    def timer_lock(self) -> Path:
        """Held by the dead-man's timer for as long as it lives: who sees it held knows that it is armed."""
        return self.root / "timer.lock"

    @property
    def links(self) -> Path:
        """One link per generation, made with it: a switch renames them and needs no new inode."""
        return self.root / "links"

    @property
    def ballast(self) -> Path:
        return self.root / "ballast"

    @property
    def failed(self) -> Path:
        return self.root / "failed"

    def generation(self, generation_id: str) -> Path:
        return self.generations / generation_id
