"""What is kept of a generation that was left, in `failed/`: enough to see why when the generation itself is gone."""

from contextlib import suppress

from cudaup.host import generations
from cudaup.host.files import write_json
from cudaup.host.journal import INTENT, Journal
from cudaup.host.protocol import Context, Json
from cudaup.host.transit import Transit

_WINDOWS_S = (900, 7 * 86400)  # what a service said last, also one that has been down for days


def keep(ctx: Context, pending: Transit, outcome: Json) -> None:
    """Best effort: what cannot be written must not stop the way back. On a full disk there is room for the outcome."""
    layout = ctx.layout
    layout.failed.mkdir(exist_ok=True)
    small = {"generation": pending.target, "time": ctx.clock.wall(), **outcome}
    record = generations.find(layout, pending.target)  # none of one that was damaged
    for content in ({**small, "record": record, "log": _log(ctx, pending)}, small):
        with suppress(OSError):
            write_json(layout.failed / f"{pending.target}.json", content, reserve=layout.ballast)
            return


def _log(ctx: Context, pending: Transit) -> str:
    """Of its services, from before going back began."""
    until = _last_time(ctx, "revert")
    if not pending.units or not ctx.systemd.is_running():
        return ""
    logs = (ctx.systemd.log(pending.units, until - window, until) for window in _WINDOWS_S)
    return next((log for log in logs if log), "")


def _last_time(ctx: Context, op: str) -> float:
    times = [e["time"] for e in Journal(ctx.layout).entries() if (e["op"], e["phase"]) == (op, INTENT)]
    return float(times[-1]) if times else ctx.clock.wall()
