"""One real play over real ssh, looked at from several sides; it runs once for all of them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.adapters.real_sshd import Sshd, free_port

from cudaup.adapters.connections import Connections
from cudaup.adapters.runner import AnsiblePlays, playbooks_directory
from cudaup.app.ports import PlayResult
from cudaup.domain.events import Event, Kind

_PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Say it
      ansible.builtin.command: {argv: [printf, "%s", "{{ text }}"]}
      changed_when: "inventory_hostname == 'changing'"
    - name: Fail on one
      ansible.builtin.fail: {msg: this one was told to fail}
      when: inventory_hostname == 'failing'
"""


@dataclasses.dataclass(frozen=True)
class Played:
    results: Mapping[str, PlayResult]
    events: list[Event]
    temporary: Path


@pytest.fixture(scope="module")
def played(sshd: Sshd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Four hosts, one of them out of reach, run under an environment that is out to break it."""
    directory = tmp_path_factory.mktemp("plays")
    temporary = tmp_path_factory.mktemp("tmp")
    (directory / "say.yml").write_text(_PLAYBOOK)
    (directory / "collections").symlink_to(playbooks_directory() / "collections")
    base = dataclasses.replace(sshd.host("ConnectTimeout=1"), python=sys.executable)
    hosts = [dataclasses.replace(base, name=name) for name in ("changing", "calm", "failing")]
    hosts.append(dataclasses.replace(base, name="away", port=free_port()))
    variables = {host.name: {"text": "{{ not_a_template }}"} for host in hosts}
    events: list[Event] = []
    with pytest.MonkeyPatch.context() as patch, closing(Connections()) as connections:
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr("tempfile.tempdir", None)
        patch.setenv("ANSIBLE_CONFIG", "/nonexistent/ansible.cfg")
        patch.setenv("ANSIBLE_STDOUT_CALLBACK", "no.such.callback")
        patch.setenv("ANSIBLE_STRATEGY", "no_such_strategy")
        patch.setenv("ANSIBLE_INVENTORY", "/nonexistent/hosts")
        plays = AnsiblePlays(connections, directory)
        yield Played(plays.run("say", hosts, variables, timeout_s=60, on_event=events.append), events, temporary)


def test_changed_and_unchanged_are_told_apart(played: Played) -> None:
    changing, calm = played.results["changing"], played.results["calm"]
    assert (changing.ok, changing.changed, calm.ok, calm.changed) == (True, True, True, False)


def test_values_of_a_plan_are_data_and_never_templates(played: Played) -> None:
    assert played.results["calm"].data["stdout"] == "{{ not_a_template }}"


def test_a_failing_host_says_why_and_stops_no_other(played: Played) -> None:
    failing = played.results["failing"]
    assert (failing.ok, failing.text) == (False, "this one was told to fail")


def test_an_unreachable_host_is_a_result_with_the_connections_own_words(played: Played) -> None:
    away = played.results["away"]
    assert (away.ok, away.is_unreachable) == (False, True)
    assert "cannot connect to 127.0.0.1" in away.text


def test_events_name_host_step_and_outcome(played: Played) -> None:
    seen = {(event.host, event.step, event.kind) for event in played.events}
    assert {
        ("changing", "Say it", Kind.STARTED),
        ("changing", "Say it", Kind.DONE),
        ("calm", "Say it", Kind.UNCHANGED),
        ("failing", "Fail on one", Kind.FAILED),
        ("away", "Say it", Kind.FAILED),
    } <= seen


def test_nothing_of_the_play_stays_on_the_controller(played: Played) -> None:
    assert list(played.temporary.iterdir()) == []


def test_a_play_that_takes_too_long_is_ended_and_says_so(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "hang.yml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.raw: sleep 60\n"
    )
    (tmp_path / "collections").symlink_to(playbooks_directory() / "collections")
    with closing(Connections()) as connections:
        plays = AnsiblePlays(connections, tmp_path)
        results = plays.run("hang", [sshd.host()], {}, timeout_s=2, on_event=lambda _: None)
    assert (results["h1"].ok, results["h1"].text) == (False, "no end within 2 s")


def test_a_playbook_that_cannot_be_read_is_every_hosts_failure(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "broken.yml").write_text("- hosts: all\n  tusks: []\n")
    with closing(Connections()) as connections:
        plays = AnsiblePlays(connections, tmp_path)
        results = plays.run("broken", [sshd.host()], {}, timeout_s=30, on_event=lambda _: None)
    assert not results["h1"].ok
    assert "tusks" in results["h1"].text
