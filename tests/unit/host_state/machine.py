"""One host to try the host program on: a root in a temporary folder, a clock in hand, services that really run."""

import base64
import fcntl
import hashlib
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cudaup.host import envfile, generations, lease, manifest
from cudaup.host.clock import Clock
from cudaup.host.protocol import Channel, Context, Json
from cudaup.host.systemd import CallResult, ShouldStop, Systemd, UnitState, never

SUITE = {"cases": ["record"]}
TIMES = {"ttl": 60.0, "ceiling": 600.0, "suite": SUITE, "health": {}, "hooks": {}}


@dataclass
class HandClock(Clock):
    """Time goes on only while somebody sleeps, or when a test says so."""

    now: float = 1000.0
    boot: str = "boot-1"
    began: float = 0.0
    pace: float = 1.0
    past: float = 0.0  # seconds of the boots before

    def wall(self) -> float:
        return 1_800_000_000.0 + self.past + self.now

    def monotonic(self) -> float:
        return self.now

    def boot_id(self) -> str:
        return self.boot

    def booted(self) -> float:
        return self.began

    def sleep(self, seconds: float) -> None:
        time.sleep(0.01)  # real processes come and go meanwhile
        self.now += seconds * self.pace

    def reboot(self, now: float | None = None) -> None:
        """The monotonic clock begins anew, at `now`; in a container it goes on."""
        if now is not None:
            self.past, self.now = self.past + self.now - now, now
        self.boot, self.began = self.boot + "+", self.now


