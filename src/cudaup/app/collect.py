"""Facts of every host: one connection, one command each, all hosts at once, nothing written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from cudaup.app.fleet import on_each
from cudaup.app.ports import Links
from cudaup.domain.errors import CudaupError, HostProgramBroken, UsageError
from cudaup.domain.facts import Facts, Unreachable
from cudaup.domain.inventory import Host

FACTS_LIMIT_S = 60.0
Observed = Mapping[str, Facts | Unreachable]


def read_facts(links: Links, host: Host, env_path: str | None) -> Facts:
    """Raise ConnectionFailed and its kinds, or HostProgramBroken when the answer is not facts."""
    argv = ["facts", *(["--env", env_path] if env_path else [])]
    reply = links.link(host).call(argv, timeout_s=FACTS_LIMIT_S)
    try:
        return Facts.model_validate(reply.data)
    except ValidationError as error:
        raise HostProgramBroken("its facts cannot be read", host=host.name, found=str(error)) from error


def collect(links: Links, hosts: Sequence[Host], env_path: str | None) -> Observed:
    """A host that cannot be reached or makes no sense is an observation too; its error is kept as the reason."""

    def one(host: Host) -> Facts | Unreachable:
        try:
            return read_facts(links, host, env_path)
        except CudaupError as error:
            return Unreachable(reason=error.told)

    return on_each(hosts, one)


def require_distinct(observed: Observed) -> Observed:
    """Raise UsageError when two names lead to one machine: one run would hold its lease twice and fight itself."""
    names: dict[tuple[str | None, str], str] = {}
    for name, facts in observed.items():
        if isinstance(facts, Facts):
            machine = (facts.host.machine_id, facts.host.boot_id)
            first = names.setdefault(machine, name)
            if first != name:
                raise UsageError(
                    f"{first} and {name} are one machine",
                    wanted="each machine once",
                    found=f"boot id {facts.host.boot_id} behind both names",
                    fix=f"leave one out: -l '!{name}'",
                )
    return observed
