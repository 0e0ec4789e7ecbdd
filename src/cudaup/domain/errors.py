"""The errors an operator can meet, with their exit codes. A leaf: imports nothing of cudaup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CudaupError(Exception):
    """Expected failure: what happened, where, what was wanted and found, and what to do.

    `exit_code` is the process exit code when this error ends a command (see docs/exit-codes.md).
    """

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        host: str | None = None,
        where: str | None = None,
        wanted: str | None = None,
        found: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.host = host
        self.where = where
        self.wanted = wanted
        self.found = found
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.host}: {self.told}" if self.host else self.told

    @property
    def told(self) -> str:
        """The text for where the host is named already."""
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.wanted is not None:
            lines.append(f"  wanted: {self.wanted}")
        if self.found is not None:
            lines.append(f"  found:  {self.found}")
        if self.fix is not None:
            lines.append(f"  fix:    {self.fix}")
        return "\n".join(lines)


class UsageError(CudaupError):
    """The command line, a stack, an inventory or a plan file cannot be used."""


class ConnectionFailed(CudaupError):
    """The host could not be reached, or the connection broke; it may be tried again."""

    exit_code = 5


class HostKeyRejected(ConnectionFailed):
    """The host key is unknown or has changed. Never retried."""


class AuthenticationFailed(ConnectionFailed):
    """Login or become was refused. Never retried."""


class DeadlineExceeded(ConnectionFailed):
    """A call used up its total time limit."""


class UnsupportedSetting(UsageError):
    """An ssh setting asks for something cudaup cannot do; named, never ignored."""


class HostRefused(CudaupError):
    """The host program refused a command; nothing was changed by it.

    `code` is the host program's own reason: `lease-held`, `stale-epoch`, `quarantined`, `unsafe`, ...
    """

    exit_code = 3

    def __init__(self, what: str, *, code: str, host: str | None = None, fix: str | None = None) -> None:
        super().__init__(what, host=host, fix=fix)
        self.code = code


class HostFailed(CudaupError):
    """The host program tried something and it did not work out; `data["state"]` says in which state the host is now."""

    exit_code = 5

    def __init__(self, what: str, *, data: Mapping[str, Any], host: str | None = None) -> None:
        super().__init__(what, host=host)
        self.data = data


class HostProgramBroken(CudaupError):
    """The host program crashed or answered something that is not its protocol."""


class PlayFailed(CudaupError):
    """Ansible could not bring a host to the wanted state."""


class AuditFailed(CudaupError):
    """A file that the stack requires has no code for the GPUs."""

    exit_code = 3


class LockFailed(CudaupError):
    """A stack cannot be resolved, or what it resolves to does not go together."""


class StalePlan(CudaupError):
    """A host moved since the plan was made; `found` lists what."""

    exit_code = 3


class IllegalTransition(CudaupError):
    """A host's life was asked to take a step its state does not allow: a bug, never an operator's fault."""
