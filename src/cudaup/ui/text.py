"""Plans, reports and fleets as text for people; understandable without colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from cudaup.domain.facts import Facts, GenerationSummary, HostStatus, LeaseState, Unreachable
from cudaup.domain.plan import FleetPlan, HostPlan, HostVerdict, Plan
from cudaup.domain.report import HostReport, Report

_WORD = {
    HostVerdict.CHANGE: "will change",
    HostVerdict.UNCHANGED: "stays as it is",
    HostVerdict.BLOCKED: "BLOCKED",
    HostVerdict.UNREACHABLE: "UNREACHABLE",
}


def plan_text(plan: FleetPlan) -> str:
    """Hosts for which the same is planned are told once: on a fleet that is what can be reviewed."""
    goal = f"stack {plan.stack.name}" if isinstance(plan, Plan) else "an earlier generation"
    lines = [f"Plan {plan.id}: {len(plan.hosts)} hosts to {goal}", ""]
    told: dict[tuple[str, ...], list[str]] = {}
    for host in plan.hosts:
        told.setdefault(tuple(_host_lines(host)), []).append(host.host)
    for (head, *rest), names in told.items():
        lines += [f"{', '.join(names)}: {head}", *rest, ""]
    counts = Counter(host.verdict for host in plan.hosts)
    lines.append("; ".join(f"{count} {_WORD[verdict]}" for verdict, count in counts.items()))
    if len(plan.waves) > 1:
        lines.append("Waves: " + " | ".join(", ".join(wave) for wave in plan.waves))
    return "\n".join(lines)


def _host_lines(host: HostPlan) -> Iterator[str]:
    yield f"{_WORD[host.verdict]}{_simulated(host.simulated)}"
    if host.error:
        yield from (f"    {line}" for line in host.error.splitlines())
    if host.verdict is HostVerdict.CHANGE:
        yield f"    from {host.from_generation or 'what is there'} to {host.to_name} ({host.to_digest[:6]})"
    for number, step in enumerate(host.steps, 1):
        yield f"    {number}. {step.action}: {step.reason}"
        yield from (f"         {part}" for part in step.parts)
        if step.undo:
            yield f"         undo: {step.undo}"
    for finding in host.findings:
        yield f"    {finding.severity.upper()} {finding.rule}: {finding.evidence}{_simulated_word(finding.simulated)}"
        if finding.fix:
            yield f"         fix: {finding.fix}"
    yield from (f"    left alone: {sentence}" for sentence in host.left_alone)


def _simulated(words: tuple[str, ...]) -> str:
    return f"  [simulated: {', '.join(words)}]" if words else ""


def _simulated_word(is_simulated: bool) -> str:  # noqa: FBT001 - one flag, named by its only caller
    return "  [simulated]" if is_simulated else ""


def report_text(report: Report) -> str:
    """As for plans, hosts that ended alike are told once."""
    told: dict[tuple[str, ...], list[str]] = {}
    for host in report.hosts:
        told.setdefault(tuple(_outcome_lines(host)), []).append(host.host)
    lines = [f"Run {report.run}", ""]
    for (head, *rest), names in told.items():
        lines += [f"{', '.join(names)}: {head}", *rest]
    counted = "; ".join(f"{count} {outcome}" for outcome, count in report.counts.items())
    interrupted = " (interrupted)" if report.is_interrupted else ""
    warning = ["", f"WARNING, a bug of cudaup: {report.warning}"] if report.warning else []
    return "\n".join([*lines, *warning, "", f"{counted}{interrupted}; exit code {report.exit_code}"])


def _outcome_lines(host: HostReport) -> Iterator[str]:
    first, *more = host.reason.splitlines() or [""]
    yield f"{host.outcome}: {first}{_simulated(host.simulated)}"
    yield from (f"    {line}" for line in more)
    for case in host.smoke:
        mark = "  [simulated]" if case.simulated else ""
        reason = f": {case.reason.splitlines()[0]}" if case.reason else ""
        yield f"    smoke {case.case:<10} {case.verdict}{reason}{mark}"


def fleet_text(observed: Mapping[str, Facts | Unreachable]) -> str:
    rows: list[tuple[str, ...]] = [("HOST", "GENERATION", "STACK", "STATE", "PREVIOUS", "LEASE", "DRIVER", "GPUS")]
    rows += [_row(name, facts) for name, facts in observed.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lost = [f"{name}: {facts.reason}" for name, facts in observed.items() if isinstance(facts, Unreachable)]
    return "\n".join([*lines, *lost])


def _row(name: str, facts: Facts | Unreachable) -> tuple[str, ...]:
    if isinstance(facts, Unreachable):
        return (name, "?", "", "unreachable", "", "", "", "")
    status = facts.cudaup
    mark = " (simulated)" if facts.simulated else ""
    gpus = f"{len(facts.gpus)}x {facts.gpus[0].compute_cap}{mark}" if facts.gpus else "none"
    driver = f"{facts.driver.loaded or 'none'}{mark}"
    if status is None:
        return (name, "-", "-", "; ".join(_down(facts)) or "untouched", "-", "free", driver, gpus)
    here, previous = status.current, status.previous
    names = (here.id, here.name) if here else ("-", "-")
    return (name, *names, _state(facts, status), previous.id if previous else "-", _lease(status), driver, gpus)


def _state(facts: Facts, status: HostStatus) -> str:
    """Everything that is wrong; the proof only where nothing is."""
    damaged = [f"DAMAGED: {'; '.join(status.damage)}"] if status.damage else []
    wrong = [*_unsettled(status), *damaged, *_down(facts)]
    if wrong:
        return "; ".join(wrong)
    went_back = ", went back" if status.last_end is not None and status.last_end.end != "confirmed" else ""
    return _proof(status.current) + went_back if status.current else "untouched"


def _unsettled(status: HostStatus) -> Iterator[str]:
    transit = status.transit
    if transit is not None:
        going = transit.phase == "reverting"
        where = f"going back to {transit.from_}" if going else f"in transit to {transit.to}"
        alone = "" if transit.timer_alive else ", NO TIMER: `cudaup rollback` puts it back"
        yield f"{where} ({transit.phase}{', OVERDUE' if transit.abandoned else ''}){alone}"
    if status.lease.state is LeaseState.QUARANTINED:
        yield f"QUARANTINED: {status.lease.reason}"


def _down(facts: Facts) -> Iterator[str]:
    if facts.services_down:
        yield "SERVICE DOWN: " + ", ".join(f"{service.unit} {service.active}" for service in facts.services_down)


def _proof(current: GenerationSummary) -> str:
    if current.proven is not None:
        return "proven"
    return "confirmed" if current.confirmed else "unproven"


def _lease(status: HostStatus) -> str:
    lease = status.lease
    if lease.is_held:
        return f"held by {lease.holder} ({lease.remaining_s or 0:.0f} s)"
    return "free" if lease.state is LeaseState.HELD else str(lease.state)
