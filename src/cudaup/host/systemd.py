"""The only caller of systemctl and systemd-run. Where systemd does not run there are no units, and that is said."""

import re
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from cudaup.host import command

UNIT_DIR = Path("/etc/systemd/system")
RUN_DIR = Path("/run")  # empty after every boot
_CALL_LIMIT_S = 120
_JOB_LIMIT_S = 1800
_DEPENDENTS = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf")  # systemd stops them along (systemd.unit(5))
_SHOWN = (
    *("ActiveState", "MainPID", "FragmentPath", "UnitFileState", "CanStart", "Transient", "Type", "RemainAfterExit"),
    *("User", "TriggeredBy", *_DEPENDENTS),
)
ShouldStop = Callable[[], bool]


def never() -> bool:
    return False


class CallResult(NamedTuple):
    ok: bool
    text: str


class UnitState(NamedTuple):
    """`triggers` start it when something happens; `dependents` stop when it stops, and do not start with it."""

    active: str
    pid: int
    fragment: Optional[Path]
    file_state: str = ""
    can_start: bool = True
    is_transient: bool = False
    is_job: bool = False
    triggers: Tuple[str, ...] = ()
    dependents: Tuple[str, ...] = ()
    user: str = ""

    @property
    def is_down(self) -> bool:
        return self.active in {"inactive", "failed"}

    @property
    def stays_down(self) -> bool:
        """Down because somebody wants it so, or because its turn has not come: not ours to start."""
        if not self.is_down:
            return False
        waits = bool(self.triggers) and self.file_state != "enabled"
        on_purpose = self.active == "inactive" and (self.file_state == "disabled" or waits)
        return on_purpose or self.is_job or not self.can_start


class Systemd:
    """Talks to PID 1. Tests hand in one that starts real processes itself."""

    unit_dir = UNIT_DIR
    run_dir = RUN_DIR

    def is_running(self) -> bool:
        return Path("/run/systemd/system").is_dir()  # sd_booted(3)

    def show(self, unit: str) -> UnitState:
        shown = _run(["systemctl", "show", unit, f"--property={','.join(_SHOWN)}"])
        fields: Dict[str, str] = dict(line.split("=", 1) for line in shown.text.splitlines() if "=" in line)
        fragment = fields.get("FragmentPath", "")
        return UnitState(
            active=fields.get("ActiveState", "unknown"),
            pid=int(fields.get("MainPID", "0") or 0),
            fragment=Path(fragment) if fragment else None,
            file_state=fields.get("UnitFileState", ""),
            can_start=fields.get("CanStart") != "no",
            is_transient=fields.get("Transient") == "yes",
            is_job=fields.get("Type") == "oneshot" and fields.get("RemainAfterExit") == "no",
            triggers=tuple(fields.get("TriggeredBy", "").split()),
            user=fields.get("User", ""),
            dependents=tuple(name for key in _DEPENDENTS for name in fields.get(key, "").split()),
        )

    def programs(self) -> Dict[str, List[str]]:
        """What the services that systemd knows would start: also those that are between two lives just now."""
        shown = _run(["systemctl", "show", "--all", "*.service", "--property=Id,ExecStart"]).text
        found = {}
        for unit in shown.split("\n\n"):
            for name in re.findall(r"^Id=(.+)$", unit, re.MULTILINE):
                found[name] = re.findall(r"^ExecStart=\{ path=(.+?) ; ", unit, re.MULTILINE)
        return found

    def start(self, *units: str, should_stop: ShouldStop = never) -> CallResult:
        """All at once. Waits until they are up, which for a service that loads a model first is long."""
        return _run(["systemctl", "start", *units], _JOB_LIMIT_S, should_stop)

    def enqueue(self, *units: str) -> CallResult:
        """Start them when their turn comes; does not wait."""
        return _run(["systemctl", "start", "--no-block", *units])

    def stop(self, *units: str, should_stop: ShouldStop = never) -> CallResult:
        """All at once, each for as long as its TimeoutStopSec= lets it."""
        return _run(["systemctl", "stop", *units], _JOB_LIMIT_S, should_stop)

    def reset_failed(self, *units: str) -> CallResult:
        return _run(["systemctl", "reset-failed", *units])

    def enable(self, unit: str) -> CallResult:
        return _run(["systemctl", "enable", unit])

    def disable(self, unit: str) -> CallResult:
        return _run(["systemctl", "disable", unit])

    def reload(self) -> CallResult:
        return _run(["systemctl", "daemon-reload"])

    def run_transient(self, unit: str, properties: Sequence[str], argv: Sequence[str]) -> CallResult:
        """Does not wait until it is started."""
        options = ["--property=" + text for text in properties]
        return _run(["systemd-run", "--unit=" + unit, "--collect", "--quiet", "--no-block", *options, *argv])

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
    """The outermost `.service` of the systemd hierarchy (version 2, or version 1's `name=systemd`).

    One further in belongs to a user's or a container's own systemd, which ours cannot stop.
    """
    for line in content.splitlines():
        _number, controllers, path = line.split(":", 2)
        if controllers in {"", "name=systemd"}:
            units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
            if units and units[0].endswith(".service") and not units[0].startswith("user@"):
                return units[0]
    return None


def _run(argv: List[str], limit_s: float = _CALL_LIMIT_S, should_stop: ShouldStop = never) -> CallResult:
    try:
        ran = command.run(argv, limit_s, should_stop=should_stop)
    except OSError as error:
        return CallResult(ok=False, text=f"{' '.join(argv)}: {error}")
    said = ran.out if ran.is_ok else f"{' '.join(argv)}: {ran.why()}: {ran.last_lines()}"
    return CallResult(ok=ran.is_ok, text=said.strip())
