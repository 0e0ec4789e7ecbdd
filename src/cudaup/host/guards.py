"""What a change asks of the host before it touches anything. Each raises Refused."""

from typing import NoReturn

from cudaup.host import adoption, interpreter, manifest, transit
from cudaup.host.protocol import Context, Json, Refused


def require_settled(ctx: Context) -> None:
    pending = transit.read(ctx.layout)
    if pending is not None:
        text = f"the host is in transit from {pending.origin} to {pending.target} ({pending.phase})"
        raise Refused("in-transit", text, "confirm or roll back, or let the timer do it")


def require_in_place(ctx: Context) -> None:
    known, link = adoption.read(ctx.layout), adoption.link_text(ctx.layout)
    if known is not None and not known.is_in_place(ctx.layout):
        fix = f"move what is there away, then `ln -s {link} {known.path}`"
        raise Refused("unsafe", f"`{known.path}` does not lead to `{link}`", fix)


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
