"""The same work on many hosts at once; one host's failure never becomes another's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cudaup.domain.inventory import Host

# One thread a host up to here: they wait for the network, not for the processor.
MAX_THREADS = 128

Result = TypeVar("Result")


def on_each(hosts: Iterable[Host], work: Callable[[Host], Result]) -> Mapping[str, Result]:
    """Run `work` for every host and return its results by name. What `work` raises is raised here, after all ended."""
    listed = tuple(hosts)
    if not listed:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(listed), MAX_THREADS)) as pool:
        return dict(zip((host.name for host in listed), pool.map(work, listed), strict=True))
