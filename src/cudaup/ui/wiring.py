"""Puts real adapters behind the ports. The only module that knows all layers."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import gmtime, strftime

from cudaup.adapters import hostprogram, lock_file
from cudaup.adapters.auditor import BinaryAuditor
from cudaup.adapters.clock import SystemClock
from cudaup.adapters.connections import Connections
from cudaup.adapters.inventory import AnsibleInventories
from cudaup.adapters.journal_store import RunStore, state_directory
from cudaup.adapters.resolver import UvResolver
from cudaup.adapters.runner import AnsiblePlays
from cudaup.adapters.stack_file import load_stack, load_unlocked
from cudaup.adapters.trial import UvTrialRoom
from cudaup.adapters.wheels import PipWheelStore, cache_directory
from cudaup.app.apply import Preparing, apply_plan
from cudaup.app.audit import audit_hosts, audit_targets
from cudaup.app.collect import Observed, collect, require_distinct
from cudaup.app.gate import missed_by_host
from cudaup.app.lock import Locked, Locking, lock_stack
from cudaup.app.renewals import Renewals
from cudaup.app.rollback import LEASE_TTL_S, roll_back
from cudaup.app.run import Run
from cudaup.domain.audit import Asked, AuditReport
from cudaup.domain.errors import UsageError
from cudaup.domain.events import Event, Kind
from cudaup.domain.facts import Facts, Unreachable
from cudaup.domain.inventory import Host
from cudaup.domain.locking import Lock, Platform, platform_of
from cudaup.domain.plan import Plan, RollbackPlan
from cudaup.domain.plan_file import dump_plan, load_plan
from cudaup.domain.planner import build_plan
from cudaup.domain.rollback import inverse_plan
from cudaup.domain.stack import Stack


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The hosts of one command and the connections to them."""

    sources: tuple[str, ...]
    limit: str | None
    hosts: tuple[Host, ...]
    connections: Connections

    @property
    def by_name(self) -> dict[str, Host]:
        return {host.name: host for host in self.hosts}


@contextmanager
def fleet(sources: Sequence[str], limit: str | None) -> Iterator[Fleet]:
    """Raise UsageError for an inventory that Ansible cannot read or that names no host."""
    absolute = tuple(str(Path(source).resolve()) if Path(source).exists() else source for source in sources)
    hosts = AnsibleInventories().read(absolute, limit)
    connections = Connections()
    try:
        yield Fleet(sources=absolute, limit=limit, hosts=hosts, connections=connections)
    finally:
        connections.close()


def stack(path: Path) -> Stack:
    """Raise UsageError with everything that is wrong in the file."""
    return load_stack(path)


def observe(on: Fleet, env_path: str | None = None) -> Observed:
    """Raise UsageError when two names lead to one machine."""
    return require_distinct(collect(on.connections, on.hosts, env_path))


def make_plan(on: Fleet, wanted: Stack) -> Plan:
    observed = observe(on, wanted.environment.path if wanted.environment else None)
    return build_plan(
        wanted,
        observed,
        now=SystemClock().now(),
        plan_id=new_id("p"),
        sources=on.sources,
        limit=on.limit,
        program=hostprogram.digest(),
        missed=missed_by_host(BinaryAuditor(), _wheel_store(), wanted, observed),
    )


def make_rollback_plan(on: Fleet, to: str | None) -> RollbackPlan:
    return inverse_plan(
        observe(on), to, now=SystemClock().now(), plan_id=new_id("p"), sources=on.sources, limit=on.limit
    )


def read_plan(path: Path) -> Plan:
    """Raise UsageError when the file is not a plan that can be applied as it was reviewed."""
    try:
        return load_plan(path.read_text(errors="replace"), where=str(path))
    except OSError as error:
        raise UsageError("the plan cannot be read", where=str(path), found=error.strerror or str(error)) from error


def is_plan(path: Path) -> bool:
    try:
        read_plan(path)
    except UsageError:
        return False
    return True


