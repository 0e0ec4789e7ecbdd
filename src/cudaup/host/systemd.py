"""The only caller of systemctl and systemd-run. Where systemd does not run there are no units, and that is said."""

from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from cudaup.host import command

UNIT_DIR = Path("/etc/systemd/system")
_CALL_LIMIT_S = 120
_START_LIMIT_S = 1800
ShouldStop = Callable[[], bool]


def never() -> bool:
    return False


class CallResult(NamedTuple):
    ok: bool
    text: str


class UnitState(NamedTuple):
    active: str
    pid: int
    fragment: Optional[Path]


class Systemd:
    """Talks to PID 1. Tests hand in one that starts real processes itself."""

    unit_dir = UNIT_DIR

    def is_running(self) -> bool:
        return Path("/run/systemd/system").is_dir()  # sd_booted(3)

    def show(self, unit: str) -> UnitState:
        shown = _run(["systemctl", "show", unit, "--property=ActiveState,MainPID,FragmentPath"])
        fields: Dict[str, str] = dict(line.split("=", 1) for line in shown.text.splitlines() if "=" in line)
        fragment = fields.get("FragmentPath", "")
        pid = int(fields.get("MainPID", "0") or 0)
        return UnitState(fields.get("ActiveState", "unknown"), pid, Path(fragment) if fragment else None)

    def start(self, unit: str, should_stop: ShouldStop = never) -> CallResult:
        """Waits until it is up, which for a service that loads a model first is long."""
        return _run(["systemctl", "start", unit], _START_LIMIT_S, should_stop)

    def enqueue(self, unit: str) -> CallResult:
        """Start it when its turn comes; does not wait."""
        return _run(["systemctl", "start", "--no-block", unit])

    def stop(self, unit: str) -> CallResult:
        return _run(["systemctl", "stop", unit])

    def reset_failed(self, unit: str) -> CallResult:
        return _run(["systemctl", "reset-failed", unit])

    def enable(self, unit: str) -> CallResult:
        return _run(["systemctl", "enable", unit])

    def disable(self, unit: str) -> CallResult:
        return _run(["systemctl", "disable", unit])

    def reload(self) -> CallResult:
        return _run(["systemctl", "daemon-reload"])

    def run_transient(self, unit: str, properties: Sequence[str], argv: Sequence[str]) -> CallResult:
        options = ["--property=" + text for text in properties]
        return _run(["systemd-run", "--unit=" + unit, "--collect", "--quiet", *options, *argv])

    def log(self, units: Sequence[str], since: float, until: float) -> str:
        """What they said between two wall times: the end of it, or why it cannot be had."""
        span = [f"--since=@{int(since)}", f"--until=@{int(until) + 1}"]
        named = ["--unit=" + unit for unit in units]
        return _run(["journalctl", "--no-pager", "--quiet", "--output=short-precise", *span, *named]).text

    def unit_of(self, pid: int) -> Optional[str]:
        """The service that `pid` belongs to, from its control group; None for a login shell's or a container's."""
        try:
            groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return unit_in_cgroup(groups)


def unit_in_cgroup(content: str) -> Optional[str]:
    """The innermost `.service` of the systemd hierarchy (version 2, or version 1's `name=systemd`)."""
    for line in content.splitlines():
        _number, controllers, path = line.split(":", 2)
        if controllers in {"", "name=systemd"}:
            units = [part for part in path.split("/") if part.endswith(".service")]
            if units and not units[-1].startswith("user@"):
                return units[-1]
    return None


def _run(argv: List[str], limit_s: float = _CALL_LIMIT_S, should_stop: ShouldStop = never) -> CallResult:
    try:
        ran = command.run(argv, limit_s, should_stop=should_stop)
    except OSError as error:
        return CallResult(ok=False, text=f"{' '.join(argv)}: {error}")
    said = ran.out if ran.is_ok else f"{' '.join(argv)}: {ran.why()}: {ran.last_lines()}"
    return CallResult(ok=ran.is_ok, text=said.strip())
