"""Ansible plays by ansible_runner: one play, one set of hosts, over connections that cudaup already holds."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_runner import Runner, RunnerConfig  # type: ignore[import-untyped]  # it has no stubs

import cudaup
from cudaup.adapters import hostprogram
from cudaup.adapters.broker import Broker, shells_of
from cudaup.adapters.connections import Connections
from cudaup.app.ports import Json, PlayResult
from cudaup.domain.errors import UsageError
from cudaup.domain.events import Event, Kind
from cudaup.domain.inventory import Host

OnEvent = Callable[[Event], None]

_MAX_FORKS = 50
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
# Ansible runs with this and nothing else of the caller's environment: a user's ANSIBLE_* cannot bend a play, and
# ansible_runner writes the environment to a file.
_PASSED_ON = ("HOME", "PATH", "PYTHONPATH", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "SSL_CERT_FILE")
_FIXED = {
    "ANSIBLE_PIPELINING": "True",
    "ANSIBLE_GATHERING": "explicit",
    "ANSIBLE_RETRY_FILES_ENABLED": "False",
    "ANSIBLE_NOCOLOR": "True",
    "ANSIBLE_DEPRECATION_WARNINGS": "False",
    "ANSIBLE_REMOTE_TEMP": "/tmp",  # noqa: S108  Ansible makes a 0700 directory of its own there, and nothing stays
    "ANSIBLE_INJECT_FACT_VARS": "False",
    "LC_ALL": "C.UTF-8",
}


def playbooks_directory() -> Path:
    """In a checkout at its top; in an installed wheel inside the package."""
    package = Path(cudaup.__file__).parent
    for candidate in (package / "playbooks", package.parent.parent / "playbooks"):
        if candidate.is_dir():
            return candidate
    raise UsageError("the playbooks are missing from this installation", where=str(package), fix="install cudaup again")


class AnsiblePlays:
    """The Plays of a run. Hosts are reached through `connections`, as root, so plays need neither keys nor become."""

    def __init__(self, connections: Connections, playbooks: Path | None = None) -> None:
        self._connections = connections
        self._playbooks = playbooks or playbooks_directory()

    def run(
        self,
        playbook: str,
        hosts: Sequence[Host],
        variables: Mapping[str, Json],
        *,
        timeout_s: float,
        on_event: OnEvent,
    ) -> Mapping[str, PlayResult]:
        if not hosts:
            return {}
        watch = _Watch(on_event)
        with (
            tempfile.TemporaryDirectory(prefix="cudaup-play-") as directory,
            Broker(shells_of(self._connections, hosts)) as broker,
        ):
            program = Path(directory, "cudaup-host.pyz")
            program.write_bytes(hostprogram.zipapp())
            _write_inventory(Path(directory), hosts, variables, program)
            config = RunnerConfig(
                private_data_dir=directory,
                playbook=str(self._playbooks / f"{playbook}.yml"),
                forks=min(len(hosts), _MAX_FORKS),
                timeout=max(1, round(timeout_s)),
                quiet=True,
            )
            config.prepare()
            config.pexpect_timeout = 1  # how often it looks at the time limit
            config.env = self._environment(config.env, broker.socket_path, directory)
            runner = Runner(config=config, event_handler=watch.see, remove_partials=True)
            runner.run()
            why = f"no end within {timeout_s:g} s" if runner.status == "timeout" else watch.last_words(runner.status)
        return {host.name: watch.result(host.name, why) for host in hosts}

    def _environment(self, prepared: Mapping[str, str], socket_path: str, directory: str) -> dict[str, str]:
        # What ansible_runner itself needs to hear from its callback plugin.
        own = {key: prepared[key] for key in prepared if key.startswith(("AWX_", "RUNNER_")) and key not in os.environ}
        callbacks = {key: prepared[key].rpartition(":")[2] for key in ("ANSIBLE_CALLBACK_PLUGINS",) if key in prepared}
        passed_on = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        return {
            **own,
            **callbacks,
            **passed_on,
            **_FIXED,
            "ANSIBLE_STDOUT_CALLBACK": prepared["ANSIBLE_STDOUT_CALLBACK"],
            "ANSIBLE_COLLECTIONS_PATH": str(self._playbooks / "collections"),
            "ANSIBLE_CONFIG": str(Path(directory, "ansible.cfg")),
            "ANSIBLE_HOME": directory,
            "ANSIBLE_LOCAL_TEMP": directory,
            "CUDAUP_BROKER": socket_path,
            # ansible-playbook of this very Python, whatever is first in the user's PATH.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }


@dataclass
class _Watch:
    """Turns ansible_runner's events into ours and remembers how each host ended."""

    on_event: OnEvent
    ended: dict[str, PlayResult] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    words: list[str] = field(default_factory=list)

    def see(self, event: Mapping[str, Any]) -> bool:
        data = event.get("event_data") or {}
        host, task, name = data.get("host"), data.get("task", ""), str(event.get("event", ""))
        result = data.get("res") or {}
        if host is None or not name.startswith("runner_on_"):
            if event.get("stdout"):
                self.words.append(str(event["stdout"]))
            return False  # ansible_runner need not store it
        kind = _kind(name, result)
        text = _text(result)
        if kind is not None:
            self.on_event(Event(time=time.time(), host=host, step=task, kind=kind, text=text))
        if name in {"runner_on_ok", "runner_on_failed", "runner_on_unreachable"} and not data.get("ignore_errors"):
            self._remember(host, name, text, result)
        return False

    def result(self, host: str, why_none: str) -> PlayResult:
        none = PlayResult(host=host, ok=False, changed=False, text=why_none, data={})
        return self.ended.get(host, none)

    def last_words(self, status: str) -> str:
        """For a play that never got to its hosts: what Ansible printed."""
        return "\n".join(self.words[-5:]).strip() or f"Ansible ended: {status}"

    def _remember(self, host: str, name: str, text: str, result: Mapping[str, Any]) -> None:
        before = self.ended.get(host)
        if before is not None and not before.ok:
            return
        data = {key: value for key, value in result.items() if not key.startswith("_") and key != "invocation"}
        self.ended[host] = PlayResult(
            host=host,
            ok=name == "runner_on_ok",
            changed=bool(result.get("changed")) or (before is not None and before.changed),
            text=text,
            data=data,
            is_unreachable=name == "runner_on_unreachable",
        )


