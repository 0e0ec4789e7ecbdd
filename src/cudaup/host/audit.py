"""Which GPU code a generation carries, as its files say it. Reads only, needs no GPU."""

from cudaup.audit.device import Device, UnknownDevice, parse_cuda, parse_sm
from cudaup.audit.target import audit_environment
from cudaup.host import generations
from cudaup.host.protocol import Context, Json, Refused


def audit(ctx: Context) -> Json:
    """The verb `audit`. Without `--cuda` every PTX counts as known to the driver."""
    try:
        cuda = parse_cuda(ctx.options["cuda"]) if ctx.options["cuda"] else None
        device = Device(parse_sm(ctx.options["sm"]), cuda)
    except UnknownDevice as error:
        raise Refused("usage", str(error)) from error
    generation_id = generations.asked(ctx)
    found = audit_environment(str(generations.tree(ctx.layout, generation_id)), device)
    return {"generation": generation_id, "audit": found.as_json()}
