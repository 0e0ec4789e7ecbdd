"""The verbs that only hand their options to one function."""

from cudaup.host import facts as fact_finder
from cudaup.host import generations, lease, manifest, proof
from cudaup.host.lease import Claim
from cudaup.host.protocol import Context, Json, Refused
from cudaup.host.systemd import never


def facts(ctx: Context) -> Json:
    return fact_finder.collect(ctx.layout, ctx.options["env"], ctx.options["disk"])


def lease_show(ctx: Context) -> Json:
    return {"lease": lease.read(ctx.layout).as_json(ctx.clock)}


def lease_take(ctx: Context) -> Json:
    names = ("holder", "run", "reason", "take_over")
    return lease.take(ctx, Claim(ttl_s=ctx.options["ttl"], **{name: ctx.options[name] for name in names}))


def lease_renew(ctx: Context) -> Json:
    return lease.renew(ctx, ctx.options["ttl"])


def lease_quarantine(ctx: Context) -> Json:
    return lease.quarantine(ctx, ctx.options["reason"])


def verify(ctx: Context) -> Json:
    return manifest.verify(ctx.layout, _generation(ctx), full=ctx.options["full"])


def smoke_suite(ctx: Context) -> Json:
    generation_id = _generation(ctx)
    result = proof.run(ctx, generation_id, ctx.options["suite"], never)
    return {"generation": generation_id, "cases": result.cases, "passed": result.is_proven}


def _generation(ctx: Context) -> str:
    """The named one, or the current."""
    wanted = ctx.options["generation"] or generations.current_id(ctx.layout)
    if wanted is None:
        raise Refused("not-found", "there is no current generation", "name one")
    return str(generations.load(ctx.layout, wanted)["id"])
