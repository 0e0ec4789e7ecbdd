"""D: the NVIDIA driver. Versions are compared as versions, and shown as the host wrote them."""

from __future__ import annotations

from collections.abc import Iterator

from cudaup.domain.facts import Facts
from cudaup.domain.rules.finding import Finding, Rule, Severity
from cudaup.domain.stack import Stack

NOT_LOADED = Rule(
    id="D001",
    severity=Severity.BLOCKER,
    title="no NVIDIA driver is loaded",
    consequence="no CUDA program can run on this host",
    fix="install and load a driver in the stack's range, or take the host out of the run",
)
OUT_OF_RANGE = Rule(
    id="D002",
    severity=Severity.BLOCKER,
    title="the loaded driver is outside the stack's range",
    consequence="the new stack's kernels may be refused or silently fall back to another path",
    fix="change the driver first, or the stack's range if it is too narrow",
)
DISAGREE = Rule(
    id="D003",
    severity=Severity.BLOCKER,
    title="loaded module, module on disk and user library are not the same version",
    consequence="CUDA fails now, or the next reboot changes the driver under the new stack",
    fix="finish the driver change (a reboot loads the module that is on disk), then plan again",
)


def check_driver(facts: Facts, stack: Stack) -> Iterator[Finding]:
    if stack.driver is None:
        return
    driver, simulated = facts.driver, "driver" in facts.simulated
    if driver.loaded is None:
        yield NOT_LOADED.found(f"stack wants {stack.driver}, none is loaded", simulated=simulated)
    elif not stack.driver.has(driver.loaded):
        yield OUT_OF_RANGE.found(f"driver {driver.loaded} is loaded, stack wants {stack.driver}", simulated=simulated)
    versions = {"loaded": driver.loaded, "on disk": driver.on_disk, "library": driver.library}
    known = {where: version for where, version in versions.items() if version is not None}
    if len(set(known.values())) > 1:
        evidence = ", ".join(f"{where} {version}" for where, version in known.items())
        yield DISAGREE.found(evidence, simulated=simulated)
