"""The `Machine` without what makes it slow, for thousands of commands: the same host program on the same real files.

Instead of real processes there is a table of them, which the program reads in place of /proc; smoke cases are judged in
this process. And the program can be killed before any one of its effects on files and services.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.unit.host_state.machine import HandClock, LocalSystemd, Machine, make_environment

from cudaup.host import envfile, processes, smoke, spec, stage
from cudaup.host.command import Ran
from cudaup.host.mounts import prepare_root
from cudaup.host.protocol import Context, Json
from cudaup.host.systemd import CallResult, ShouldStop, UnitState, never
from cudaup.smoke import record

UNIT = "ml.service"
ADOPTED = "path"  # where a process runs from that came before cudaup, or runs from the adopted generation


class Killed(BaseException):
    """What SIGKILL is to a process: nothing after it runs."""


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_SERVICE = "cudaup.test.service"  # our own audit event
_PATHS = {"open": 0, "os.rename": 0, "os.remove": 0, "os.rmdir": 0, "os.mkdir": 0, "os.symlink": 1}


@dataclass
class Effects:
    """Every effect below `folder`, numbered as Python's audit events tell of them, before they happen.

    Before number `at` something else happens: the program ends, and a dead program's `finally` and `except` have no
    effect any more either; or what `meanwhile` does, as another process would.
    """

    folder: Path
    at: int | None = None
    meanwhile: Callable[[], None] | None = None
    count: int = 0

    def notice(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_effect(event, args):
            return
        self.count += 1
        if self.at is None or self.count < self.at:
            return
        if self.meanwhile is None:
            raise Killed
        self.at = None
        with _watched_by(None):
            self.meanwhile()

    def _is_effect(self, event: str, args: tuple[Any, ...]) -> bool:
        if event == _SERVICE:
            return True
        if event == "ctypes.dlsym":  # glibc's function for which Python has none
            return bool(args[1] == "renameat2")
        if event not in _PATHS or (event == "open" and not int(args[2] or 0) & _WRITING):
            return False
        path = args[_PATHS[event]]
        if event in {"os.remove", "os.rmdir"} and args[1] >= 0:
            path = Path(f"/proc/self/fd/{args[1]}").readlink() / os.fsdecode(path)
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(str(self.folder))


_watching: Effects | None = None


def _audited(event: str, args: tuple[Any, ...]) -> None:
    if _watching is not None:
        _watching.notice(event, args)


sys.addaudithook(_audited)  # for good: there is no way to take one away


def effects_of(
    folder: Path, at: int | None = None, meanwhile: Callable[[], None] | None = None
) -> AbstractContextManager[Effects]:
    return _watched_by(Effects(folder, at, meanwhile))


@contextmanager
def _watched_by(effects: Effects | None) -> Iterator[Any]:
    global _watching  # noqa: PLW0603 - the hook is the interpreter's, so this is too
    before, _watching = _watching, effects
    try:
        yield effects
    finally:
        _watching = before


@dataclass(frozen=True)
class Process:
    """`cwd` is a descriptor, so that it follows a directory that is moved, as a real one does."""

    argv: tuple[str, ...]
    cwd: int
    environ: Mapping[str, str]
    unit: str | None


class ProcessTable(dict[int, Process]):
    last = 1000

    def spawn(self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], unit: str | None) -> int:
        self.last += 1
        self[self.last] = Process(tuple(argv), os.open(cwd, os.O_PATH | os.O_DIRECTORY), environ, unit)
        return self.last

    def end(self, pid: int) -> None:
        os.close(self.pop(pid).cwd)

    def read(self, pid: int, name: str) -> str:
        if pid not in self or name == "maps":
            return ""
        texts = {"cmdline": self[pid].argv, "environ": [f"{key}={text}" for key, text in self[pid].environ.items()]}
        return "".join(text + "\0" for text in texts[name])

    def link(self, pid: int, name: str) -> str:
        return str(Path(f"/proc/self/fd/{self[pid].cwd}").readlink()) if pid in self and name == "cwd" else ""

    def place(self, pid: int) -> str:
        """Which environment it runs from: a generation, or `ADOPTED`."""
        folder = Path(self.link(pid, "cwd"))
        return folder.parent.name if folder.name == "venv" else ADOPTED


@dataclass
class TableSystemd(LocalSystemd):
    """`faults` says in which environment the service does not start, or dies as soon as it is up."""

    table: ProcessTable = field(default_factory=ProcessTable)
    path: Path = Path("/nowhere")
    faults: dict[str, str] = field(default_factory=dict)
    has_timers: bool = True

    def _pid(self, unit: str) -> int:
        return next((pid for pid, process in self.table.items() if process.unit == unit), 0)

    def show(self, unit: str) -> UnitState:
        pid = self._pid(unit)
        return UnitState("active" if pid else "inactive", pid, None)

    def start(self, *units: str, should_stop: ShouldStop = never) -> CallResult:
        if should_stop():
            return CallResult(ok=False, text="stopped on request")
        outcomes = [self._start(unit) for unit in units]
        return CallResult(ok=all(each.ok for each in outcomes), text="".join(each.text for each in outcomes))

    def _start(self, unit: str) -> CallResult:
        sys.audit(_SERVICE, "start", unit)
        if self._pid(unit):
            return CallResult(ok=True, text="")
        env_file = self.root / "current" / "env"
        has_drop_in = (self.unit_dir / f"{unit}.d" / "cudaup.conf").exists()
        env = envfile.parse(env_file.read_text()) if has_drop_in and env_file.exists() else {}
        argv = [str(self.path / "bin" / "python"), str(self.path / "serve.py")]
        pid = self.table.spawn(argv, os.path.realpath(self.path), env, unit)
        fault = self.faults.get(self.table.place(pid), "")
        if fault:
            self.table.end(pid)
        return CallResult(ok=fault != "start", text=fault)

    def stop(self, *units: str, should_stop: ShouldStop = never) -> CallResult:
        if should_stop():
            return CallResult(ok=False, text="stopped on request")
        for unit in units:
            sys.audit(_SERVICE, "stop", unit)
            pid = self._pid(unit)
            if pid:
                self.table.end(pid)
        return CallResult(ok=True, text="")

    def enqueue(self, *units: str) -> CallResult:
        for unit in units:
            sys.audit(_SERVICE, "enqueue", unit)
        return super().enqueue(*units)

    def unit_of(self, pid: int) -> str | None:
        return self.table[pid].unit if pid in self.table else None

    def run_transient(self, unit: str, properties: Sequence[str], argv: Sequence[str]) -> CallResult:
        sys.audit(_SERVICE, "timer", unit)
        if not self.has_timers:
            return CallResult(ok=False, text="no timers today")
        return super().run_transient(unit, properties, argv)

    def end_timer(self) -> None:
        while self.timers:
            os.close(self.timers.pop())

    def close(self) -> None:
        self.end_timer()
        for pid in list(self.table):
            self.table.end(pid)


class QuickClock(HandClock):
    def sleep(self, seconds: float) -> None:
        self.now += seconds


class QuickMachine(Machine):
    """A host with an environment at `path` and its service; of cudaup nothing but the program is there."""

    systemd: TableSystemd

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: HandClock | None = None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="cudaup-test-", dir=_memory()))
        root = folder / "opt" / "cudaup"
        systemd = TableSystemd(unit_dir=folder / "systemd", run_dir=folder / "run", root=root, path=folder / "ml-env")
        super().__init__(folder, clock or QuickClock(), systemd)
        systemd.unit_dir.mkdir()
        systemd.run_dir.mkdir()
        (folder / "python3").write_bytes(b"an interpreter that is hashed quickly\n")
        (folder / "python3").chmod(0o755)
        self.make_environment(self.path, "1.0")
        self._replace_what_is_slow(monkeypatch)
        self.install()
        systemd.start(UNIT)

    def _replace_what_is_slow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = self.systemd.table
        monkeypatch.setattr(processes, "pids", lambda: list(table))
        monkeypatch.setattr(processes, "_read", table.read)
        monkeypatch.setattr(processes, "_link", table.link)
        monkeypatch.setattr(processes, "_list_fds", lambda _pid: [])
        monkeypatch.setattr(smoke, "run_contained", _judged)
        monkeypatch.setattr(stage, "_require_space", lambda *_: None)
        monkeypatch.setattr(stage, "_interpreter", lambda *_: {"path": "", "version": ""})
        monkeypatch.setattr(stage, "_fill", self._fill)
        monkeypatch.setattr("cudaup.host.uv.link_mode", lambda *_: "hardlink")
        monkeypatch.setattr("cudaup.host.uv.cache", lambda *_: nullcontext())
        monkeypatch.setattr("cudaup.host.recorded.unlike", lambda *_: [])  # a lie is for the smoke to find
        monkeypatch.setattr(os, "fsync", lambda *_: None)  # no power is lost here

    def make_environment(self, venv: Path, version: str, *, breaks: bool = False) -> None:
        make_environment(venv, version, breaks=breaks)
        python = venv / "bin" / "python"
        python.unlink()
        python.symlink_to(self.folder / "python3")

    def install(self) -> None:
        """What comes first on any host: its root and the program that the timer runs."""
        prepare_root(self.ctx.layout)
        self.ctx.layout.program.parent.mkdir(exist_ok=True)
        self.ctx.layout.program.touch()

    def spec_call(self, epoch: int | None, number: int, *, breaks: bool = False) -> Context:
        """A `stage` of the `number`-th stack; `breaks` gives it a record that lies, which its smoke finds."""
        env = {"NUMBER": str(number), "BREAKS": "yes" if breaks else ""}
        uv = {"filename": "uv-1-py3-none-any.whl", "sha256": "0" * 64, "size": 1}
        wanted: Json = {"name": f"stack-{number}", "python": {"version": ">=3"}, "wheels": [], "uv": uv}
        content = json.dumps({**wanted, "env": env, "toolkit": None}).encode()
        call = self.call(epoch, spec_bytes=len(content))
        call.stdin.write(content)
        call.stdin.seek(0)
        return call

    def _fill(
        self, _ctx: Context, wanted: spec.Spec, _python: Json, staging: Path, final: Path, _shared_by: str
    ) -> None:
        self.make_environment(staging / "venv", f"2.{wanted.env['NUMBER']}", breaks=bool(wanted.env["BREAKS"]))
        (staging / "cache").mkdir()
        (staging / "env").write_text(envfile.render({**wanted.env, "CUDA_HOME": f"{final}/cuda"}))

    def close(self) -> None:
        self.systemd.close()
        shutil.rmtree(self.folder)

    def runs_in(self) -> str | None:
        """The environment of the service: a generation or `ADOPTED`; None when it is down."""
        pid = self.systemd.show(UNIT).pid
        return self.systemd.table.place(pid) if pid else None


def _memory() -> str | None:
    """A folder there, when programs may run from it: a root is refused elsewhere."""
    place = "/dev/shm"  # noqa: S108 - mkdtemp makes it ours
    return place if os.path.isdir(place) and not os.statvfs(place).f_flag & os.ST_NOEXEC else None  # noqa: PTH112


def _judged(argv: Sequence[str], limit_s: float, env: Mapping[str, str], **_: object) -> Ran:
    """The smoke case `record`, not in a process of its own."""
    assert argv[3] == "cudaup.smoke.record", argv
    assert limit_s > 0
    assert env
    venv = Path(json.loads(Path(argv[-1]).read_text())["venv"])
    verdict = record.judge(sorted(venv.glob("lib/python3*/site-packages")))
    return Ran(0, json.dumps(verdict._asdict()), "", 0.0)
