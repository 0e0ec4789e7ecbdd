"""`cudaup` as an experiment runs it: the real command line in a process of its own, which can be held and killed.

Ansible is replaced by the same calls over the same connections, unless asked for: it costs more than all the rest.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import yaml

from cudaup.adapters import hostprogram
from cudaup.adapters.connections import Connections
from cudaup.adapters.journal_store import FileJournal
from cudaup.app.ports import Json, PlayResult
from cudaup.domain.errors import ConnectionFailed, CudaupError
from cudaup.domain.events import Event
from cudaup.domain.inventory import Host
from cudaup.domain.inventory_vars import host_from_vars
from cudaup.domain.outcome import Outcome
from cudaup.lab import kernel
from cudaup.lab.cgroup import GUESTS
from cudaup.lab.fleet import Lab
from cudaup.lab.kernel import Namespaces
from cudaup.ui import cli, wiring

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["__main__", __name__])
_END_S = 30.0
_members = hostprogram._members  # noqa: SLF001 - no hook for this in the product


def members_with_pauses() -> dict[str, bytes]:
    """The host program's sources, and what numbers its journal's writes."""
    pausing = Path(__file__).with_name("pausing.py").read_bytes()
    start = {"cudaup/__init__.py": b"from cudaup.host import pausing\n", "cudaup/host/pausing.py": pausing}
    return {**_members(), **start}


# Before the archive is built, which happens once in a process.
hostprogram._members = members_with_pauses  # noqa: SLF001


@dataclass(frozen=True, kw_only=True)
class Command:
    """`hold_at` is the write of the run's journal to wait after."""

    argv: tuple[str, ...]
    folder: Path
    environ: Mapping[str, str]
    network: Path
    cgroup: Path
    hold_at: str = ""
    with_ansible: bool = False


@dataclass
class Controller:
    """A running command. Standard output and error are the files `out` and `err` of its folder."""

    process: Any
    held: Connection
    command: Command
    _is_held: bool = False

    @classmethod
    def start(cls, lab: Lab, folder: Path, argv: Sequence[str], **options: Any) -> Controller:
        folder.mkdir(parents=True, exist_ok=True)
        ours, theirs = _FORKS.Pipe()
        command = Command(
            argv=tuple(argv),
            folder=folder,
            environ={**os.environ, "CUDAUP_STATE": str(folder / "state")},
            network=Path(f"/proc/{lab.warden_pid}/ns/net"),
            cgroup=lab.spec.cgroup / GUESTS / "cgroup.procs",
            **options,
        )
        process = _FORKS.Process(target=_run, args=(command, theirs), daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours, command)

    def is_held(self) -> bool:
        """Whether it waits where it was told to."""
        with contextlib.suppress(EOFError):  # it was killed
            self._is_held = self._is_held or (self.held.poll() and self.held.recv() == "held")
        return self._is_held

    def go_on(self) -> None:
        self._is_held = False
        with contextlib.suppress(BrokenPipeError):  # it was killed
            self.held.send("go")

    def kill(self) -> None:
        self.process.kill()
        self.process.join(_END_S)

    def has_ended(self) -> bool:
        return not self.process.is_alive()

    def wait(self, limit_s: float) -> bool:
        self.process.join(limit_s)
        return self.has_ended()

    def words(self) -> str:
        """The host's outcome, checked against the exit code; empty when it was killed."""
        code = self.process.exitcode
        if code == -signal.SIGKILL:
            return ""
        try:
            report = json.loads((self.command.folder / "out").read_text())
        except ValueError:
            return f"exit {code}"
        (host,) = report["hosts"]
        outcome = str(host["outcome"])
        is_true = report["exit_code"] == code == Outcome(outcome).exit_code and not report["warning"]
        return outcome if is_true else f"{outcome}, exit {code}, warning {report['warning'] or 'none'}"

    def written(self) -> list[str]:
        """The run's journal, in words."""
        (journal,) = self.command.folder.glob("state/runs/*/journal.jsonl")
        return [_name(json.loads(line)) for line in journal.read_text().splitlines()]

    def said(self) -> str:
        names = ("out", "err")
        return "".join((self.command.folder / name).read_text(errors="replace") for name in names)


