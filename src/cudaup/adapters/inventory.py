"""Ansible inventories, read by Ansible itself: groups, group_vars, dynamic sources, limits and vaults all work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cudaup.domain.errors import UnsupportedSetting, UsageError
from cudaup.domain.inventory import Host
from cudaup.domain.inventory_vars import CONNECTION_VARIABLES, host_from_vars, needs_ansible

_LIMIT_S = 300  # dynamic inventories ask clouds
_ANSWER = re.compile(r"^(\S+) \| ([A-Z!]+) => (?=\{)", re.MULTILINE)
# Only what decides how Ansible talks to us; the user's ansible.cfg and inventory plugins stay in force.
_QUIET = {
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "0",
    "ANSIBLE_LOG_PATH": "/dev/null",  # resolved variables may be passwords
    "ANSIBLE_STDOUT_CALLBACK": "minimal",
    "ANSIBLE_LOAD_CALLBACK_PLUGINS": "0",
    "ANSIBLE_DEPRECATION_WARNINGS": "0",
    "LC_ALL": "C.UTF-8",
}


class AnsibleInventories:
    """`ansible-inventory --list`, and one `debug` task for the connection variables that only Ansible can resolve."""

    def read(self, sources: Sequence[str], limit: str | None) -> tuple[Host, ...]:
        """Raises UsageError with Ansible's own words, UnsupportedSetting by host and variable."""
        if not all(sources):
            raise UsageError("an inventory with no name", fix="-i PATH, or -i HOST, with the comma")
        _require_expressions(limit or "")
        where = [word for source in sources for word in ("-i", source)]
        listing = json.loads(_ansible("inventory", [*where, "--list", *(["--limit", limit] if limit else [])], sources))
        variables: dict[str, dict[str, Any]] = listing.pop("_meta", {}).get("hostvars", {})
        names = _names(listing)
        if not names:
            raise UsageError(
                "no host is left" if limit else "the inventory has no hosts",
                where=", ".join(sources),
                found=f"limit {limit!r} matches nothing" if limit else None,
                fix="see `ansible-inventory -i ... --graph`",
            )
        wanted = {name: _connection_variables(variables.get(name, {})) for name in names}
        for name, resolved in _resolved(wanted, where, sources).items():
            wanted[name] = {**wanted[name], **resolved}
        return _hosts(wanted)


def _require_expressions(limit: str) -> None:
    """Ansible takes a regular expression that it cannot read for "all hosts"."""
    for pattern in limit.split(","):
        expression = pattern.strip().lstrip("!&")
        if expression.startswith("~"):
            try:
                re.compile(expression[1:])
            except re.error as error:
                raise UsageError(f"limit {pattern!r} is no regular expression", found=str(error)) from error


def _hosts(wanted: Mapping[str, Mapping[str, Any]]) -> tuple[Host, ...]:
    """All that is wrong comes at once: an inventory of 200 hosts is mended in one go."""
    hosts, problems = [], []
    for name, variables in wanted.items():
        try:
            hosts.append(host_from_vars(name, variables))
        except UnsupportedSetting as error:
            problems.append(error)
    if len(problems) > 1:
        raise UnsupportedSetting("\n".join(map(str, problems)))
    if problems:
        raise problems[0]
    return tuple(hosts)


def _connection_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {key: variables[key] for key in CONNECTION_VARIABLES if key in variables}


def _names(listing: Mapping[str, Any]) -> list[str]:
    """In the order of Ansible's listing, each once, whatever its groups."""
    return list(dict.fromkeys(name for group in listing.values() for name in group.get("hosts", ())))


def _resolved(wanted: Mapping[str, Mapping[str, Any]], where: Sequence[str], sources: Sequence[str]) -> dict[str, Any]:
    """One call per set of variables that need it: a variable that one host lacks must not be asked of it."""
    names_by_keys: dict[tuple[str, ...], list[str]] = {}
    for name, given in wanted.items():
        keys = tuple(key for key in given if needs_ansible(given[key]))
        if keys:
            names_by_keys.setdefault(keys, []).append(name)
    values: dict[str, Any] = {}
    for keys, names in names_by_keys.items():
        template = "{{ {" + ", ".join(f"'{key}': {key}" for key in keys) + "} | to_json }}"
        arguments = [*where, ",".join(names), "-m", "ansible.builtin.debug", "-a", json.dumps({"msg": template})]
        answers = dict(_answers(_ansible("adhoc", arguments, sources, accept_failed_hosts=True)))
        values |= {name: _values(name, keys, answers.get(name)) for name in names}
    return values


def _answers(output: str) -> Iterator[tuple[str, tuple[str, str]]]:
    decoder = json.JSONDecoder()
    for match in _ANSWER.finditer(output):
        yield match[1], (match[2], str(decoder.raw_decode(output, match.end())[0].get("msg", "")))


def _values(name: str, keys: Sequence[str], answer: tuple[str, str] | None) -> dict[str, Any]:
    status, message = answer or ("", "")
    if status != "SUCCESS":  # only then does the message hold no values, which may be passwords
        listed = ", ".join(f"`{key}`" for key in keys)
        raise UsageError(f"Ansible cannot resolve {listed}", host=name, found=message or "no answer")
    values: dict[str, Any] = json.loads(message)
    return values


def _ansible(
    command: str, arguments: Sequence[str], sources: Sequence[str], *, accept_failed_hosts: bool = False
) -> str:
    """Ansible of this Python, whatever `ansible` the PATH has."""
    inventory_errors = {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1", "ANSIBLE_HOST_PATTERN_MISMATCH": "error"}
    done = subprocess.run(
        [sys.executable, "-m", "ansible", command, *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        timeout=_LIMIT_S,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **_QUIET, **inventory_errors},
    )
    if done.returncode == 0 or (accept_failed_hosts and done.returncode == 2):
        return done.stdout
    raise UsageError("Ansible cannot read the inventory", where=", ".join(sources), found=_complaint(done.stderr))


def _complaint(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("[ERROR]", "ERROR!", "[WARNING]"))]
    return "\n          ".join(errors or lines[-3:])
