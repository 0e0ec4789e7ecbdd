"""The facts a host plan rests on, and what of them moved since (P7)."""

from __future__ import annotations

from collections.abc import Iterator

from cudaup.domain.facts import Facts
from cudaup.domain.rules import Finding
from cudaup.domain.value import Value
from cudaup.domain.versions import DriverVersion


class Fingerprint(Value):
    """`services` maps units to the digest of their unit file; space is only ever enough or not."""

    boot_id: str
    kernel: str
    driver_loaded: DriverVersion | None
    driver_on_disk: DriverVersion | None
    gpu_uuids: tuple[str, ...]
    generation: str | None
    generation_digest: str | None
    environment_digest: str | None
    services: dict[str, str | None]
    lease_epoch: int
    has_enough_disk: bool


class Moved(Value):
    """One thing that is not as it was planned for."""

    what: str
    planned: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}: planned for {self.planned}, found {self.found}"


def take_fingerprint(facts: Facts, *, has_enough_disk: bool) -> Fingerprint:
    current = facts.current
    return Fingerprint(
        boot_id=facts.host.boot_id,
        kernel=facts.host.kernel,
        driver_loaded=facts.driver.loaded,
        driver_on_disk=facts.driver.on_disk,
        gpu_uuids=tuple(sorted(gpu.uuid for gpu in facts.gpus)),
        generation=current.id if current else None,
        generation_digest=current.digest if current else None,
        environment_digest=facts.environment.digest if facts.environment else None,
        services={service.unit: service.fragment_sha256 for service in facts.services},
        lease_epoch=facts.cudaup.lease.epoch if facts.cudaup else 0,
        has_enough_disk=has_enough_disk,
    )


def compare(planned: Fingerprint, found: Fingerprint) -> tuple[Moved, ...]:
    names = [name for name in Fingerprint.model_fields if name != "services"]
    plain = [
        Moved(what=name.replace("_", " "), planned=_words(before), found=_words(after))
        for name in names
        if (before := getattr(planned, name)) != (after := getattr(found, name))
    ]
    return (*plain, *_moved_services(planned.services, found.services))


def new_blockers(planned: tuple[Finding, ...], found: tuple[Finding, ...]) -> tuple[Moved, ...]:
    """Blockers that the plan did not have."""
    known = {finding.rule for finding in planned if finding.blocks}
    return tuple(
        Moved(what=f"rule {finding.rule}", planned="no blocker", found=finding.evidence)
        for finding in found
        if finding.blocks and finding.rule not in known
    )


def _moved_services(planned: dict[str, str | None], found: dict[str, str | None]) -> Iterator[Moved]:
    for unit in sorted(planned.keys() | found.keys()):
        before, after = _unit_words(planned, unit), _unit_words(found, unit)
        if before != after:
            yield Moved(what=f"service {unit}", planned=before, found=after)


def _unit_words(services: dict[str, str | None], unit: str) -> str:
    return f"unit file {(services[unit] or 'unknown')[:12]}" if unit in services else "no such service"


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(each) for each in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