@dataclass
class LocalSystemd(Systemd):
    """Services are child processes of the test. The timer is its lock, held; a test fires it by hand."""

    unit_dir: Path = Path("/nowhere")
    run_dir: Path = Path("/nowhere")
    root: Path = Path("/nowhere")
    commands: dict[str, list[str]] = field(default_factory=dict)
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    broken_on: str = ""  # a generation on which no service starts
    timers: list[int] = field(default_factory=list)
    said_at: float = 0.0  # wall time of the one line in the log
    enqueued: list[str] = field(default_factory=list)  # jobs that wait until the boot has come so far
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # of UnitState, where a unit is special

    def is_running(self) -> bool:
        return True

    def show(self, unit: str) -> UnitState:
        process = self.running.get(unit)
        is_up = process is not None and process.poll() is None
        state = UnitState("active" if is_up else "inactive", process.pid if process and is_up else 0, None)
        return state._replace(**self.settings.get(unit, {}))

    def programs(self) -> dict[str, list[str]]:
        return {unit: command[:1] for unit, command in self.commands.items() if unit in self.running}

    def start(self, *units: str, should_stop: ShouldStop = never) -> CallResult:
        if should_stop():
            return CallResult(ok=False, text="stopped on request")
        outcomes = [self._start(unit) for unit in units if self.show(unit).active != "active"]
        return CallResult(ok=all(each.ok for each in outcomes), text="; ".join(each.text for each in outcomes))

    def _start(self, unit: str) -> CallResult:
        if self.broken_on and (self.root / "current").readlink().name.endswith(self.broken_on):
            return CallResult(ok=False, text="broken here")
        env_file = self.root / "current" / "env"
        drop_in = self.unit_dir / f"{unit}.d" / "cudaup.conf"
        asserted = (
            re.search(r"^AssertPathExists=!(.+)$", drop_in.read_text(), re.MULTILINE) if drop_in.exists() else None
        )
        if asserted and Path(asserted[1]).exists():
            return CallResult(ok=False, text=f"Assertion failed on job for {unit}.")
        env = envfile.parse(env_file.read_text()) if drop_in.exists() and env_file.exists() else {}
        process = subprocess.Popen(self.commands[unit], env=env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # it says when it is up
        self.running[unit] = process
        return CallResult(ok=True, text="")

    def enqueue(self, *units: str) -> CallResult:
        self.enqueued.extend(units)
        return CallResult(ok=True, text="")

    def stop(self, *units: str, should_stop: ShouldStop = never) -> CallResult:
        for process in [self.running.pop(unit) for unit in units if unit in self.running]:
            process.kill()
            process.communicate()
        return CallResult(ok=not should_stop(), text="")

    def reset_failed(self, *units: str) -> CallResult:
        return CallResult(ok=True, text=" ".join(units))

    def enable(self, unit: str) -> CallResult:
        return CallResult(ok=True, text=unit)

    def disable(self, unit: str) -> CallResult:
        return CallResult(ok=True, text=unit)

    def reload(self) -> CallResult:
        return CallResult(ok=True, text="")

    def run_transient(self, unit: str, properties: Sequence[str], argv: Sequence[str]) -> CallResult:
        assert (unit[:15], argv[1], bool(properties)) == ("cudaup-deadman-", "deadman", True)
        if not self.timers:
            self.timers.append(os.open(self.root / "timer.lock", os.O_RDWR | os.O_CREAT))
            fcntl.flock(self.timers[0], fcntl.LOCK_EX)
        return CallResult(ok=True, text="")

    def log(self, units: Sequence[str], since: float, until: float) -> str:
        """One line, from `said_at`."""
        return f"log of {' '.join(units)}" if since <= self.said_at <= until else ""

    def unit_of(self, pid: int) -> str | None:
        return next((unit for unit, process in self.running.items() if process.pid == pid), None)

    def close(self) -> None:
        for unit in list(self.running):
            self.stop(unit)
        for fd in self.timers:
            os.close(fd)


@dataclass
class Machine:
    """`path` is the environment that was there before cudaup; `ml.service` runs from it."""

    folder: Path
    clock: HandClock
    systemd: LocalSystemd

    @property
    def ctx(self) -> Context:
        root = self.folder / "opt" / "cudaup"
        return Context(root, Channel(), io.BytesIO(), clock=self.clock, systemd=self.systemd)

    @property
    def path(self) -> Path:
        return self.folder / "ml-env"

    def call(self, epoch: int | None = None, **options: object) -> Context:
        return replace(self.ctx, epoch=epoch, options=options)

    def take_lease(self, run: str = "r-1", ttl_s: float = 60) -> int:
        asked: Json = {"holder": "ann@laptop", "run": run, "reason": "upgrade", "ttl": ttl_s, "take_over": False}
        taken = lease.take(replace(self.ctx, options=asked))
        return int(taken["lease"]["epoch"])

    def served_from(self) -> str:
        """The generation the service really runs from, as its own process sees it."""
        pid = self.systemd.show("ml.service").pid
        script = Path(f"/proc/{pid}/cwd").readlink() if pid else Path("/nowhere/venv")
        return script.parent.name if script.name == "venv" else script.name

    def stage(self, generation: str, *, breaks: bool = False) -> str:
        """A second generation as `stage` leaves it; `breaks` makes its own record a lie, which its smoke finds."""
        layout = self.ctx.layout
        folder = layout.generation(generation)
        make_environment(folder / "venv", "2.0", breaks=breaks)
        (folder / "env").write_text(envfile.render({"CUDA_HOME": f"{folder}/cuda"}))
        manifest.seal(folder, manifest.Digests())
        record = {"id": generation, "number": int(generation[:4]), "digest": "d" * 64, "kind": "staged", "name": "new"}
        record |= {"created": 1.0, "confirmed": False, "proven": None, "packages": {"demo": "2.0"}}
        generations.save(layout, record)
        return generation


def make_environment(venv: Path, version: str, *, breaks: bool = False) -> None:
    """A tiny virtual environment with one package, and the program the service runs."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = venv / "lib" / name / "site-packages"
    info = site / f"demo-{version}.dist-info"
    info.mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (venv / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\nversion = 3.11.7\n")
    (venv / "serve.py").write_text(
        "import os, time\nos.chdir(os.path.dirname(os.path.realpath(__file__)))\nprint('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    content = f"VERSION = {version!r}\n".encode()
    (site / "demo.py").write_bytes(content + (b"# edited\n" if breaks else b""))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"demo.py,sha256={digest},{len(content)}\ndemo-{version}.dist-info/RECORD,,\n")


def states(answer: Json) -> tuple[str, ...]:
    return tuple(str(answer[key]) for key in ("state", "from", "to"))