@contextmanager
def open_run(
    plan: Plan | RollbackPlan, on: Fleet, emit: Callable[[Event], None], is_stopping: Callable[[], bool]
) -> Iterator[Run]:
    """A run with its journal on disk. Raise UsageError when a planned host is gone from the inventory."""
    missing = [host.host for host in plan.hosts if host.host not in on.by_name]
    if missing:
        raise UsageError(
            f"the inventory no longer has {', '.join(missing)}",
            where=", ".join(on.sources),
            fix="make a new plan with `cudaup plan`",
        )
    run_id = new_id("r")
    is_incident = isinstance(plan, RollbackPlan)
    ttl_s = plan.stack.timers.ttl_s if isinstance(plan, Plan) else LEASE_TTL_S
    journal = RunStore(state_directory(os.environ)).create(run_id, dump_plan(plan), is_incident=is_incident)
    with Renewals(on.connections, period_s=ttl_s / 3, timeout_s=ttl_s / 3) as renewals:
        yield Run(
            id=run_id,
            holder=f"{getpass.getuser()}@{socket.gethostname()}",
            links=on.connections,
            renewals=renewals,
            journal=journal,
            clock=SystemClock(),
            emit=emit,
            is_stopping=lambda: is_stopping() or (bool(journal.trouble) and not is_incident),
        )
    if journal.trouble:
        emit(Event(time=SystemClock().now(), host="", step="journal", kind=Kind.FAILED, text=journal.trouble))


def carry_out(plan: Plan | RollbackPlan, run: Run, on: Fleet) -> None:
    """Journal -> run: the plan's own use case with what it needs."""
    if isinstance(plan, Plan):
        plays = AnsiblePlays(on.connections)
        preparing = Preparing(plays=plays, wheels=_wheel_store(), auditor=BinaryAuditor())
        apply_plan(run, plan, on.by_name, preparing)
    else:
        roll_back(run, plan, on.by_name)


def audit(targets: Sequence[str], asked: Asked, required: Sequence[str]) -> AuditReport:
    """Raise UsageError for a GPU, driver or CUDA version that is none."""
    return audit_targets(BinaryAuditor(), targets, asked, required)


def audit_on(on: Fleet, generation: str | None, asked: Asked, required: Sequence[str]) -> AuditReport:
    """A host that cannot be asked is told with its reason."""
    return audit_hosts(BinaryAuditor(), on.connections, on.hosts, generation, asked, required)


def read_lock(path: Path) -> Lock | None:
    return lock_file.read_lock(path)


def platform_for(on: Fleet, path: Path) -> Platform:
    """Raise UsageError when a host cannot be asked, or no lock fits them all."""
    observed = observe(on)
    lost = [f"{name}: {facts.reason}" for name, facts in observed.items() if isinstance(facts, Unreachable)]
    if lost:
        raise UsageError("a lock is for hosts that answer", found="; ".join(lost), fix="leave them out: -l")
    return platform_of(load_unlocked(path), [facts for facts in observed.values() if isinstance(facts, Facts)])


def lock(
    path: Path,
    platform: Platform,
    old: Lock | None,
    upgrade: Sequence[str],
    tell: Callable[[str], None],
    *,
    tries: bool,
) -> Locked:
    doing = Locking(
        resolver=UvResolver(),
        wheels=_wheel_store(),
        auditor=BinaryAuditor(),
        trial=UvTrialRoom() if tries else None,
        tell=tell,
    )
    stack = load_unlocked(path)
    if stack.packages is None:
        found = "exact wheels, which need no lock"
        raise UsageError("there is nothing to resolve", where=str(path), wanted="`packages`", found=found)
    return lock_stack(stack, stack.packages, platform, old, doing, upgrade)


def keep_lock(path: Path, locked: Locked, vendor: Path | None, export: Path | None) -> Path:
    """Raise UsageError for what cannot be written; the lock itself comes last."""
    try:
        if vendor is not None:
            _wheel_store().vendor(locked.paths, vendor)
        if export is not None:
            export.write_text(locked.exported)
    except OSError as error:
        raise UsageError("it cannot be written", where=str(error.filename), found=error.strerror) from error
    return lock_file.write_lock(path, locked.lock)


def _wheel_store() -> PipWheelStore:
    vendor = os.environ.get("CUDAUP_VENDOR")
    return PipWheelStore(cache_directory(os.environ), Path(vendor) if vendor else None)


def new_id(kind: str) -> str:
    """Sortable by time, unique without asking anybody."""
    return f"{kind}-{strftime('%Y%m%d-%H%M%S', gmtime())}-{secrets.token_hex(2)}"
