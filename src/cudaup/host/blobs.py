"""Wheels that were sent here, kept by their content's hash and never believed before that was checked."""

import hashlib
import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Iterator, List, Sequence, Set

from cudaup.host import lease, spec
from cudaup.host.fence import mutation
from cudaup.host.files import FULL, fsync_dir
from cudaup.host.layout import Layout
from cudaup.host.mounts import prepare_root
from cudaup.host.protocol import Context, Json, Refused
from cudaup.host.spec import Blob

_CHUNK = 1 << 20
_INCOMING = ".incoming-"


def require(layout: Layout, blob: Blob) -> Path:
    """A blob gets its name only once it is whole and checked, so its size is proof enough; installing hashes again.

    Refused `not-found`, naming the wheel.
    """
    path = layout.blobs / blob.sha256 / blob.filename
    if not path.is_file() or path.stat().st_size != blob.size:
        raise Refused("not-found", f"not on this host: {blob.filename}", "send it with `blob put`")
    return path


def _has(layout: Layout, sha256: str, size: int) -> bool:
    folder = layout.blobs / sha256
    return folder.is_dir() and any(path.stat().st_size == size for path in folder.iterdir())


def missing(ctx: Context) -> Json:
    """The verb `blob missing`: which of the blobs listed on standard input are not here."""
    try:
        wanted = [(str(raw["sha256"]), int(raw["size"])) for raw in json.loads(ctx.stdin.read().decode())]
    except (ValueError, TypeError, KeyError) as error:
        raise Refused("usage", f"the list of blobs cannot be read: {error!r}") from error
    return {"missing": [sha256 for sha256, size in wanted if not _has(ctx.layout, sha256, size)]}


def put(ctx: Context) -> Json:
    """The verb `blob put`: take one from standard input. Refused `unsafe` unless size and hash are as announced."""
    blob = spec.blob(ctx.options, name_key="name")
    if ctx.dry_run:
        return {"would": f"store {blob.filename}, {blob.size} bytes"}
    _check_fence(ctx)
    # Received outside the change: a slow line must not keep others from putting this host back.
    with _received(ctx, blob) as aside, mutation(ctx, "blob-put", {"name": blob.filename, "sha256": blob.sha256}):
        target = ctx.layout.blobs / blob.sha256 / blob.filename
        target.parent.mkdir(exist_ok=True, mode=0o755)
        aside.replace(target)
        fsync_dir(target.parent)
        fsync_dir(ctx.layout.blobs)
    return {"stored": True}


def _check_fence(ctx: Context) -> None:
    """Say no before gigabytes were sent. What counts is the check within the change."""
    prepare_root(ctx.layout)
    if ctx.epoch is not None:
        with lease.guarded(ctx) as now:
            lease.require_epoch(now, ctx)


def unneeded(layout: Layout, needed: Set[str]) -> List[Path]:
    """Folders of blobs that none of the hashes `needed` names."""
    if not layout.blobs.is_dir():
        return []
    return sorted(path for path in layout.blobs.iterdir() if path.is_dir() and path.name not in needed)


def sweep(layout: Layout) -> int:
    """Removes what a killed `put` left half received; how many bytes. Nobody may be sending."""
    left = list(layout.blobs.glob(_INCOMING + "*"))
    freed = sum(path.stat().st_size for path in left)
    for path in left:
        path.unlink()
    return freed


def names_in(folders: Sequence[Path]) -> List[str]:
    return sorted(path.name for folder in folders for path in folder.iterdir())


@contextmanager
def _received(ctx: Context, blob: Blob) -> Iterator[Path]:
    """The checked content in a file of its own, which is gone afterwards unless it was moved."""
    ctx.layout.blobs.mkdir(exist_ok=True, mode=0o755)
    fd, name = tempfile.mkstemp(prefix=_INCOMING, dir=str(ctx.layout.blobs))
    aside = Path(name)
    try:
        with os.fdopen(fd, "wb") as stream:
            _copy_checked(ctx.stdin, stream, blob)
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        yield aside
    except OSError as error:
        if error.errno in FULL:
            raise Refused("no-space", f"{blob.filename} ({blob.size} bytes) does not fit: {error}") from error
        raise
    finally:
        if aside.exists():
            aside.unlink()


def _copy_checked(source: BinaryIO, target: BinaryIO, blob: Blob) -> None:
    digest, left = hashlib.sha256(), blob.size
    while left:
        chunk = source.read(min(left, _CHUNK))
        if not chunk:
            got = blob.size - left
            raise Refused("unsafe", f"{blob.filename}: wanted {blob.size} bytes, got {got}", "send it again")
        target.write(chunk)
        digest.update(chunk)
        left -= len(chunk)
    if digest.hexdigest() != blob.sha256:
        raise Refused(
            "unsafe", f"{blob.filename}: wanted sha256 {blob.sha256}, got {digest.hexdigest()}", "send it again"
        )
