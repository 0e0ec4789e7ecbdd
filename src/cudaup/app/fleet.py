"""The same work on many hosts at once; one host's failure never becomes another's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

# One thread a host up to here: they wait for the network, not for the processor.
MAX_THREADS = 128


class Named(Protocol):
    @property
    def name(self) -> str: ...


Each = TypeVar("Each", bound=Named)
Result = TypeVar("Result")


def on_each(all_of_them: Iterable[Each], work: Callable[[Each], Result]) -> Mapping[str, Result]:
    """Run `work` for each and return the results by name. What `work` raises is raised here, after all ended.

    An interrupt ends the waiting, not the work: threads under way are left to the process's own end.
    """
    listed = tuple(all_of_them)
    if not listed:
        return {}
    pool = ThreadPoolExecutor(max_workers=min(len(listed), MAX_THREADS))
    waits = True
    try:
        return dict(zip((each.name for each in listed), pool.map(work, listed), strict=True))
    except KeyboardInterrupt:
        waits = False
        raise
    finally:
        pool.shutdown(wait=waits, cancel_futures=not waits)
