"""Put a fleet back, in the middle of an incident: calls of the host program only, no index, no play (P2)."""

from __future__ import annotations

from collections.abc import Mapping

from cudaup.app.fleet import on_each
from cudaup.app.run import Member, Run, refuse_on_error, settle_if_nothing_to_do, still_going, take_lease
from cudaup.app.switch import go_back
from cudaup.domain.inventory import Host
from cudaup.domain.journal import RunEnded, run_started
from cudaup.domain.plan import RollbackPlan

LEASE_TTL_S = 60.0


def roll_back(run: Run, plan: RollbackPlan, hosts: Mapping[str, Host]) -> None:
    """All hosts at once. Ctrl-C does not stop it: a host on its way back is settled soonest by going on."""
    run.record(run_started(plan, run=run.id, time=run.clock.now()))
    members = [Member(host=hosts[each.host], plan=each) for each in plan.hosts]
    for member in members:
        settle_if_nothing_to_do(run, member)
    on_each(still_going(members), lambda member: _one(run, member))
    run.record(RunEnded(time=run.clock.now()))


def _one(run: Run, member: Member) -> None:
    to = member.plan.to_name
    refuse_on_error(
        run,
        member,
        lambda member: take_lease(run, member, reason=f"rollback to {to}", ttl_s=LEASE_TTL_S, take_over=True),
    )
    if member.settled is None:
        go_back(run, member, to, ttl_s=LEASE_TTL_S)
