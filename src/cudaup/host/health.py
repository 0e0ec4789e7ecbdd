"""Whether the services answer: an HTTP address or a command where the stack names one, and units that stay up."""

import http.client
import math
from typing import Callable, Optional, Sequence
from urllib.parse import urlsplit

from cudaup.host import command
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.systemd import ShouldStop

_POLL_S = 0.25
_STAYS_UP_S = 3
_DEFAULT_LIMIT_S = 20
_ANSWER_LIMIT_S = 5
_SHAPE = '{}, {"http": {"url": "http://...", "timeout_s": S}} or {"command": [ARG, ...], "timeout_s": S}'


def require_usable(wanted: Json) -> None:
    """Refused `usage`: what is found out only when its turn comes has stopped the service for nothing."""
    http_wanted, argv = wanted.get("http", {}), wanted.get("command", [])
    try:
        limits = [float(each.get("timeout_s", _DEFAULT_LIMIT_S)) for each in (wanted, http_wanted)]
        is_known = set(wanted) <= {"http", "command", "timeout_s"} and set(http_wanted) <= {"url", "timeout_s"}
        parts = urlsplit(http_wanted.get("url", "http://host"))
        is_plain = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 80) > 0
        is_program = isinstance(argv, list) and all(isinstance(word, str) for word in argv)
    except (TypeError, ValueError, AttributeError) as error:
        raise Refused("usage", f"health: {error}", _SHAPE) from error
    if not (is_known and is_plain and is_program and all(0 < limit < math.inf for limit in limits)):
        raise Refused("usage", f"health: {wanted} cannot be asked", _SHAPE)


def is_asked(wanted: Json) -> bool:
    return bool(wanted.get("http") or wanted.get("command"))


def require(ctx: Context, units: Sequence[str], wanted: Json, should_stop: ShouldStop) -> None:
    """Raises Failed `health` with the last thing that was wrong."""
    http_wanted, argv = wanted.get("http"), wanted.get("command")
    if http_wanted:
        url = str(http_wanted["url"])
        _poll(ctx, lambda: _ask(url), float(http_wanted.get("timeout_s", _DEFAULT_LIMIT_S)), should_stop)
    if argv:
        limit_s = float(wanted.get("timeout_s", _DEFAULT_LIMIT_S))
        _poll(ctx, lambda: _run(argv, limit_s, should_stop), limit_s, should_stop)
    _stays_up(ctx, units, should_stop)  # the others too, which nobody asks


def _poll(ctx: Context, look: Callable[[], Optional[str]], limit_s: float, should_stop: ShouldStop) -> None:
    """Until `look` finds nothing wrong."""
    limit = ctx.clock.monotonic() + limit_s
    wrong = look()
    while wrong is not None:
        if ctx.clock.monotonic() >= limit:
            raise Failed("health", f"not healthy within {limit_s:.0f} s: {wrong}")
        if should_stop():
            raise Failed("abandoned", f"stopped waiting for health: {wrong}")
        ctx.clock.sleep(_POLL_S)
        wrong = look()


def _ask(url: str) -> Optional[str]:
    """Directly: a proxy from the environment has no business between a host and itself."""
    parts = urlsplit(url)
    try:
        port = parts.port or 80
    except ValueError as error:
        return f"`{url}`: {error}"
    if parts.scheme != "http" or not parts.hostname:
        return f"`{url}` is not a plain http address"
    connection = http.client.HTTPConnection(parts.hostname, port, timeout=_ANSWER_LIMIT_S)
    try:
        connection.request("GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"`{url}`: {error}"
    finally:
        connection.close()
    return None if 200 <= status < 300 else f"`{url}` answers {status}"


def _run(argv: Sequence[str], limit_s: float, should_stop: ShouldStop) -> Optional[str]:
    try:
        ran = command.run(argv, limit_s, should_stop=should_stop)
    except OSError as error:
        return f"`{' '.join(argv)}`: {error}"
    return None if ran.is_ok else f"`{' '.join(argv)}`: {ran.why()}: {ran.last_lines()}"


def _stays_up(ctx: Context, units: Sequence[str], should_stop: ShouldStop) -> None:
    """Each unit is active with one and the same process for a while: a crash loop is not health."""
    before = {unit: ctx.systemd.show(unit) for unit in units}
    until = ctx.clock.monotonic() + _STAYS_UP_S
    while units and ctx.clock.monotonic() < until and not should_stop():
        ctx.clock.sleep(_POLL_S)
    for unit in units:
        after = ctx.systemd.show(unit)
        if after.active != "active" or after.pid != before[unit].pid:
            raise Failed("health", f"`{unit}` is {after.active} (pid {before[unit].pid}, then {after.pid})")
