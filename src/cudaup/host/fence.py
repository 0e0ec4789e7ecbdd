"""Every change of the host passes here: one at a time, by the lease's holder, journalled before its effect."""

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Iterator, Optional

from cudaup.host import ballast, lease
from cudaup.host.journal import Journal
from cudaup.host.locks import held
from cudaup.host.mounts import prepare_root
from cudaup.host.protocol import Context, CutShort, Json

_WAIT_S = 10
_BY_HAND_TTL_S = 4 * 3600  # longer than anything a person waits for; a dead process's is void at once


@dataclass(frozen=True)
class Mutation:
    """A change under way: the epoch it runs under and the journal its steps go to."""

    seq: int
    epoch: int
    journal: Journal

    @contextmanager
    def step(self, op: str, detail: Json) -> Iterator[None]:
        """One effect inside the change, with its own intent and outcome."""
        seq = self.journal.intent(op, self.epoch, detail)
        with _outcome(self.journal, seq):
            yield


@contextmanager
def mutation(
    ctx: Context, op: str, detail: Json, *, own_right: bool = False, wait_s: float = _WAIT_S
) -> Iterator[Mutation]:
    """Hold the host for one change.

    Refused `busy`, `stale-epoch`, `lease-held`, `quarantined` or `unsafe`; raises CutShort for an OSError within.
    `own_right` is for putting the host back: the timer, recovery after a boot and a rollback by hand in transit need
    nobody's lease, and a mode that somebody changed meanwhile does not keep them from it.
    """
    if not own_right:
        prepare_root(ctx.layout)
    with held(ctx.layout.lock, op, ctx.clock, wait_s), _authority(ctx, op, own_right=own_right) as epoch:
        ballast.lay_where_there_is_room(ctx.layout)
        journal = Journal(ctx.layout, ctx.clock)
        journal.shorten()
        seq = journal.intent(op, epoch, detail)
        with _outcome(journal, seq):
            try:
                yield Mutation(seq, epoch, journal)
            except OSError as error:
                raise CutShort(error.errno, error.strerror, error.filename) from error


@contextmanager
def _outcome(journal: Journal, seq: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        with suppress(OSError):  # on a disk gone bad the error itself is the news; recovery closes the intent
            journal.failed(seq, {"error": f"{type(error).__name__}: {error}"})
        raise
    if journal.is_there():  # `forget` takes it away with everything else
        with suppress(OSError):  # what is done is done, and the answer says so; recovery closes the intent
            journal.done(seq)


@contextmanager
def _authority(ctx: Context, op: str, *, own_right: bool) -> Iterator[int]:
    """The epoch this change runs under."""
    if own_right:
        yield lease.read(ctx.layout).epoch
    elif ctx.epoch is not None:
        with lease.guarded(ctx) as now:
            lease.require_epoch(now, ctx)
        yield ctx.epoch
    else:
        yield from _by_hand(ctx, op)


def _by_hand(ctx: Context, op: str) -> Iterator[int]:
    mine = _claim_by_hand(ctx, op)
    try:
        yield mine
    finally:
        with suppress(OSError):  # as above; a by-hand lease of a process that is gone binds nobody
            _give_back(ctx, mine)


def _claim_by_hand(ctx: Context, op: str) -> int:
    """A by-hand lease lives only under the lock, which is ours now: one that is still there is a dead process's."""
    claim = lease.Claim(f"uid {os.getuid()}, pid {os.getpid()}", lease.BY_HAND_RUN, f"`{op}` by hand", _BY_HAND_TTL_S)
    with lease.guarded(ctx) as now:
        after = lease.granted(now, claim, ctx.clock, in_transit=ctx.layout.transit.exists())
        lease.store(ctx, "lease-take", after)
    return after.epoch


def _give_back(ctx: Context, epoch: Optional[int]) -> None:
    """Not when it was quarantined meanwhile, or forgotten with everything else."""
    if not ctx.layout.root.is_dir():
        return
    with lease.guarded(ctx) as now:
        if now.state == lease.HELD and now.epoch == epoch:
            lease.store(ctx, "lease-release", lease.freed(now))
