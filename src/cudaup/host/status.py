"""What cudaup keeps on this host, in one object. Reads only."""

import io
from typing import Optional

from cudaup.host import adoption, generations, install, lease, locks, services, transit
from cudaup.host.journal import Journal
from cudaup.host.layout import Layout
from cudaup.host.protocol import Channel, Context, Json

_LAST_EVENTS = 10


def status(layout: Layout) -> Json:
    return of(Context(layout.root, Channel(), io.BytesIO()))


def of(ctx: Context) -> Json:
    """The verb `status`."""
    layout = ctx.layout
    records = {record["id"]: generations.summary(record) for record in generations.load_all(layout)}
    return {
        "root": str(layout.root),
        "current": records.get(generations.current_id(layout) or ""),
        "previous": records.get(generations.previous_id(layout) or ""),
        "generations": list(records.values()),
        "transit": _transit(ctx),
        "lease": lease.read(layout).as_json(ctx.clock),
        "adopted": adoption.public(layout),
        "services": services.status(ctx),
        "last_events": Journal(layout, ctx.clock).entries()[-_LAST_EVENTS:],
        "installed_sha256": install.installed_digest(layout),
    }


def _transit(ctx: Context) -> Optional[Json]:
    pending = transit.read(ctx.layout)
    if pending is None:
        return None
    is_timer_alive = locks.is_held(ctx.layout.timer_lock)
    return {
        **transit.as_json(pending),
        "remaining_s": round(pending.remaining_s(ctx.clock), 3),
        "abandoned": pending.is_abandoned(ctx.clock),
        "timer_alive": is_timer_alive,
    }
