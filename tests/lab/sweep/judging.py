"""Whether an experiment ended as promised: where the host is, whether that is proven, whether the words were true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.lab.sweep.station import Snapshot


@dataclass(frozen=True, kw_only=True)
class Story:
    """`goal_is_confirmed` is false of a rollback: its goal is proven instead. `words` are empty of who was killed."""

    before: Snapshot
    after: Snapshot
    target: str
    is_rollback: bool
    words: str
    was_in_transit_when_said: bool
    was_booted: bool


def state_of(story: Story) -> str:
    """`old-proven`, `new-confirmed`, `quarantined`, or what is none of them."""
    after, before = story.after, story.before
    if not after.is_settled:
        return "unsettled"
    if after.is_quarantined:
        return "quarantined"
    has_ended = after.end != before.end
    end = after.end["end"] if has_ended and after.end else "none"
    if after.variant == story.target and end == ("proven" if story.is_rollback else "confirmed"):
        return "new-confirmed"
    if after.variant == before.variant and end in ({"none"} if story.is_rollback else {"none", "proven"}):
        return "old-proven"
    return f"on `{after.variant}`, last end {end}"


def judge(story: Story) -> Iterator[str]:
    """What is wrong, in words."""
    state = state_of(story)
    if state not in {"old-proven", "new-confirmed", "quarantined"}:
        yield f"it did not settle in a promised state: {state}"
    if story.after.service != story.after.variant:
        yield f"the service runs variant `{story.after.service}` on a host on `{story.after.variant}`"
    if not _is_true(story, state):
        yield f"said `{story.words}` of a host that is {state}"


def _is_true(story: Story, state: str) -> bool:
    words = story.words
    ends_anew = story.after.end is not None and story.after.end != story.before.end  # a forgotten host has none
    is_same_process = story.after.pid == story.before.pid or story.was_booted
    is_untouched = not ends_anew and is_same_process
    truths = {
        "": True,
        "cut-short": True,  # by hand: it says that it could not finish, and claims nothing
        "applied": state == "new-confirmed",
        "rolled-back": ends_anew and state == ("new-confirmed" if story.is_rollback else "old-proven"),
        "in-transit": story.was_in_transit_when_said,
        **dict.fromkeys(("refused", "unreachable"), is_untouched and story.after.variant == story.before.variant),
        **dict.fromkeys(("rollback-unproven", "rollback-failed", "quarantined"), state == "quarantined"),
        "done": is_untouched,  # by hand, of what does not touch the stack
    }
    return truths.get(words, False)
