"""One host from verify to confirm. From `activate` on every path ends in a proof, or says that there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cudaup.app.reconcile import Seen, ask_until_settled
from cudaup.app.run import Member, Notes, Run, call, close_step, end, open_step, settle, step
from cudaup.domain.errors import ConnectionFailed, CudaupError, HostProgramBroken, HostRefused
from cudaup.domain.facts import SmokeCase
from cudaup.domain.journal import Phase
from cudaup.domain.outcome import Outcome
from cudaup.domain.plan import Action
from cudaup.domain.stack import Stack, health_json, smoke_suite

VERIFY_LIMIT_S = 600.0
# The controller waits a little longer than the host lets itself take, so that the host's own word comes first.
_CEILING_GRACE_S = 240.0
CONFIRM_TRIES_S = 1.0

ROLLBACK_LIMIT_S = 900.0

_OUTCOMES = {
    "reverted-proven": Outcome.ROLLED_BACK,
    "reverted-unproven": Outcome.ROLLBACK_UNPROVEN,
    "revert-failed": Outcome.ROLLBACK_FAILED,
    "rolled-back-proven": Outcome.ROLLED_BACK,
    "rolled-back-unproven": Outcome.ROLLBACK_UNPROVEN,
    "rollback-failed": Outcome.ROLLBACK_FAILED,
}


def verify_both(run: Run, member: Member) -> None:
    """P3: the way back is whole before anything stops. The host checks again when it activates."""
    with step(run, member, Action.VERIFY) as notes:
        verify(run, member, None)
        verify(run, member, member.target)
        notes.text = "both generations are whole"


def verify(run: Run, member: Member, generation: str | None) -> None:
    """Raise HostRefused when a generation (None: the current one) is not as it was built."""
    argv = ["verify", *([generation] if generation else [])]
    data = run.links.link(member.host).call(argv, timeout_s=VERIFY_LIMIT_S).data
    if not data["ok"]:
        first = "; ".join(f"{each['path']}: {each['problem']}" for each in data["problems"][:3])
        raise HostRefused(
            f"{data['generation']} is not as it was built: {first}",
            code="not-verified",
            fix="`cudaup-host verify --full` on the host lists everything",
        )


def switch(run: Run, stack: Stack, member: Member) -> None:
    """Raise nothing: the host is settled when this returns."""
    timers = stack.timers
    argv = ["activate", member.target or "", "--ttl", f"{timers.ttl_s:g}", "--ceiling", f"{timers.ceiling_s:g}"]
    argv += ["--suite", json.dumps(smoke_suite(stack)), "--health", json.dumps(health_json(stack))]
    open_step(run, member, Action.ACTIVATE)
    try:
        kind, data, text = call(
            run, member, argv, timeout_s=timers.ceiling_s + _CEILING_GRACE_S, action=Action.ACTIVATE
        )
    except HostRefused as error:
        close_step(run, member, Action.ACTIVATE, Phase.REFUSED, Notes(text=error.told))
        end(run, member, Outcome.REFUSED, error.told)
        return
    except (ConnectionFailed, HostProgramBroken) as error:
        run.tell_failed(member.name, Action.ACTIVATE, f"{error.told}; asking the host what became of it")
        _take_up_again(run, stack, member, error.what)
        return
    smoke = tuple(SmokeCase.model_validate(case) for case in data.get("smoke", ()))
    member.origin = data.get("from")
    if kind == "failed":
        close_step(run, member, Action.ACTIVATE, Phase.FAILED, Notes(text=text, data=data))
        end(run, member, outcome_of(data), text, smoke=smoke, to=member.plan.from_generation)
        return
    close_step(run, member, Action.ACTIVATE, Phase.DONE, Notes(text="proven, awaits its confirmation", data=data))
    _confirm(run, stack, member, smoke)


def _take_up_again(run: Run, stack: Stack, member: Member, lost: str) -> None:
    seen = ask_until_settled(run, member, ttl_s=stack.timers.ttl_s)
    if seen is Seen.AWAITS_CONFIRM:
        close_step(run, member, Action.ACTIVATE, Phase.DONE, Notes(text=f"{lost}; it went on without us"))
        _confirm(run, stack, member, ())
    elif seen is Seen.NEVER_BEGAN:
        close_step(run, member, Action.ACTIVATE, Phase.REFUSED, Notes(text=f"{lost}; it never began"))
        end(run, member, seen.outcome, f"{lost}; nothing was begun")
    elif seen in {Seen.PUT_BACK, Seen.UNPROVEN}:
        close_step(run, member, Action.ACTIVATE, Phase.FAILED, Notes(text=f"{lost}; the host put itself back"))
        end(run, member, seen.outcome, f"{lost}; the host put itself back")
    else:
        settle(run, member, seen.outcome, f"{lost}; its timer decides: see `cudaup status`")


def _confirm(run: Run, stack: Stack, member: Member, smoke: tuple[SmokeCase, ...]) -> None:
    """Over a new connection: that the way in still works is part of the proof."""
    run.links.link(member.host).close()
    try:
        with step(run, member, Action.CONFIRM) as notes:
            _confirm_within(run, member, stack.timers.ttl_s)
            notes.text = f"{member.target} confirmed"
    except CudaupError as error:
        _after_failed_confirm(run, stack, member, error, smoke)
        return
    end(run, member, Outcome.APPLIED, f"{member.target} confirmed", smoke=smoke, to=member.target)


def _confirm_within(run: Run, member: Member, ttl_s: float) -> None:
    """Saying it twice is harmless, so a lost connection is tried again for as long as the host waits."""
    deadline = run.clock.monotonic() + ttl_s
    while True:
        try:
            call(run, member, ["confirm"])
        except ConnectionFailed:
            if run.clock.monotonic() >= deadline:
                raise
            run.clock.sleep(CONFIRM_TRIES_S)
        else:
            return


def _after_failed_confirm(
    run: Run, stack: Stack, member: Member, error: CudaupError, smoke: tuple[SmokeCase, ...]
) -> None:
    """Not confirmed is not applied: the host goes back, by itself or told so, and we say what it came to."""
    why = f"not confirmed ({error.what})"
    seen = ask_until_settled(run, member, ttl_s=stack.timers.ttl_s)
    if seen in {Seen.PUT_BACK, Seen.UNPROVEN}:
        open_step(run, member, Action.ROLLBACK)
        close_step(run, member, Action.ROLLBACK, Phase.DONE, Notes(text="the host put itself back"))
        end(run, member, seen.outcome, f"{why}; the host put itself back", smoke=smoke)
    elif seen is Seen.AWAITS_CONFIRM and isinstance(error, HostRefused):
        _put_back(run, member, why, smoke)
    else:
        settle(run, member, Outcome.IN_TRANSIT, f"{why}; its timer decides", smoke=smoke)


def _put_back(run: Run, member: Member, why: str, smoke: tuple[SmokeCase, ...]) -> None:
    """While we renew, its timer would wait for us; so it is told."""
    open_step(run, member, Action.ROLLBACK)
    argv = ["rollback", *(["--to", member.origin] if member.origin else [])]
    try:
        _, data, text = call(run, member, argv, timeout_s=ROLLBACK_LIMIT_S, action=Action.ROLLBACK)
    except CudaupError as error:
        run.tell_failed(member.name, Action.ROLLBACK, error.told)
        settle(run, member, Outcome.IN_TRANSIT, f"{why}; its timer decides ({error.what})", smoke=smoke)
        return
    close_step(run, member, Action.ROLLBACK, Phase.DONE, Notes(text=text, data=data))
    end(run, member, outcome_of(data), f"{why}; put back", smoke=smoke, to=member.origin)


def outcome_of(data: Mapping[str, Any]) -> Outcome:
    """Of a host's answer after it went back; a word we do not know proves nothing."""
    return _OUTCOMES.get(str(data.get("state")), Outcome.ROLLBACK_UNPROVEN)
