"""Audits targets here and generations on hosts, for a GPU that need not be there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import ValidationError

from cudaup.app.collect import read_facts
from cudaup.app.fleet import on_each
from cudaup.app.ports import Auditor, Links
from cudaup.domain.audit import Asked, AuditReport, GpuAsked, TargetAudit, report_of, target_of
from cudaup.domain.errors import CudaupError, HostProgramBroken, UsageError
from cudaup.domain.inventory import Host

AUDIT_LIMIT_S = 600.0


def audit_targets(auditor: Auditor, targets: Sequence[str], asked: Asked, required: Sequence[str]) -> AuditReport:
    """A target that cannot be read is an observation too. Raise UsageError when it is not said for which GPU."""
    if asked.sm is None:
        raise UsageError("for which GPU?", wanted="--sm 120, or -s STACK", found="neither")
    gpu = auditor.gpu(asked)

    def one(name: str) -> TargetAudit:
        return _or_error(name, "unknown", gpu, lambda: auditor.audit(name, asked))

    return report_of([one(name) for name in targets], required)


def audit_hosts(
    auditor: Auditor,
    links: Links,
    hosts: Sequence[Host],
    generation: str | None,
    asked: Asked,
    required: Sequence[str],
) -> AuditReport:
    """For each host's own GPUs and driver where the question does not name others."""

    def one(host: Host) -> TargetAudit:
        name = f"{host.name}:{generation or 'current'}"
        blank = GpuAsked(sm=0)
        return _or_error(name, "generation", blank, lambda: audit_host(auditor, links, host, generation, asked))

    found = on_each(hosts, one)
    return report_of([found[host.name] for host in hosts], required)


def audit_host(auditor: Auditor, links: Links, host: Host, generation: str | None, asked: Asked) -> TargetAudit:
    """Raise ConnectionFailed and its kinds, UsageError without a GPU to ask for, HostProgramBroken."""
    asked = _of_host(links, host, asked)
    gpu = auditor.gpu(asked)
    argv = ["audit", *([generation] if generation else []), "--sm", str(gpu.sm)]
    argv += ["--cuda", gpu.cuda] if gpu.cuda else []
    reply = links.link(host).call(argv, timeout_s=AUDIT_LIMIT_S)
    try:
        return target_of(f"{host.name}:{reply.data['generation']}", gpu, {**reply.data["audit"], "kind": "generation"})
    except (KeyError, ValidationError) as error:
        raise HostProgramBroken("its audit cannot be read", host=host.name, found=str(error)) from error


def _of_host(links: Links, host: Host, asked: Asked) -> Asked:
    if asked.sm and (asked.driver or asked.cuda):
        return asked
    facts = read_facts(links, host, None)
    archs = sorted({gpu.compute_cap for gpu in facts.gpus})
    loaded = str(facts.driver.loaded) if facts.driver.loaded else None
    if asked.sm is None and len(archs) != 1:
        raise UsageError("which GPU?", host=host.name, wanted="--sm", found=", ".join(archs) or "no GPU on the host")
    driver = asked.driver if asked.driver or asked.cuda else loaded
    return asked.model_copy(update={"sm": asked.sm or archs[0], "driver": driver})


def _or_error(name: str, kind: str, gpu: GpuAsked, read: Callable[[], TargetAudit]) -> TargetAudit:
    try:
        return read()
    except CudaupError as error:
        return TargetAudit(target=name, kind=kind, gpu=gpu, error=error.told)
