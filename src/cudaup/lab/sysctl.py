"""The one kernel setting that labs need changed, and the way back. It is shared: the last lab to go puts it back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MANY = 8192  # every systemd wants a few inotify instances, and the machine counts them per user


@dataclass(frozen=True)
class Setting:
    """`saved` holds the machine's own value while any lab is there. Call under the labs' lock."""

    file: Path = Path("/proc/sys/fs/inotify/max_user_instances")
    saved: Path = Path("/var/lib/cudaup-lab/.max_user_instances")

    def raise_it(self) -> None:
        present = int(self.file.read_text())
        if present < MANY:
            self.saved.write_text(f"{present}\n")  # first the way back, then the change
            self.file.write_text(f"{MANY}\n")

    def put_back(self) -> None:
        if self.saved.exists():
            self.file.write_text(self.saved.read_text())
            self.saved.unlink()
