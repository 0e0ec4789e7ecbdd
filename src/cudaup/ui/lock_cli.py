"""`cudaup lock`: what it takes, what it writes, what it says."""

from __future__ import annotations

import re
from pathlib import Path

import click

from cudaup.app.lock import Locked
from cudaup.domain.errors import UsageError
from cudaup.domain.locking import Platform
from cudaup.ui import wiring

_MB = 1e6
_PATTERN, _EXAMPLE = "cpXY-manylinux_2_G_ARCH", "cp311-manylinux_2_36_x86_64"


@click.command()
@click.argument("stack_path", metavar="STACK", type=click.Path(path_type=Path))
@click.option("-i", "--inventory", "sources", multiple=True, help="Lock for these hosts: their C library and Python.")
@click.option("-l", "--limit", help="Ansible's host pattern.")
@click.option("--platform", "tag", help="Without -i: the hosts' Python, C library and machine.", metavar=_PATTERN)
@click.option("--upgrade", multiple=True, metavar="PACKAGE", help="Move this package; the others stay where they can.")
@click.option("--vendor", type=click.Path(path_type=Path), help="Also keep every wheel in this folder.")
@click.option(
    "--export", type=click.Path(path_type=Path), help="Also write pylock.toml, with the addresses of the files."
)
@click.option("--no-trial", is_flag=True, help="Do not install and import the wheels once.")
def lock(
    stack_path: Path,
    sources: tuple[str, ...],
    limit: str | None,
    tag: str | None,
    upgrade: tuple[str, ...],
    vendor: Path | None,
    export: Path | None,
    *,
    no_trial: bool,
) -> None:
    """Resolve a stack's packages to exact wheels that go together, and write them to STACK's .lock.json."""
    old = wiring.read_lock(stack_path)
    if sources:
        with wiring.fleet(sources, limit) as on:
            platform = wiring.platform_for(on, stack_path)
    elif tag is not None:
        platform = _platform(tag)
    elif old is not None:
        platform = old.platform
    else:
        raise UsageError("for which hosts?", wanted=f"-i INVENTORY, or --platform {_EXAMPLE}", found="neither")
    locked = wiring.lock(
        stack_path, platform, old, upgrade, lambda text: click.echo(text, err=True), tries=not no_trial
    )
    path = wiring.keep_lock(stack_path, locked, vendor, export)
    click.echo(locked_text(path, locked))


def _platform(tag: str) -> Platform:
    match = re.fullmatch(r"cp3(\d{1,2})-manylinux_2_(\d{1,2})_(x86_64|aarch64)", tag)
    try:
        python, glibc, arch = match.groups() if match else ("", "", "")
        return Platform.model_validate({"python": (3, int(python)), "glibc": int(glibc), "arch": arch})
    except ValueError as error:  # pydantic's is one
        raise UsageError("which platform?", wanted=f"--platform {_EXAMPLE}", found=tag) from error


def locked_text(path: Path, locked: Locked) -> str:
    lock = locked.lock
    head = f"{path}: {len(lock.wheels)} wheels, {lock.total_bytes / _MB:.0f} MB, for {lock.platform}"
    tried = (
        f"imported in an environment of their own: {', '.join(lock.trial.imports) or 'nothing'}" if lock.trial else ""
    )
    return "\n".join(filter(None, [*locked.changes, *locked.notes, tried, head]))
