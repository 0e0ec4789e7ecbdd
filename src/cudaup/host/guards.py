"""What a change asks of the host before it touches anything. Each raises Refused."""

from typing import NoReturn, Tuple

from cudaup.host import adoption, interpreter, manifest, services, transit
from cudaup.host.protocol import Context, Json, Refused


def require_settled(ctx: Context) -> None:
    pending = transit.read(ctx.layout)
    if pending is not None:
        text = f"the host is in transit from {pending.origin} to {pending.target} ({pending.phase})"
        raise Refused("in-transit", text, "confirm or roll back, or let the timer do it")


def require_verified(ctx: Context, generation_id: str) -> None:
    report = manifest.check(ctx.layout, generation_id, full=False)
    if not report["ok"]:
        _refuse(report)


def require_way_back(ctx: Context, generation_id: str) -> None:
    """As `require_verified`, but an upgraded interpreter is only told.

    Services start with it anyway, whoever starts them, and going back is proven by a smoke with it.
    """
    report = manifest.check(ctx.layout, generation_id, full=False)
    if any(each["problem"] not in interpreter.PROBLEMS for each in report["problems"]):
        _refuse(report)
    for each in report["problems"]:
        ctx.channel.event("verify", "note", f"{generation_id}: {each['path']}: {each['problem']}")


def _refuse(report: Json) -> NoReturn:
    first = "; ".join(f"{each['path']}: {each['problem']}" for each in report["problems"][:3])
    fix = "stage the generation again, or see `cudaup-host verify --full`"
    raise Refused("not-verified", f"generation {report['generation']} is not what was recorded: {first}", fix)


def require_vacant_but_for_services(ctx: Context, generation_id: str) -> Tuple[str, ...]:
    """The units to stop and to start: those that run from the path, and those known to have done so.

    A unit that is down belongs to the environment all the same: after a rollback it has to serve again. Refused `busy`
    while something else runs from the path: it would survive the stop.
    """
    running = services.running_from(ctx, services.places_of(ctx, generation_id))
    if running.foreign:
        text = f"used by processes that belong to no service: {services.described(running.foreign)}"
        raise Refused("busy", text, "end them, or let a systemd unit run them")
    known = adoption.read(ctx.layout)
    return tuple(sorted({*running.units, *(known.units if known else ())}))
