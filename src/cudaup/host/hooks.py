"""The stack's own commands for what systemd does not run: drain, stop, start, bench, undrain.

They come with `activate` and are recorded with the transit and the generation, so that a revert needs no controller.
"""

import os
import pwd
import shutil
from typing import Dict, List

from cudaup.host import command, generations
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.systemd import ShouldStop, never

DRAIN, STOP, START, BENCH, UNDRAIN = "drain", "stop", "start", "bench", "undrain"
_NAMES = (DRAIN, STOP, START, BENCH, UNDRAIN)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def require_usable(wanted: Json) -> None:
    """Refused `usage` or `not-found`: one missed only when its turn comes has stopped the service for nothing."""
    for name, hook in wanted.items():
        if name not in _NAMES or not hook.get("command") or not isinstance(hook.get("timeout_s"), (int, float)):
            raise Refused("usage", f"no hook: `{name}` {hook}", f"one of {', '.join(_NAMES)}, command and timeout_s")
    missing = [f"{name}: `{hook['command'][0]}`" for name, hook in wanted.items() if not _finds(hook["command"][0])]
    if missing:
        raise Refused("not-found", f"hooks that are not on this host: {', '.join(missing)}", "install their programs")


def run(ctx: Context, wanted: Json, name: str, should_stop: ShouldStop) -> None:
    """One hook to its end; nothing where the stack has none of that name. Raises Failed `hook` with what it said."""
    hook = wanted.get(name)
    if hook is None:
        return
    ctx.channel.event(f"hook {name}", "started", " ".join(hook["command"]))
    try:
        ran = command.run(hook["command"], float(hook["timeout_s"]), _environment(ctx), should_stop=should_stop)
    except OSError as error:
        raise Failed("hook", f"hook {name}: {error}") from error
    if not ran.is_ok:
        raise Failed("hook", f"hook {name}: {ran.why()}: {ran.last_lines()}".rstrip(": "))
    ctx.channel.event(f"hook {name}", "done", ran.last_lines(1))


def problems_of(ctx: Context, wanted: Json, name: str) -> List[str]:
    """Run it while going back: what goes wrong is to be reported, and stops nothing."""
    try:
        run(ctx, wanted, name, never)
    except Failed as error:
        return [error.text]
    return []


def _finds(program: str) -> bool:
    return shutil.which(program, path=_PATH) is not None


def _environment(ctx: Context) -> Dict[str, str]:
    """The same whoever calls: a login, the timer, recovery at boot."""
    home = pwd.getpwuid(os.geteuid()).pw_dir
    base = {"PATH": _PATH, "HOME": home, "LANG": "C.UTF-8"}
    return {**base, "CUDAUP_ROOT": str(ctx.root), "CUDAUP_GENERATION": generations.current_id(ctx.layout) or ""}
