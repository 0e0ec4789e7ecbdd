"""Keeps the running program on the host, for the timer, for recovery at boot and for people."""

from hashlib import sha256
from pathlib import Path
from typing import Optional

import cudaup.host
from cudaup.host import fence, transit, units
from cudaup.host.files import write_atomic
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json, Refused

_FIRST_LINE = b"#!/usr/bin/env python3\n"


def install(ctx: Context) -> Json:
    """The verb `host install`. Not while a timer runs from the file that would be replaced."""
    content = _running_archive()
    digest = sha256(content).hexdigest()
    is_new = installed_digest(ctx.layout) != digest
    if ctx.dry_run:
        return {"would": f"install `{ctx.layout.program}`" if is_new else "nothing", "sha256": digest}
    with fence.mutation(ctx, "host-install", {"sha256": digest}):
        if is_new and transit.read(ctx.layout) is not None:
            raise Refused("in-transit", "the timer runs from the installed program", "settle the host first")
        ctx.layout.program.parent.mkdir(exist_ok=True)
        if is_new:
            write_atomic(ctx.layout.program, _FIRST_LINE + content, 0o755)
        has_new_unit = units.install_recovery(ctx)
    if has_new_unit:
        units.begin_recovery(ctx)  # it takes the lock itself
    return {"changed": is_new or has_new_unit, "sha256": digest}


def installed_digest(layout: Layout) -> Optional[str]:
    """Of the zip archive alone, so that it compares with what the controller streams."""
    try:
        return sha256(_without_first_line(layout.program.read_bytes())).hexdigest()
    except FileNotFoundError:
        return None


def _running_archive() -> bytes:
    """The zip this very module came from: the installed file, or the memory file of a streamed run."""
    archive = getattr(cudaup.host.__spec__.loader, "archive", None)
    if archive is None:
        raise Refused("unsupported", "this program runs from source files, not from its zip archive")
    return _without_first_line(Path(archive).read_bytes())


def _without_first_line(content: bytes) -> bytes:
    return content.partition(b"\n")[2] if content.startswith(b"#!") else content
