"""A lab, for the command line and for tests: up, down, run, faults."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from cudaup.domain.errors import CudaupError, UsageError
from cudaup.lab import access, boot, machine, registry
from cudaup.lab.cgroup import GUESTS
from cudaup.lab.faults import Fault
from cudaup.lab.gpus import PROFILES
from cudaup.lab.paths import Files
from cudaup.lab.root import cached_root
from cudaup.lab.spec import BASTION, Disk, Init, LabSpec, check_name, fleet_of

_READY_S, _READY_PER_HOST_S = 20.0, 0.5  # fail fast: a host that works answers in one second
_CALL_S = 60.0
# Joins the lab's cgroup, then becomes the command.
_JOIN = 'echo $$ >"$0" && exec "$@"'


@dataclass(frozen=True, kw_only=True)
class Lab:
    """One lab that is up. `hosts` are the fleet's names, without a bastion."""

    spec: LabSpec
    warden_pid: int

    @classmethod
    def up(
        cls,
        name: str = "lab",
        hosts: int = 3,
        gpus: str = "pro6000x8",
        init: str = "systemd",
        disk: str = "tmpfs:2g",
        user: str | None = None,
        *,
        bastion: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Build what is missing, boot, wait until every host answers. Raises UsageError or CudaupError."""
        machine.require_lab_machine()
        spec = _wanted(name, hosts, gpus, init, disk, user, bastion=bastion)
        spec = replace(spec, root=cached_root(note))
        registry.claim(spec)
        with ExitStack() as undo:  # also on Ctrl-C: half a lab is none
            undo.callback(registry.release, spec)
            lab = cls(spec=spec, warden_pid=_start_warden(spec))
            ready_s = _READY_S + _READY_PER_HOST_S * len(spec.hosts)
            lab.call({"op": "ready", "timeout_s": ready_s}, timeout_s=_CALL_S + ready_s)
            undo.pop_all()
        return lab

    @classmethod
    def find(cls, name: str = "lab") -> Self:
        """Raises UsageError when it is not there, or dead."""
        machine.require_lab_machine()
        record = registry.read(name)
        if record.warden_pid is None or not record.is_up:
            raise UsageError(f"the lab `{name}` is dead", fix=f"cudaup lab down --name {name}, or up again")
        return cls(spec=record.spec, warden_pid=record.warden_pid)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def directory(self) -> Path:
        return self.spec.directory

    @property
    def inventory(self) -> Path:
        return Files(self.directory).inventory

    @property
    def ssh_config(self) -> Path:
        return Files(self.directory).ssh_config

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.spec.hosts if host.name != BASTION)

    def address(self, host: str) -> str:
        return self.spec.host(host).address

    def down(self) -> None:
        registry.release(self.spec)

    def exec_argv(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` in the lab's network namespace, with the machine's own files."""
        return self._join([_tool("nsenter"), f"--net=/proc/{self.warden_pid}/ns/net", "--", *argv])

    def host_argv(self, host: str, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` inside a host, as root, whatever state its network is in."""
        state = self.state()[self.spec.host(host).name]
        if state["pid"] is None:
            raise UsageError("is off", host=host, fix=f"cudaup lab fault --name {self.name} {host} reboot")
        nsenter = _tool("nsenter")
        lab = [nsenter, "-t", str(self.warden_pid), "-p", "-m", "--"]
        inside = [nsenter, "-t", str(state["pid"]), "-a", "--"]
        environment = ["/usr/bin/env", "-i", *(f"{key}={value}" for key, value in boot.ENVIRONMENT.items())]
        no_more_than_the_host = ["/usr/bin/setpriv", f"--bounding-set={boot.DROPPED}"]
        return self._join([*lab, *inside, *no_more_than_the_host, *environment, *argv])

    def run(
        self,
        host: str,
        argv: Sequence[str],
        *,
        check: bool = True,
        input: str | None = None,  # noqa: A002 - as subprocess
    ) -> subprocess.CompletedProcess[str]:
        """Raises CudaupError with both streams when the command fails and `check` is set."""
        command = self.host_argv(host, argv)
        done = subprocess.run(command, check=False, capture_output=True, text=True, input=input or "")
        if check and done.returncode != 0:
            found = f"exit {done.returncode}\n{done.stdout}{done.stderr}".strip()
            raise CudaupError(f"`{' '.join(argv)}` failed", host=host, found=found)
        return done

    def fault(self, host: str, kind: str, *arguments: object) -> None:
        """Raises UsageError when there is no such fault, or the host cannot suffer it."""
        Fault.parse(kind, arguments)
        words = [str(argument) for argument in arguments]
        self.call({"op": "fault", "host": self.spec.host(host).name, "kind": kind, "arguments": words})

    def state(self) -> dict[str, dict[str, Any]]:
        """Per host `pid` (in the lab's pid namespace, None when off) and `boots`."""
        states: dict[str, dict[str, Any]] = self.call({"op": "state"})
        return states

    def call(self, request: dict[str, Any], timeout_s: float = _CALL_S) -> Any:
        """Ask the warden. Raises UsageError as it does, CudaupError when it fails or is gone."""
        files = Files(self.directory)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            try:
                connection.connect(str(files.control))
                connection.sendall(json.dumps(request).encode() + b"\n")
                line = connection.makefile().readline()
            except OSError as error:
                line = json.dumps({"text": f"the lab `{self.name}` does not answer: {error}"})
        reply = json.loads(line or f'{{"text": "the lab `{self.name}` died"}}')
        if reply.get("ok"):
            return reply["data"]
        if reply.get("usage"):
            raise UsageError(reply["text"])
        raise CudaupError(reply["text"], where=str(files.log), found=_end_of(files.log))

    def _join(self, argv: Sequence[str]) -> list[str]:
        return ["/bin/sh", "-c", _JOIN, str(self.spec.cgroup / GUESTS / "cgroup.procs"), *argv]


def _wanted(name: str, hosts: int, gpus: str, init: str, disk: str, user: str | None, *, bastion: bool) -> LabSpec:
    if gpus not in (*PROFILES, "none"):
        raise UsageError("bad --gpus", wanted=", ".join((*PROFILES, "none")), found=gpus)
    if init not in list(Init):
        raise UsageError("bad --init", wanted=", ".join(Init), found=init)
    return LabSpec(
        name=check_name("lab", name),
        directory=machine.LABS / name,
        root=machine.CACHE,
        cgroup=machine.unified_cgroup() / f"cudaup-lab-{name}",
        hosts=fleet_of(hosts, gpus, bastion=bastion),
        init=Init(init),
        disk=Disk.parse(disk),
        user=user and check_name("user", user, known=("root", "sshd", "daemon", "bin", "sys", "messagebus")),
    )


def _start_warden(spec: LabSpec) -> int:
    files = Files(spec.directory)
    access.make_keys(spec)
    with files.log.open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-m", "cudaup.lab.warden", str(spec.directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PATH": machine.tool_path()},
            start_new_session=True,  # Ctrl-C in the terminal that brought the lab up is not for the lab
            check=False,
        )
    if done.returncode != 0:
        raise CudaupError("the lab's warden did not start", where=str(files.log), found=_end_of(files.log))
    files.warden_pid.write_bytes(done.stdout)
    pid = int(done.stdout)
    access.write_configs(spec, pid)
    return pid


def _tool(name: str) -> str:
    return shutil.which(name, path=machine.tool_path()) or name


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])
