"""Keeps the leases of a run alive, and with them the dead-man's deadline of hosts in transit, while we are here."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

from cudaup.app.fleet import on_each
from cudaup.app.ports import Links
from cudaup.domain.errors import CudaupError
from cudaup.domain.inventory import Host


class Renewals(AbstractContextManager["Renewals"]):
    """A thread that renews every `period_s`. A renewal that fails is left to the host's own clock: it decides."""

    def __init__(self, links: Links, *, period_s: float, timeout_s: float) -> None:
        self._links = links
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._held: dict[str, tuple[Host, int]] = {}
        self._lock = Lock()
        self._ended = Event()
        self._thread = Thread(target=self._loop, name="renewals", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def add(self, host: Host, epoch: int) -> None:
        with self._lock:
            self._held[host.name] = (host, epoch)

    def remove(self, host: Host) -> None:
        with self._lock:
            self._held.pop(host.name, None)

    def is_held(self, host: Host) -> bool:
        with self._lock:
            return host.name in self._held

    def _loop(self) -> None:
        while not self._ended.wait(self._period_s):
            with self._lock:
                hosts = [host for host, _ in self._held.values()]
            on_each(hosts, self._renew)

    def _renew(self, host: Host) -> None:
        with self._lock:
            epoch = self._held.get(host.name, (host, 0))[1]
        if not epoch:  # released in the meantime
            return
        try:
            self._links.link(host).call(["lease", "renew", "--epoch", str(epoch)], timeout_s=self._timeout_s)
        except CudaupError:
            return
