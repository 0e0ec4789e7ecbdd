"""Whether what was installed is what its packages recorded. uv believes its cache, which an edit in place reaches."""

import base64
import os
from pathlib import Path
from typing import Dict, List, Set

from cudaup.host import environment
from cudaup.host.protocol import Json
from cudaup.smoke import record

_SHA256 = "sha256="


def unlike(generation: Path, sealed: Dict[str, Json]) -> List[str]:
    """Files, by their name in `sealed`, that hold something else than every package that brought them says."""
    wanted: Dict[str, Set[str]] = {}
    for claim in record.claims(environment.site_packages(generation / "venv")):
        if claim.digest.startswith(_SHA256):
            name = os.path.relpath(claim.path, str(generation))
            wanted.setdefault(name, set()).add(_hex(claim.digest[len(_SHA256) :]))
    return sorted(name for name, hashes in wanted.items() if sealed.get(name, {}).get("sha256") not in hashes)


def _hex(digest: str) -> str:
    return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