def _kind(name: str, result: Mapping[str, Any]) -> Kind | None:
    if name == "runner_on_ok":
        return Kind.DONE if result.get("changed") else Kind.UNCHANGED
    kinds = {"runner_on_start": Kind.STARTED, "runner_on_failed": Kind.FAILED, "runner_on_unreachable": Kind.FAILED}
    return kinds.get(name)


def _text(result: Mapping[str, Any]) -> str:
    return str(result.get("msg") or "").strip()


def _write_inventory(directory: Path, hosts: Sequence[Host], variables: Mapping[str, Json], program: Path) -> None:
    """No addresses, no users, no secrets: the broker knows them."""
    (directory / "ansible.cfg").touch()  # an empty one, so that no other is looked for
    inventory = directory / "inventory"
    inventory.mkdir()
    content = {
        "all": {"hosts": {host.name: _host_variables(host, variables.get(host.name, {}), program) for host in hosts}}
    }
    (inventory / "hosts.json").write_text(json.dumps(content), encoding="utf-8")


def _host_variables(host: Host, variables: Json, program: Path) -> dict[str, Any]:
    return {
        "ansible_connection": "cudaup.stack.broker",
        "ansible_python_interpreter": host.python,
        "prepare_program": str(program),
        **{key: _literal(value) for key, value in variables.items()},
    }


def _literal(value: Any) -> Any:
    """Values from a plan are data: Ansible must not take `{{` in them for a template."""
    if isinstance(value, str):
        return {"__ansible_unsafe": value} if _TEMPLATE.search(value) else value
    if isinstance(value, Mapping):
        return {key: _literal(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_literal(one) for one in value]
    return value
