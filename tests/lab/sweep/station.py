"""One lab host with two stacks to go between, its reader, and commands against it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml
from tests.lab.command import small_stack
from tests.lab.conftest import take_down
from tests.lab.sweep.controller import Controller
from tests.lab.sweep.watcher import Watcher

from cudaup.adapters.hostprogram import zipapp
from cudaup.adapters.stack_file import load_stack
from cudaup.adapters.wheels import PipWheelStore, cache_directory
from cudaup.host.boot import BOOT
from cudaup.lab.fleet import Lab

HOST = "h1"
DISK = "ext4:1g"
UP_LIMIT_S = 120.0
TIMERS = {"lease_s": 4, "ttl_s": 4, "ceiling_s": 30}
PATIENT = {"lease_s": 60, "ttl_s": 60, "ceiling_s": 240}
OTHER_PACKAGING = {
    "name": "packaging",
    "version": "25.0",
    "filename": "packaging-25.0-py3-none-any.whl",
    "sha256": "29572ef2b1f17581046b3a2227d5c611fb25ec70ca1ba8554b24b0e69331a484",
    "size": 66469,
}
# By variant, which is what CUDAUP_TEST says; "" is the environment that was there before cudaup.
VERSIONS = {
    "": {"msgpack": "1.0.8", "packaging": "23.2"},
    "a": {"msgpack": "1.2.4", "packaging": "26.4"},
    "b": {"msgpack": "1.2.4", "packaging": "25.0"},
    "sick": {"msgpack": "1.2.4", "packaging": "25.0"},
    "spoilt": {"msgpack": "1.2.4", "packaging": "25.0"},
}
# The service of the variant `sick` runs and answers, and is not well.
_SICK = {"CUDAUP_TEST": "sick", "CUDA_HOME": "/sick"}
_NOT_SICK = {"command": ["sh", "-c", "curl -sf http://127.0.0.1:8000/ | grep -v /sick"], "timeout_s": 3}
SPOILT = "/run/spoilt"
# What the old stack does not pass before a switch is refused: so it fails only in the middle of one.
_NOT_SPOILT = {"command": ["sh", "-c", f"test ! -e {SPOILT} || test ! -e /opt/cudaup/transit.json"], "timeout_s": 1}
_HEALTH = {"http": {"url": "http://127.0.0.1:8000/health", "timeout_s": 20}}
_numbers = itertools.count()


def write_stacks(folder: Path) -> dict[str, Path]:
    stacks = {name: small_stack(folder, name, timers=TIMERS, health=_HEALTH) for name in ("a", "b")}
    stacks["sick"] = small_stack(folder, "sick", timers=TIMERS, health=_NOT_SICK, env=_SICK)
    stacks["spoilt"] = small_stack(folder, "spoilt", timers=TIMERS, health=_NOT_SPOILT)
    for name in ("b", "sick", "spoilt"):
        stack = yaml.safe_load(stacks[name].read_text())
        stack["wheels"] = [OTHER_PACKAGING if each["name"] == "packaging" else each for each in stack["wheels"]]
        stacks[name].write_text(yaml.safe_dump(stack))
    for name in ("a", "b"):  # the same generations, for commands that no fault meets: a busy machine is none
        stack = yaml.safe_load(stacks[name].read_text())
        stacks[f"{name}, patiently"] = folder / f"{name}-patiently.yml"
        stacks[f"{name}, patiently"].write_text(yaml.safe_dump({**stack, "timers": PATIENT}))
    for path in stacks.values():  # now: in the lab's network namespace there is no index
        stack = load_stack(path)
        PipWheelStore(cache_directory(os.environ)).fetch((*stack.wheels, stack.uv), lambda _: None)
    return stacks


@dataclass(frozen=True)
class Snapshot:
    """A host's own word for how it stands, and what its service really runs."""

    status: dict[str, Any]
    service: str | None
    pid: int

    @property
    def variant(self) -> str:
        """Of the current generation."""
        current = self.status["current"]
        is_ours = current is not None and current["kind"] == "staged"
        return str(current["name"]).removeprefix("small-") if is_ours else ""

    @property
    def end(self) -> dict[str, Any] | None:
        """How the last transit ended."""
        end: dict[str, Any] | None = self.status["last_end"]
        return end

    @property
    def is_settled(self) -> bool:
        return self.status["transit"] is None and self.status["busy"] is None

    @property
    def is_quarantined(self) -> bool:
        return bool(self.status["lease"]["state"] == "quarantined")

    @property
    def is_takeable(self) -> bool:
        """One taken by hand binds nobody once its process is gone."""
        lease = self.status["lease"]
        return bool(lease["state"] == "free" or lease["expired"] or (lease["run"] == "by-hand" and self.is_settled))

    def generation(self, variant: str) -> str:
        """The newest of that variant; empty when the host has none."""
        name, kind = (f"small-{variant}", "staged") if variant else ("", "adopted")
        known = reversed(self.status["generations"])
        found = (str(each["id"]) for each in known if each["kind"] == kind and name in {"", each["name"]})
        return next(found, "")


