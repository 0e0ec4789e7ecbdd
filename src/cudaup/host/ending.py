"""How a transit ends: in the journal first, under the epoch that began it, whoever ends it; then transit.json goes."""

from typing import Optional

from cudaup.host import lease
from cudaup.host.fence import Mutation
from cudaup.host.files import fsync_dir
from cudaup.host.journal import DONE, INTENT, Journal
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json
from cudaup.host.transit import Transit

CONFIRMED = "confirmed"
REFUSED = "refused"  # it did not drain; the other ends are the verdicts of a revert
ARM = "arm"  # the step that begins the next
_OP = "transit-end"


def end(ctx: Context, change: Mutation, pending: Transit, how: str) -> None:
    """The last step of whoever ends it. Under the lease lock: a renewal under way would write it back."""
    generation = pending.target if how == CONFIRMED else pending.origin
    with change.step(_OP, {"epoch": pending.epoch, "end": how, "generation": generation}), lease.guarded(ctx):
        ctx.layout.transit.unlink()
        fsync_dir(ctx.layout.root)


def last(layout: Layout) -> Optional[Json]:
    """How the last transit ended. A record without its outcome holds if that transit is gone: a crash came between."""
    entries = [entry for entry in Journal(layout).entries() if entry["op"] in {_OP, ARM}]
    done = {entry["seq"] for entry in entries if entry["phase"] == DONE}
    begun = [entry for entry in entries if entry["phase"] == INTENT]
    if begun and begun[-1]["op"] == _OP and begun[-1]["seq"] not in done and layout.transit.exists():
        begun.pop()
    ends = [entry for entry in begun if entry["op"] == _OP]
    return dict(ends[-1]["detail"]) if ends else None
