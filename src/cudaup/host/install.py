"""Keeps the running program on the host, for the timer, for recovery at boot and for people."""

import stat
from hashlib import sha256
from pathlib import Path
from typing import Optional

import cudaup.host
from cudaup.host import fence, transit, units
from cudaup.host.files import read_own, write_atomic
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json, Refused

_FIRST_LINE = b"#!/usr/bin/env python3\n"
_MODE = 0o755
_FIX = "install it again: `host install` of the right program, or a new `cudaup apply`"


def install(ctx: Context) -> Json:
    """The verb `host install`. Not while a timer runs from the file that would be replaced."""
    content = _running_archive()
    if content is None:
        raise Refused("unsupported", "this program runs from source files, not from its zip archive")
    digest = sha256(content).hexdigest()
    is_new = not _is_installed(ctx.layout, digest)
    if ctx.dry_run:
        return {"would": f"install `{ctx.layout.program}`" if is_new else "nothing", "sha256": digest}
    _require_only_root(ctx)
    with fence.mutation(ctx, "host-install", {"sha256": digest}):
        if is_new and transit.read(ctx.layout) is not None:
            raise Refused("in-transit", "the timer runs from the installed program", "settle the host first")
        ctx.layout.program.parent.mkdir(exist_ok=True, mode=0o755)
        if is_new:
            write_atomic(ctx.layout.program, _FIRST_LINE + content, _MODE)
        has_new_unit = units.install_recovery(ctx)
    if has_new_unit:
        units.begin_recovery(ctx)  # it takes the lock itself
    return {"changed": is_new or has_new_unit, "sha256": digest}


def installed_digest(layout: Layout) -> Optional[str]:
    """Of the zip archive alone, so that it compares with what the controller streams; None for none that may be run."""
    try:
        return sha256(_without_first_line(read_own(layout.program))).hexdigest()
    except (FileNotFoundError, NotADirectoryError, Refused):
        return None


def require_same(layout: Layout) -> None:
    """The timer runs the installed file, so that must be the program that runs now. Refused `not-found` or `unsafe`."""
    if not layout.program.is_file():
        raise Refused("not-found", f"no `{layout.program}` for the timer to run", _FIX)
    content = _running_archive()
    if content is None:  # from source files, as in tests: nothing to compare with
        return
    digest = sha256(content).hexdigest()
    if not _is_installed(layout, digest):
        found = (installed_digest(layout) or "nothing that may be run")[:12]
        text = f"`{layout.program}` is not the program that runs now: {found}, not {digest[:12]}"
        raise Refused("unsafe", text, _FIX)


def _is_installed(layout: Layout, digest: str) -> bool:
    return installed_digest(layout) == digest and stat.S_IMODE(layout.program.stat().st_mode) == _MODE


def _require_only_root(ctx: Context) -> None:
    """The units' names are the host's, so that one root has them."""
    unit = ctx.systemd.unit_dir / units.RECOVER_UNIT
    if ctx.systemd.is_running() and unit.exists() and unit not in units.installed(ctx):
        text = f"`{unit}` belongs to another root of cudaup; a host has one"
        raise Refused("unsupported", text, "use that one (`--root`), or let its program `forget` it first")


def _running_archive() -> Optional[bytes]:
    """The zip this very module came from: the installed file, or the memory file of a streamed run."""
    archive = getattr(cudaup.host.__spec__.loader, "archive", None)
    return None if archive is None else _without_first_line(Path(archive).read_bytes())


def _without_first_line(content: bytes) -> bytes:
    """Any other line before the archive is not ours, and counts."""
    return content[len(_FIRST_LINE) :] if content.startswith(_FIRST_LINE) else content