@dataclass
class Station:
    lab: Lab
    folder: Path
    stacks: dict[str, Path]
    watcher: Watcher
    runs: Iterator[int] = field(default_factory=itertools.count)
    followups: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def up(cls, folder: Path) -> Self:
        """Boot, and bring it to a stack of ours, so that the other one is a switch away."""
        name = f"sweep{os.getpid()}-{next(_numbers)}"
        folder.mkdir(parents=True)
        lab = Lab.up(name, hosts=1, disk=DISK)
        station = cls(lab, folder, write_stacks(folder), Watcher(lab, HOST, VERSIONS))
        for variant in ("b", "a"):
            command = station.apply(f"{variant}, patiently")
            command.wait(UP_LIMIT_S)
            assert command.words() == "applied", command.said()
        return station

    def down(self) -> None:
        self.watcher.close()
        take_down(self.lab.name)

    @property
    def cpu_s(self) -> float:
        """What the lab, its host and the controllers have used."""
        usage = dict(line.split() for line in (self.lab.spec.cgroup / "cpu.stat").read_text().splitlines())
        return int(usage["usage_usec"]) / 1e6

    def start(self, *argv: str, **options: Any) -> Controller:
        """`cudaup` with this station's inventory; JSON on its standard output."""
        command, *more = argv
        words = [command, "-i", str(self.lab.inventory), *more, "--json"]
        return Controller.start(self.lab, self._run_folder(), words, **options)

    def apply(self, variant: str, **options: Any) -> Controller:
        return self.start("apply", "-s", str(self.stacks[variant]), "--yes", **options)

    def ask(self, *argv: str) -> dict[str, Any]:
        """The host program's last word, streamed as the controller does, but by no network."""
        token, program = "0123456789abcdef", zipapp()
        request = json.dumps({"argv": argv}).encode()
        stdin = f"{token}\n{len(program)} {len(request)}\n".encode() + program + request
        command = self.lab.host_argv(HOST, ["python3", "-c", BOOT, token])
        done = subprocess.run(command, input=stdin, capture_output=True, check=False)
        last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1].partition(b" ")[2])
        return last

    def look(self) -> dict[str, Any]:
        return self.watcher.ask("look")

    def snapshot(self) -> Snapshot:
        seen = self.look()
        return Snapshot(self.ask("status")["data"], seen["service"], seen["pid"])

    def by_hand(self, *argv: str) -> ByHand:
        """The installed host program, called on the host itself."""
        folder = self._run_folder()
        folder.mkdir()
        command = self.lab.host_argv(HOST, ["/opt/cudaup/bin/cudaup-host", *argv])
        with (folder / "out").open("w") as out:
            return ByHand(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT), folder)

    def _run_folder(self) -> Path:
        return self.folder / f"run-{next(self.runs)}"


_WORDS = {"rolled-back-proven": "rolled-back", "rolled-back-unproven": "rollback-unproven"}


@dataclass
class ByHand:
    """To an experiment it is like a controller."""

    process: subprocess.Popen[bytes]
    folder: Path

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, limit_s: float) -> bool:
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def words(self) -> str:
        """The outcome as a controller would call it; empty when it was killed."""
        lines = self.said().splitlines()
        if self.process.returncode not in {0, 3, 4} or not lines:
            return ""
        answer = json.loads(lines[-1])
        if answer["kind"] == "refused":
            return "refused"
        state = str(answer["data"].get("state", "done"))
        return _WORDS.get(state, state)

    def said(self) -> str:
        return (self.folder / "out").read_text(errors="replace")
