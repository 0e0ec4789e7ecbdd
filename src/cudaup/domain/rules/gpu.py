"""G: the GPUs that are there, and who uses them."""

from __future__ import annotations

from collections.abc import Iterator

from cudaup.domain.facts import Facts, GpuUser
from cudaup.domain.rules.finding import Finding, Rule, Severity
from cudaup.domain.stack import Stack

NONE_FOUND = Rule(
    id="G001",
    severity=Severity.BLOCKER,
    title="no GPU was found",
    consequence="the new stack could not be proven here",
    fix="check `nvidia-smi` and `lspci` on the host, or leave it out",
)
OTHER_ARCH = Rule(
    id="G002",
    severity=Severity.BLOCKER,
    title="the GPUs have another compute capability than the stack is for",
    consequence="its kernels carry no code for these GPUs",
    fix="use a stack made for these GPUs",
)
MIXED = Rule(
    id="G003",
    severity=Severity.BLOCKER,
    title="the GPUs are not all of one compute capability",
    consequence="a proof on one of them says nothing about the others",
    fix="leave the host out, or hide the other GPUs from it",
)
OTHER_COUNT = Rule(
    id="G004",
    severity=Severity.BLOCKER,
    title="the number of GPUs is not the wanted one",
    consequence="a GPU may have fallen off the bus, and paths for this number of GPUs are not proven",
    fix="repair the host, or correct `gpus.count` in the stack",
)
IN_USE = Rule(
    id="G005",
    severity=Severity.WARNING,
    title="a process that cudaup will not stop uses the GPUs",
    consequence="it may disturb the smoke test, and it keeps the old stack's libraries",
    fix="stop it, or expect that",
)
IN_USE_BY_SERVICE = Rule(
    id="G006",
    severity=Severity.INFO,
    title="the service uses the GPUs",
    consequence="it is stopped for the switch and started again",
    fix="none needed",
)


def check_gpus(facts: Facts, stack: Stack) -> Iterator[Finding]:
    if stack.gpus is None:
        return
    simulated = "gpus" in facts.simulated
    wanted, found = stack.gpus, [gpu.compute_cap for gpu in facts.gpus]
    if not found:
        yield NONE_FOUND.found(f"stack wants compute capability {wanted.arch}, found no GPU", simulated=simulated)
        return
    capabilities = ", ".join(f"{found.count(each)}x {each}" for each in sorted(set(found)))
    if len(set(found)) > 1:
        yield MIXED.found(f"stack wants {wanted.arch}, found {capabilities}", simulated=simulated)
    elif found[0] != wanted.arch:
        names = ", ".join(sorted({gpu.name for gpu in facts.gpus}))
        yield OTHER_ARCH.found(f"stack wants {wanted.arch}, found {capabilities} ({names})", simulated=simulated)
    if wanted.count is not None and wanted.count != len(found):
        yield OTHER_COUNT.found(f"stack wants {wanted.count}, found {capabilities}", simulated=simulated)


def check_gpu_users(facts: Facts) -> Iterator[Finding]:
    simulated = not {"gpus", "gpu_users"}.isdisjoint(facts.simulated)
    units = {service.pid: service.unit for service in facts.services if service.pid}
    for user in facts.gpu_users:
        if user.pid in units:
            yield IN_USE_BY_SERVICE.found(f"{_words(user)} is {units[user.pid]}", simulated=simulated)
        else:
            yield IN_USE.found(_words(user), simulated=simulated)


def _words(user: GpuUser) -> str:
    memory = "" if user.memory_mib is None else f", {user.memory_mib} MiB"
    return f"process {user.pid} ({user.name}{memory})"
