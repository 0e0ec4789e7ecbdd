"""The unit files cudaup puts on a host: recovery at boot, and a drop-in for each service that runs from the path."""

from pathlib import Path
from typing import List, Sequence

from cudaup.host.files import fsync_dir, write_atomic
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context

RECOVER_UNIT = "cudaup-recover.service"
_DROP_IN = "cudaup.conf"

# Not Requires=: a recovery that breaks must not keep a service down. It either puts the host back or quarantines it.
# Not ExecStartPre=: that would run in every start, also in the one in the middle of a switch.
_DROP_IN_TEXT = """\
# Written by cudaup. `{program} forget` removes it.
[Unit]
Wants={recover}
After={recover}

[Service]
EnvironmentFile=-{root}/current/env
"""

_RECOVER_TEXT = """\
# Written by cudaup. `{program} forget` removes it.
[Unit]
Description=Put this host back when it was rebooted in the middle of a CUDA switch
RequiresMountsFor={root}
After=local-fs.target nvidia-persistenced.service
Before=multi-user.target

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=15min
ExecStart={program} recover --boot --root {root}

[Install]
WantedBy=multi-user.target
"""


def install_recovery(ctx: Context) -> bool:
    """Whether anything changed."""
    if not ctx.systemd.is_running():
        return False
    if not _put(ctx.systemd.unit_dir / RECOVER_UNIT, _filled(_RECOVER_TEXT, ctx.layout)):
        return False
    ctx.systemd.reload()
    ctx.systemd.enable(RECOVER_UNIT)
    return True


def begin_recovery(ctx: Context) -> None:
    """Once for this boot: it stays active, so that the services' drop-ins pull in nothing until the next."""
    ctx.systemd.start(RECOVER_UNIT)


def install_drop_ins(ctx: Context, names: Sequence[str]) -> bool:
    changed = [_put(_drop_in(ctx, unit), _filled(_DROP_IN_TEXT, ctx.layout)) for unit in names]
    if any(changed):
        ctx.systemd.reload()
    return any(changed)


def installed(ctx: Context) -> List[Path]:
    """What lies in systemd's directory and names this root: found by content, so that nothing is forgotten."""
    folder = ctx.systemd.unit_dir
    candidates = [*sorted(folder.glob(f"*.d/{_DROP_IN}")), folder / RECOVER_UNIT]
    mark = f"`{ctx.layout.program} forget`"
    return [path for path in candidates if path.is_file() and mark in path.read_text(encoding="utf-8")]


def remove_all(ctx: Context, names: Sequence[str]) -> None:
    remove_drop_ins(ctx, names)
    recovery = ctx.systemd.unit_dir / RECOVER_UNIT
    if recovery in installed(ctx):
        ctx.systemd.disable(RECOVER_UNIT)
        ctx.systemd.stop(RECOVER_UNIT)
        recovery.unlink()
        fsync_dir(recovery.parent)
        ctx.systemd.reload()
    _remove_unfinished(recovery)


def remove_drop_ins(ctx: Context, names: Sequence[str]) -> None:
    """Ours by their content; and for `names` also what one cut short left, which says nothing yet."""
    found = [path for path in installed(ctx) if path.name == _DROP_IN]
    for path in found:
        path.unlink()
    for path in sorted({*found, *(_drop_in(ctx, name) for name in names)}):
        _remove_unfinished(path)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()
            fsync_dir(path.parent.parent)
    if found:
        ctx.systemd.reload()


def _remove_unfinished(path: Path) -> None:
    aside = path.with_name(f".{path.name}.new")
    if aside.exists():
        aside.unlink()


def _drop_in(ctx: Context, unit: str) -> Path:
    return ctx.systemd.unit_dir / f"{unit}.d" / _DROP_IN


def _filled(text: str, layout: Layout) -> str:
    return text.format(program=layout.program, root=layout.root, recover=RECOVER_UNIT)


def _put(path: Path, text: str) -> bool:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(exist_ok=True, parents=True)
    write_atomic(path, text.encode())
    return True
