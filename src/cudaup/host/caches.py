"""What a generation's services compile while they run. Each generation keeps its own; nothing of it is sealed."""

import os
import pwd
import shutil
import stat
from pathlib import Path
from typing import Dict, Optional, Sequence, Tuple

from cudaup.host.layout import Layout
from cudaup.host.protocol import Context

BYTECODE = "pycache"
# By the variable that names it to whoever compiles.
FOLDERS = {
    "PYTHONPYCACHEPREFIX": BYTECODE,
    "CUDA_CACHE_PATH": "cuda",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
}


def drop_bytecode(layout: Layout, generation_id: str) -> None:
    """The next start makes it again; a file that a full disk cut short would fail each. The folder itself stays."""
    folder = layout.generation(generation_id) / "cache" / BYTECODE
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(str(entry), ignore_errors=True)
        else:
            entry.unlink()


def give_to_services(ctx: Context, generation_id: str, units: Sequence[str]) -> None:
    """A service of another user cannot compile into root's folders. Of several users they stay so, and it is told.

    Only folders that are root's own, into which nobody else has put anything.
    """
    users = sorted({ctx.systemd.show(name).user or "root" for name in units})
    if users in ([], ["root"]):
        return
    owner = _ids_of(users[0]) if len(users) == 1 else None
    if owner is None:
        ctx.channel.event("start", "note", f"caches stay root's: the services run as {', '.join(users)}")
        return
    folder = ctx.layout.generation(generation_id) / "cache"
    for entry in (folder / name for name in FOLDERS.values()):
        if entry.is_dir() and entry.lstat().st_uid == 0 and stat.S_ISDIR(entry.lstat().st_mode):
            os.chown(str(entry), *owner, follow_symlinks=False)


def without_strangers(generation: Path, variables: Dict[str, str]) -> Dict[str, str]:
    """For root's own processes: what another user's service compiled must not be run as root."""
    own = dict(variables)
    for key, name in FOLDERS.items():
        if key in own and Path(own[key]).is_dir() and Path(own[key]).stat().st_uid != os.geteuid():
            own[key] = str(generation / "cache" / "smoke" / name)
    return own


def _ids_of(user: str) -> Optional[Tuple[int, int]]:
    """None for a user that comes into being with its service."""
    try:
        found = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        return None
    return found.pw_uid, found.pw_gid
