"""The unit files cudaup puts on a host: recovery at boot, and a drop-in for each service that runs from the path."""

from contextlib import suppress
from pathlib import Path
from typing import List, Sequence

from cudaup.host.files import fsync_dir, write_atomic
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
# There from the stop to the start of a switch, so that no job, dependency or person starts it in between.
AssertPathExists=!{held}

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
    if not _put(ctx.systemd.unit_dir / RECOVER_UNIT, _filled(_RECOVER_TEXT, ctx)):
        return False
    ctx.systemd.reload()
    ctx.systemd.enable(RECOVER_UNIT)
    return True


def hold(ctx: Context) -> None:
    """Nobody can start the services with a drop-in until `let_go`, or until the host is rebooted."""
    if ctx.systemd.is_running():
        _held(ctx).touch()


def let_go(ctx: Context) -> None:
    if _held(ctx).exists():
        _held(ctx).unlink()


def begin_recovery(ctx: Context) -> None:
    """Once for this boot: it stays active, so that the services' drop-ins pull in nothing until the next."""
    ctx.systemd.start(RECOVER_UNIT)


def install_drop_ins(ctx: Context, names: Sequence[str]) -> bool:
    changed = [_put(_drop_in(ctx, unit), _filled(_DROP_IN_TEXT, ctx)) for unit in names]
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
        ctx.systemd.reset_failed(RECOVER_UNIT)  # a failed unit stays known, file or not


def remove_drop_ins(ctx: Context, names: Sequence[str]) -> None:
    """Ours by their content; and for `names` also what one cut short left, which says nothing yet."""
    found = [path for path in installed(ctx) if path.name == _DROP_IN]
    for path in found:
        path.unlink()
    for path in sorted({*found, *(_drop_in(ctx, name) for name in names)}):
        with suppress(FileNotFoundError):
            path.with_name(f".{path.name}.new").unlink()
        _remove_if_empty(path.parent)
    if found:
        ctx.systemd.reload()


def has_drop_in(ctx: Context, unit: str) -> bool:
    return _drop_in(ctx, unit).is_file()


def sweep(ctx: Context, names: Sequence[str]) -> None:
    """What was cut short left: a hold on the services, a file's new version beside it, an empty folder."""
    let_go(ctx)
    folder = ctx.systemd.unit_dir
    for aside in [folder / f".{RECOVER_UNIT}.new", *folder.glob(f"*.d/.{_DROP_IN}.new")]:
        with suppress(FileNotFoundError):
            aside.unlink()
        _remove_if_empty(aside.parent)
    for unit in names:
        _remove_if_empty(_drop_in(ctx, unit).parent)


def _remove_if_empty(folder: Path) -> None:
    if folder.name.endswith(".d") and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        fsync_dir(folder.parent)


def _drop_in(ctx: Context, unit: str) -> Path:
    return ctx.systemd.unit_dir / f"{unit}.d" / _DROP_IN


def _held(ctx: Context) -> Path:
    return ctx.systemd.run_dir / f"cudaup{str(ctx.root).replace('/', '-')}.held"


def _filled(text: str, ctx: Context) -> str:
    return text.format(program=ctx.layout.program, root=ctx.root, recover=RECOVER_UNIT, held=_held(ctx))


def _put(path: Path, text: str) -> bool:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(exist_ok=True, parents=True)
    write_atomic(path, text.encode())
    return True
