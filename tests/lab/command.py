"""`cudaup` as a person calls it, and small stacks to call it with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cudaup.lab.fleet import Lab

TREE = Path(__file__).resolve().parents[2]
DEMO = TREE / "stacks" / "demo.yml"
LIMIT_S = 240
SMALL = {"msgpack", "packaging"}


@dataclass(frozen=True)
class Cudaup:
    """Its own state directory, the user's wheel cache: fetched once on a machine."""

    state: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cudaup.ui.cli", *map(str, arguments)]
        environ = {**os.environ, "CUDAUP_STATE": str(self.state), **self.environ}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def run(self, *arguments: str | Path, expect: int = 0) -> str:
        """Standard output and error together; any other exit code than `expect` fails with both."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}"
        return out + err

    def json(self, *arguments: str | Path, expect: int = 0) -> Any:
        process = self.start(*arguments, "--json")
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}"
        return json.loads(out)

    def outcomes(self, *arguments: str | Path, expect: int = 0) -> dict[str, str]:
        report = self.json(*arguments, expect=expect)
        return {host["host"]: host["outcome"] for host in report["hosts"]}

    def host_status(self, lab: Lab, host: str) -> dict[str, Any]:
        facts = self.json("status", "-i", lab.inventory, "-l", host)
        status: dict[str, Any] = facts[host]["cudaup"]
        return status


def small_stack(directory: Path, variant: str, *, timers: Mapping[str, float] | None = None, **changes: Any) -> Path:
    """Two small wheels, no toolkit, and an environment variable that makes it a generation of its own."""
    stack = yaml.safe_load(DEMO.read_text())
    del stack["toolkit"]
    stack |= {
        "name": f"small-{variant}",
        "imports": ["msgpack", "packaging"],
        "env": {"CUDAUP_TEST": variant},
        "wheels": [wheel for wheel in stack["wheels"] if wheel["name"] in SMALL],
        "smoke": {"cases": ["imports", "record"]},
        "timers": {"lease_s": 30, "ttl_s": 15, "ceiling_s": 120, **(timers or {})},
        **changes,
    }
    path = directory / f"{variant}.yml"
    path.write_text(yaml.safe_dump(stack))
    return path


def service(lab: Lab, host: str) -> dict[str, Any]:
    """What the service on the host says it really loaded."""
    answer: dict[str, Any] = json.loads(lab.run(host, ["curl", "-sf", "http://127.0.0.1:8000/"]).stdout)
    return answer


def by_hand(lab: Lab, host: str, *arguments: str) -> dict[str, Any]:
    """The host program's last word when called on the host itself."""
    done = lab.run(host, ["/opt/cudaup/bin/cudaup-host", *arguments], check=False)
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


def kill(process: subprocess.Popen[str]) -> None:
    """The controller alone, as a closed laptop would: what it started may linger a moment."""
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
