"""Put a fleet back, in the middle of an incident: calls of the host program only, no index, no Ansible (P2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudaup.app.fleet import on_each
from cudaup.app.reconcile import Seen, ask_until_settled
from cudaup.app.renewals import Renewals
from cudaup.app.run import (
    Member,
    Notes,
    Run,
    call,
    close_step,
    end,
    open_step,
    refuse_on_error,
    settle,
    settle_if_nothing_to_do,
    step,
    still_going,
    take_lease,
)
from cudaup.app.switch import ROLLBACK_LIMIT_S, outcome_of, verify
from cudaup.domain.errors import ConnectionFailed, HostProgramBroken, HostRefused
from cudaup.domain.facts import SmokeCase
from cudaup.domain.inventory import Host
from cudaup.domain.journal import Phase, RunEnded, run_started
from cudaup.domain.outcome import Outcome
from cudaup.domain.plan import Action, RollbackPlan

LEASE_TTL_S = 60.0


def roll_back(run: Run, plan: RollbackPlan, hosts: Mapping[str, Host]) -> None:
    """All hosts at once. Ctrl-C does not stop it: a host on its way back is settled soonest by going on."""
    run.record(run_started(plan, run=run.id, time=run.clock.now()))
    members = {each.host: Member(host=hosts[each.host], plan=each, target=each.to_name or None) for each in plan.hosts}
    for member in members.values():
        settle_if_nothing_to_do(run, member)
    going: Sequence[Member] = still_going(list(members.values()))
    with Renewals(run.links, period_s=LEASE_TTL_S / 3, timeout_s=LEASE_TTL_S / 3) as renewals:

        def one(host: Host) -> None:
            member = members[host.name]
            refuse_on_error(run, member, lambda member: _begin(run, member, renewals))
            if member.settled is None:
                _go_back(run, member)
            renewals.remove(host)

        on_each([member.host for member in going], one)
    run.record(RunEnded(time=run.clock.now()))


def _begin(run: Run, member: Member, renewals: Renewals) -> None:
    take_lease(run, member, reason=f"rollback to {member.target}", ttl_s=LEASE_TTL_S, take_over=True)
    renewals.add(member.host, member.epoch or 0)
    with step(run, member, Action.VERIFY) as notes:
        verify(run, member, member.target)
        notes.text = f"{member.target} is whole"


def _go_back(run: Run, member: Member) -> None:
    open_step(run, member, Action.ROLLBACK)
    try:
        kind, data, text = call(
            run,
            member,
            ["rollback", "--to", member.target or ""],
            timeout_s=ROLLBACK_LIMIT_S,
            action=Action.ROLLBACK,
        )
    except HostRefused as error:
        close_step(run, member, Action.ROLLBACK, Phase.REFUSED, Notes(text=error.told))
        end(run, member, Outcome.REFUSED, error.told)
        return
    except (ConnectionFailed, HostProgramBroken) as error:
        run.tell_failed(member.name, Action.ROLLBACK, f"{error.told}; asking the host what became of it")
        _after_disconnect(run, member, error.what)
        return
    after = tuple(SmokeCase.model_validate(case) for case in data.get("after", ()))
    outcome = outcome_of(data)
    phase = Phase.DONE if kind == "result" else Phase.FAILED
    close_step(run, member, Action.ROLLBACK, phase, Notes(text=text or "; ".join(data.get("problems", ())), data=data))
    reason = text or f"on {member.target}, {'proven' if outcome is Outcome.ROLLED_BACK else 'not proven'}"
    end(run, member, outcome, reason, smoke=after, to=member.target)


def _after_disconnect(run: Run, member: Member, lost: str) -> None:
    """The host goes on without us; it reverts to the same generation if it is cut short."""
    seen = ask_until_settled(run, member, ttl_s=LEASE_TTL_S)
    if seen in {Seen.PUT_BACK, Seen.UNPROVEN}:
        close_step(run, member, Action.ROLLBACK, Phase.DONE, Notes(text=f"{lost}; it went on without us"))
        end(run, member, seen.outcome, f"{lost}; on {member.target}", to=member.target)
    elif seen is Seen.NEVER_BEGAN:
        close_step(run, member, Action.ROLLBACK, Phase.REFUSED, Notes(text=f"{lost}; it never began"))
        end(run, member, seen.outcome, f"{lost}; nothing was begun")
    else:
        settle(run, member, Outcome.IN_TRANSIT, f"{lost}; its timer decides: see `cudaup status`")
