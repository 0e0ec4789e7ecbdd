"""One host through its switch and back. From `activate` on every path ends in a proof, or says that there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cudaup.app.ports import HostReply
from cudaup.app.reconcile import REVERT_GRACE_S, Seen, ask_until_settled
from cudaup.app.run import (
    SHORT_LIMIT_S,
    Member,
    Notes,
    Run,
    call,
    close_step,
    end,
    open_step,
    settle,
    step,
)
from cudaup.domain.errors import ConnectionFailed, CudaupError, HostFailed, HostProgramBroken, HostRefused
from cudaup.domain.facts import SmokeCase
from cudaup.domain.journal import Phase
from cudaup.domain.outcome import Outcome
from cudaup.domain.plan import Action
from cudaup.domain.stack import Stack, health_json, hooks_json, smoke_suite

# The controller waits a little longer than the host lets itself take, so that the host's own word comes first.
_CEILING_GRACE_S = 240.0
_GO_BACK_LIMIT_S = 900.0
_CONFIRM_AGAIN_S = 1.0

_OUTCOMES = {
    "reverted-proven": Outcome.ROLLED_BACK,
    "reverted-unproven": Outcome.ROLLBACK_UNPROVEN,
    "revert-failed": Outcome.ROLLBACK_FAILED,
    "rolled-back-proven": Outcome.ROLLED_BACK,
    "rolled-back-unproven": Outcome.ROLLBACK_UNPROVEN,
    "rollback-failed": Outcome.ROLLBACK_FAILED,
}


def switch(run: Run, stack: Stack, member: Member) -> None:
    """Raise nothing: the host is settled when this returns."""
    timers = stack.timers
    argv = ["activate", member.target or "", "--ttl", f"{timers.ttl_s:g}", "--ceiling", f"{timers.ceiling_s:g}"]
    argv += ["--suite", json.dumps(smoke_suite(stack)), "--health", json.dumps(health_json(stack))]
    argv += ["--hooks", json.dumps(hooks_json(stack))]
    limit_s = timers.ceiling_s + _CEILING_GRACE_S
    reply = _attempt(run, member, Action.ACTIVATE, argv, timeout_s=limit_s, ttl_s=timers.ttl_s)
    if reply is None:
        return
    smoke = _cases(reply.data, "smoke")
    if reply.failure:
        close_step(run, member, Action.ACTIVATE, Phase.FAILED, Notes(text=reply.failure, data=dict(reply.data)))
        end(run, member, _outcome(reply.data), reply.failure, smoke=smoke, to=reply.data.get("from"))
        return
    notes = Notes(text="proven, awaits its confirmation", data=dict(reply.data))
    close_step(run, member, Action.ACTIVATE, Phase.DONE, notes)
    _confirm(run, stack, member, smoke)


def go_back(run: Run, member: Member, to: str, *, ttl_s: float, why: str = "") -> None:
    """Put one host back to a generation that it has. Raise nothing: the host is settled when this returns."""
    argv = ["rollback", "--to", to]
    reply = _attempt(run, member, Action.ROLLBACK, argv, timeout_s=_GO_BACK_LIMIT_S, ttl_s=ttl_s)
    if reply is None:
        return
    text = reply.failure or "; ".join(reply.data.get("problems", ()))
    phase = Phase.FAILED if reply.failure else Phase.DONE
    close_step(run, member, Action.ROLLBACK, phase, Notes(text=text, data=dict(reply.data)))
    outcome = _outcome(reply.data)
    told = [why, f"on {to}, {'proven' if outcome is Outcome.ROLLED_BACK else 'not proven'}", text]
    end(run, member, outcome, "; ".join(filter(None, told)), smoke=_cases(reply.data, "after"), to=to)


def _attempt(
    run: Run, member: Member, action: Action, argv: list[str], *, timeout_s: float, ttl_s: float
) -> HostReply | None:
    """Call a verb that disrupts. None: it did not come to an answer, and the host is settled.

    A lost answer is no verdict: the host is asked. That it awaits its confirmation is then as good as the answer.
    """
    open_step(run, member, action)
    try:
        return call(run, member, argv, timeout_s=timeout_s, action=action)
    except HostFailed as error:
        if error.data.get("state") in _OUTCOMES:
            return HostReply(data=error.data, failure=error.what)
        # A disk that takes no record: what became of it is not in the answer, and its timer may go on trying.
        return _look_up(run, member, action, error, ttl_s=ttl_s, is_working=False)
    except HostRefused as error:
        close_step(run, member, action, Phase.REFUSED, Notes(text=error.told))
        end(run, member, Outcome.REFUSED, error.told)
        return None
    except HostProgramBroken as error:
        return _look_up(run, member, action, error, ttl_s=ttl_s, is_working=False)
    except CudaupError as error:
        return _look_up(run, member, action, error, ttl_s=ttl_s)


def _look_up(
    run: Run, member: Member, action: Action, error: CudaupError, *, ttl_s: float, is_working: bool = True
) -> HostReply | None:
    lost = error.what
    if not is_working:
        run.renewals.remove(member.host)  # nothing works there any more: its timer must not wait for us
    limit_s = ttl_s + REVERT_GRACE_S
    run.tell_failed(member.name, action, f"{error.told}; asking the host what became of it, for up to {limit_s:.0f} s")
    found = ask_until_settled(run, member, ttl_s=ttl_s)
    if found.seen is Seen.AWAITS_CONFIRM and action is Action.ACTIVATE:
        run.renewals.add(member.host, member.epoch or 0)
        return HostReply(data={"from": found.origin})
    if found.outcome is None:
        settle(run, member, Outcome.IN_TRANSIT, f"{lost}; its timer decides: see `cudaup status`")
    elif found.seen is Seen.NEVER_BEGAN:
        close_step(run, member, action, Phase.REFUSED, Notes(text=f"{lost}; it never began"))
        end(run, member, found.outcome, f"{lost}; nothing was begun")
    else:
        phase = Phase.DONE if action is Action.ROLLBACK else Phase.FAILED
        close_step(run, member, action, phase, Notes(text=f"{lost}; the host went back"))
        end(run, member, found.outcome, f"{lost}; the host went back")
    return None


def _confirm(run: Run, stack: Stack, member: Member, smoke: tuple[SmokeCase, ...]) -> None:
    """Over a new connection: that the way in still works is part of the proof."""
    run.links.link(member.host).close()
    try:
        with step(run, member, Action.CONFIRM) as notes:
            _confirm_within(run, member, stack)
            notes.text = f"{member.target} confirmed"
    except CudaupError as error:
        _not_confirmed(run, stack, member, error, smoke)
        return
    end(run, member, Outcome.APPLIED, f"{member.target} confirmed", smoke=smoke, to=member.target)


def _confirm_within(run: Run, member: Member, stack: Stack) -> None:
    """Saying it twice is harmless, so a lost connection is tried again for as long as the host waits."""
    undrain = stack.hooks.undrain
    limit_s = SHORT_LIMIT_S + (undrain.timeout_s if undrain else 0)
    deadline = run.clock.monotonic() + stack.timers.ttl_s
    while True:
        try:
            call(run, member, ["confirm"], timeout_s=limit_s)
        except ConnectionFailed:
            if run.clock.monotonic() >= deadline:
                raise
            run.clock.sleep(_CONFIRM_AGAIN_S)
        else:
            return


def _not_confirmed(run: Run, stack: Stack, member: Member, error: CudaupError, smoke: tuple[SmokeCase, ...]) -> None:
    """Not confirmed is not applied: the host goes back, by itself or told so, and we say what it came to."""
    why = f"not confirmed ({error.what})"
    found = ask_until_settled(run, member, ttl_s=stack.timers.ttl_s)
    if found.seen is Seen.WENT_BACK and found.outcome is not None:
        open_step(run, member, Action.ROLLBACK)
        close_step(run, member, Action.ROLLBACK, Phase.DONE, Notes(text="the host went back"))
        end(run, member, found.outcome, f"{why}; the host went back", smoke=smoke)
    elif found.seen is Seen.AWAITS_CONFIRM and found.origin is not None:
        # While we renew, its timer would wait for us; so it is told.
        go_back(run, member, found.origin, ttl_s=stack.timers.ttl_s, why=why)
    elif found.seen is Seen.AWAITS_CONFIRM:  # it has recorded the confirmation, and only its answer was lost
        open_step(run, member, Action.CONFIRM)
        close_step(run, member, Action.CONFIRM, Phase.DONE, Notes(text=f"{member.target} confirmed"))
        end(run, member, Outcome.APPLIED, f"{member.target} confirmed ({error.what})", smoke=smoke, to=member.target)
    else:
        settle(run, member, Outcome.IN_TRANSIT, f"{why}; its timer decides", smoke=smoke)


def _outcome(data: Mapping[str, Any]) -> Outcome:
    """Of a host's answer after it went back; a word we do not know proves nothing."""
    return _OUTCOMES.get(str(data.get("state")), Outcome.ROLLBACK_UNPROVEN)


def _cases(data: Mapping[str, Any], key: str) -> tuple[SmokeCase, ...]:
    return tuple(SmokeCase.model_validate(case) for case in data.get(key, ()))
