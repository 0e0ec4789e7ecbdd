"""What cudaup keeps on this host, in one object. Reads only."""

from typing import List, Optional

from cudaup.host import adoption, damage, ending, generations, install, lease, locks, services, transit
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json


def of(ctx: Context, found: Optional[List[Json]] = None) -> Json:
    """The verb `status`; `found` are the services, where they were looked for already."""
    layout = ctx.layout
    # In this order: what is not in transit, and not busy after that, has ended, and the journal says how.
    under_way = {"transit": _transit(ctx), "busy": _busy(layout), "last_end": ending.last(layout)}
    records = {record["id"]: generations.summary(record) for record in generations.load_all(layout)}
    return {
        "root": str(layout.root),
        "current": records.get(generations.current_id(layout) or ""),
        "previous": records.get(generations.previous_id(layout) or ""),
        "generations": list(records.values()),
        **under_way,
        "lease": lease.in_force(ctx).as_json(ctx.clock),
        "damage": [] if under_way["transit"] or under_way["busy"] else damage.of(ctx),
        "adopted": adoption.public(layout),
        "services": services.status(ctx) if found is None else found,
        "installed_sha256": install.installed_digest(layout),
    }


def _busy(layout: Layout) -> Optional[str]:
    """The change whose lock another process holds right now."""
    return str(locks.holder(layout.lock).get("op", "unknown")) if locks.is_held(layout.lock) else None


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
