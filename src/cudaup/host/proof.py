"""Smoke of a generation with its record: what counts as proven, and when an earlier record still holds."""

from typing import List, NamedTuple, Optional

from cudaup.host import generations, gpu, interpreter, smoke
from cudaup.host.protocol import Context, Failed, Json
from cudaup.host.systemd import ShouldStop, never

_RECORD_CASE = "record"
_REASON = 200  # characters; the whole reason is in the case


class Proof(NamedTuple):
    cases: List[Json]
    is_proven: bool

    def passes(self) -> List[str]:
        return [str(case["case"]) for case in self.cases if case["verdict"] == "pass"]

    def objections(self, suite: Json) -> List[str]:
        """The cases whose verdict `suite` does not accept, each with its reason in short."""
        accepted = suite.get("accept", {})
        bad = [case for case in self.cases if case["verdict"] not in accepted.get(case["case"], ["pass"])]
        return [f"{case['case']} is {case['verdict']} ({_short(case['reason'])})" for case in bad]

    def in_words(self) -> str:
        return ", ".join(f"{case['case']} {case['verdict']}" for case in self.cases)


def smoke_by_name(ctx: Context) -> Json:
    """The verb `smoke`: by the suite that was given, or the generation's own. Raises Failed `smoke` with the cases."""
    generation_id = generations.asked(ctx)
    suite = ctx.options["suite"] or suite_of(ctx, generation_id, {})
    smoke.require_usable(suite)
    done = run(ctx, generation_id, suite, never)
    answer = {"generation": generation_id, "cases": done.cases, "passed": done.is_proven}
    if not done.is_proven:
        raise Failed("smoke", "; ".join(done.objections(suite)), answer)
    return answer


def suite_of(ctx: Context, generation_id: str, fallback: Json) -> Json:
    """A generation is judged by its own suite: the one it was activated with.

    Without one it gets the other stack's, which it need not pass whole (see `again`); its files it can always prove.
    """
    own: Optional[Json] = generations.load(ctx.layout, generation_id).get("suite")
    if own:
        return own
    cases = [*fallback.get("cases", []), _RECORD_CASE]
    return {**fallback, "cases": list(dict.fromkeys(cases))}


def run(ctx: Context, generation_id: str, suite: Json, should_stop: ShouldStop) -> Proof:
    ctx.channel.event("smoke", "started", generation_id)
    cases = smoke.run_suite(ctx.layout, generation_id, suite, ctx.channel, should_stop)
    proof = Proof(cases, smoke.passed(cases, suite))
    ctx.channel.event("smoke", "done", f"{generation_id}: {proof.in_words()}")
    return proof


def baseline(ctx: Context, generation_id: str, suite: Json, should_stop: ShouldStop) -> Proof:
    """Of the generation that runs now. Not again when one with the same bytes, driver and boot exists."""
    record = generations.load(ctx.layout, generation_id).get("smoke") or {}
    if record.get("key") == _key(ctx, generation_id, suite):
        return Proof(record["cases"], record["passed"])
    proof = run(ctx, generation_id, suite, should_stop)
    remember(ctx, generation_id, suite, proof)
    return proof


def again(ctx: Context, generation_id: str, suite: Json, before: Optional[Proof], should_stop: ShouldStop) -> Proof:
    """After going back: its suite passes, or at least everything that passed before passes again."""
    now = run(ctx, generation_id, suite, should_stop)
    could = set(before.passes()) if before else set()
    return Proof(now.cases, now.is_proven or bool(could and could <= set(now.passes())))


def remembered(ctx: Context, generation_id: str) -> Optional[Proof]:
    record = generations.load(ctx.layout, generation_id).get("smoke")
    return Proof(record["cases"], record["passed"]) if record else None


def remember(ctx: Context, generation_id: str, suite: Json, proof: Proof) -> None:
    key = _key(ctx, generation_id, suite)
    record = {"key": key, "cases": proof.cases, "passed": proof.is_proven, "time": ctx.clock.wall()}
    generations.update(ctx.layout, generation_id, smoke=record)


def _short(reason: str) -> str:
    return reason if len(reason) <= _REASON else reason[:_REASON] + " ..."


def _key(ctx: Context, generation_id: str, suite: Json) -> Json:
    return {
        "digest": generations.load(ctx.layout, generation_id)["digest"],
        "interpreter": interpreter.digests(generations.tree(ctx.layout, generation_id)),
        "driver": gpu.loaded_driver()[0],
        "boot_id": ctx.clock.boot_id(),
        "suite": suite,
    }
