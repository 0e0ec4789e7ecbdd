"""The stack's audit gate: files that must have code for its GPUs, in the wheels and in what was installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudaup.app.audit import audit_host
from cudaup.app.collect import Observed
from cudaup.app.ports import Auditor, Links, WheelStore
from cudaup.domain.audit import Asked, Missed, report_of
from cudaup.domain.errors import AuditFailed
from cudaup.domain.facts import Facts
from cudaup.domain.inventory import Host
from cudaup.domain.stack import Stack


def missed_by_host(
    auditor: Auditor, store: WheelStore, stack: Stack, observed: Observed
) -> Mapping[str, tuple[Missed, ...]]:
    """For a plan, so of the wheels that were fetched already; what is in none of those may be in the others."""
    drivers = {name: str(facts.driver.loaded or "") for name, facts in observed.items() if isinstance(facts, Facts)}
    by_driver = {driver: missed_in(auditor, store, stack, driver) for driver in set(drivers.values())}
    return {name: by_driver[driver] for name, driver in drivers.items()}


def missed_in(auditor: Auditor, store: WheelStore, stack: Stack, driver: str = "") -> tuple[Missed, ...]:
    """Required files without code in the wheels that were fetched. Without a driver any PTX counts."""
    if not stack.audit.require:
        return ()
    paths = store.fetched(stack.wheels)
    asked = Asked(sm=stack.gpu_sm, driver=driver or None, is_quick=True, only=stack.audit.require)
    targets = [auditor.audit(str(path), asked) for path in paths.values()]
    missed = report_of(targets, stack.audit.require).missed
    has_all = len(paths) == len({wheel.sha256 for wheel in stack.wheels})
    return tuple(each for each in missed if has_all or each.path is not None)


def require_code(auditor: Auditor, links: Links, host: Host, generation: str, stack: Stack) -> None:
    """Of an installed generation, for the host's own driver. Raise AuditFailed, and as `audit_host`."""
    if stack.audit.require:
        found = audit_host(auditor, links, host, generation, Asked(sm=stack.gpu_sm))
        refuse(report_of([found], stack.audit.require).missed, stack)


def refuse(missed: Sequence[Missed], stack: Stack) -> None:
    """Raise AuditFailed with every file that is missed."""
    if missed:
        raise AuditFailed(
            "a required file has no code for these GPUs",
            wanted=f"code for sm_{stack.gpu_sm} (audit.require of {stack.name})",
            found="; ".join(each.told for each in missed),
            fix="see `cudaup audit`; choose a wheel that was built for these GPUs",
        )
