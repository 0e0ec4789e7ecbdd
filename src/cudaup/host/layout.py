"""Where everything lies under cudaup's root on a host. Names only, nothing is read or written here."""

from pathlib import Path

DEFAULT_ROOT = Path("/opt/cudaup")


class Layout:
    """`links` has one link per generation, made with it: a switch renames them and needs no new inode."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.program = root / "bin" / "cudaup-host"
        self.blobs = root / "blobs"
        self.uv_cache = root / "uv-cache"
        self.generations = root / "generations"
        self.current, self.previous, self.links = root / "current", root / "previous", root / "links"
        self.ballast, self.failed = root / "ballast", root / "failed"
        self.lease, self.transit = root / "lease.json", root / "transit.json"
        self.journal, self.older_journal = root / "journal.jsonl", root / "journal.1.jsonl"
        self.adopted = root / "adopted.json"
        # Held by whoever changes generations, links or services.
        self.lock = root / "lock"
        # Held for moments, around lease.json and transit.json, so that a renewal never waits for an activate.
        self.lease_lock = root / "lease.lock"
        # Held by the dead-man's timer for as long as it lives: who sees it held knows that it is armed.
        self.timer_lock = root / "timer.lock"

    def generation(self, generation_id: str) -> Path:
        return self.generations / generation_id