def _run(command: Command, held: Connection) -> None:
    """In the forked process: becomes a guest of the lab, then the command line."""
    command.cgroup.write_text("0")
    kernel.enter(command.network, Namespaces.NET)
    for number, name in ((1, "out"), (2, "err")):
        fd = os.open(command.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(fd, number)
    os.environ.update(command.environ)
    if command.hold_at:
        _hold(command.hold_at, held)
    if not command.with_ansible:
        setattr(wiring, "AnsiblePlays", Plays)  # noqa: B010 - mypy knows it as a class, not a variable
        setattr(wiring, "AnsibleInventories", Inventories)  # noqa: B010
    cli.main(list(command.argv))


def _name(record: Mapping[str, Any]) -> str:
    return f"{record['action']} {record['phase']}" if record["kind"] == "step" else str(record["kind"])


def _hold(at: str, held: Connection) -> None:
    """After that write is on the disk; what runs beside it, such as renewals, goes on."""
    append: Callable[[FileJournal, Mapping[str, Any]], None] = FileJournal.append

    def append_and_wait(self: FileJournal, record: Mapping[str, Any]) -> None:
        append(self, record)
        if _name(record) == at:
            held.send("held")
            held.recv()

    FileJournal.append = append_and_wait  # type: ignore[method-assign]


class Inventories:
    """What `cudaup lab` writes, and nothing else."""

    def read(self, sources: Sequence[str], limit: str | None) -> tuple[Host, ...]:
        (group,) = yaml.safe_load(Path(sources[0]).read_text()).values()
        names = [limit] if limit else list(group["hosts"])
        return tuple(host_from_vars(name, {**group["vars"], **group["hosts"][name]}) for name in names)


class Plays:
    """The play `prepare` without Ansible: its module's calls, over the run's own connections."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def run(
        self,
        playbook: str,
        hosts: Sequence[Host],
        variables: Mapping[str, Json],
        *,
        timeout_s: float,
        on_event: Callable[[Event], None],  # noqa: ARG002 - the port's
    ) -> Mapping[str, PlayResult]:
        assert playbook == "prepare"
        return {host.name: self._prepare(host, variables[host.name], timeout_s) for host in hosts}

    def _prepare(self, host: Host, wanted: Json, timeout_s: float) -> PlayResult:
        link = self._connections.link(host)
        spec = json.dumps(wanted["prepare_spec"], sort_keys=True).encode()
        calls = {
            "installed": (["host", "install"], b""),
            "adopted": (["adopt", wanted["prepare_adopt"]], b""),
            "staged": (["stage", "--spec-bytes", str(len(spec))], spec),
        }
        data: dict[str, Any] = {}
        try:
            if link.call(["status"], timeout_s=60).data["installed_sha256"] == hostprogram.digest():
                del calls["installed"]
            for key, (argv, stdin) in calls.items():
                epoch = ["--epoch", str(wanted["prepare_epoch"])]
                reply = link.call([*argv, *epoch], timeout_s=timeout_s, data=[stdin])
                data[key] = dict(reply.data)
        except ConnectionFailed as error:
            return _failed(host, error, is_unreachable=True)
        except CudaupError as error:
            return _failed(host, error, is_unreachable=False)
        changed = any(each["changed"] for each in data.values())
        return PlayResult(host=host.name, ok=True, changed=changed, text="", data=data)


def _failed(host: Host, error: CudaupError, *, is_unreachable: bool) -> PlayResult:
    text = error.told
    return PlayResult(host=host.name, ok=False, changed=False, text=text, data={}, is_unreachable=is_unreachable)


if __name__ == "__main__":
    cli.main(sys.argv[1:])
