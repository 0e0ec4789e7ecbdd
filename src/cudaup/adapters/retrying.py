"""Retry policies by name: what is tried again, and for how long in all. The only importer of tenacity."""

from __future__ import annotations

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from cudaup.domain.errors import ConnectionFailed


class NotReached(ConnectionFailed):
    """No session exists yet, so nothing was asked of the host and trying again is safe."""


class InterruptedRead(OSError):
    """A connection ended before what was asked for had come; nothing is changed by asking for the rest."""


# Until the ssh handshake is done: refused, unreachable, or dropped by sshd's MaxStartups. Host keys and logins never.
SSH_CONNECT = Retrying(
    retry=retry_if_exception_type(NotReached),
    stop=stop_after_delay(20),
    wait=wait_random_exponential(multiplier=0.2, max=2),
    reraise=True,
)

# A read of a remote wheel that broke off: a range can be asked for again from where it ended.
HTTP_RANGE = Retrying(
    retry=retry_if_exception_type(InterruptedRead),
    stop=stop_after_attempt(5),
    wait=wait_random_exponential(multiplier=0.2, max=5),
    reraise=True,
)


def within(policy: Retrying, total_s: float) -> Retrying:
    """The same policy with another total time."""
    return policy.copy(stop=stop_after_delay(total_s))
