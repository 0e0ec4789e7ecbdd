"""`cudaup lab`: a local fleet of real systemd and sshd hosts in namespaces, with simulated GPUs."""

from __future__ import annotations

import os
import sys
import time

import click

from cudaup.lab import machine, registry
from cudaup.lab.faults import FaultKind
from cudaup.lab.fleet import Lab
from cudaup.lab.gpus import PROFILES
from cudaup.lab.spec import Init

_name = click.option("--name", default="lab", show_default=True, help="Which lab.")
_command = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group()
def lab() -> None:
    """A local fleet to try things on. Needs Linux and root."""


@lab.command()
@click.option("--hosts", default=3, show_default=True, help="How many: h1, h2, ...")
@click.option("--gpus", type=click.Choice([*PROFILES, "none"]), default="pro6000x8", show_default=True)
@click.option("--init", type=click.Choice([one.value for one in Init]), default="systemd", show_default=True)
@click.option("--disk", default="tmpfs:2g", show_default=True, help="tmpfs:SIZE, or ext4:SIZE (can lose power).")
@click.option("--user", help="Log in as this user, who has sudo and a password, instead of root.")
@click.option("--bastion", is_flag=True, help="One host more, and only through it are the others reached.")
@_name
def up(hosts: int, gpus: str, init: str, disk: str, user: str | None, *, bastion: bool, name: str) -> None:
    """Boot a fleet and write its inventory, keys and ssh configuration."""
    start = time.monotonic()
    fleet = Lab.up(name, hosts, gpus, init, disk, user, bastion=bastion, note=_note)
    _note(f"{len(fleet.spec.hosts)} hosts up in {time.monotonic() - start:.1f} s")
    click.echo(f"inventory   {fleet.inventory}")
    click.echo(f"ssh         ssh -F {fleet.ssh_config} {fleet.hosts[0]}")


@lab.command()
@_name
@click.option("--all", "every", is_flag=True, help="All labs of this machine.")
def down(name: str, *, every: bool) -> None:
    """End a lab, dead or alive, and remove everything it made."""
    machine.require_lab_machine()
    for one in registry.names() if every else [name]:
        registry.release(registry.read(one).spec)
        _note(f"lab `{one}` is down")


@lab.command(name="list")
def list_labs() -> None:
    """Labs, their hosts, addresses and states."""
    machine.require_lab_machine()
    for name in registry.names():
        record = registry.read(name)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.since))
        click.echo(f"{name}  {'up' if record.is_up else 'dead'} since {since}  {record.spec.directory}")
        states = Lab.find(name).state() if record.is_up else {}
        for host in record.spec.hosts:
            state = states.get(host.name, {"pid": None, "boots": 0})
            word = "up" if state["pid"] else "off"
            click.echo(f"  {host.name:<10} {host.address:<15} {word:<4} boots {state['boots']}")


@lab.command(name="exec", context_settings=_command)
@_name
@click.option("--host", help="Inside this host; without it, in the lab's network namespace with this machine's files.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(name: str, host: str | None, command: tuple[str, ...]) -> None:
    """Run COMMAND in the lab: `cudaup lab exec -- ping -c1 10.77.0.2`."""
    _become(Lab.find(name), host, command)


@lab.command()
@_name
@click.option("--host", help="Inside this host; without it, in the lab's network namespace with this machine's files.")
def shell(name: str, host: str | None) -> None:
    """A shell in the lab."""
    _become(Lab.find(name), host, ("/bin/bash",))


@lab.command()
@_name
@click.argument("host")
@click.argument("kind", type=click.Choice([one.value for one in FaultKind]))
@click.argument("amount", required=False)
def fault(name: str, host: str, kind: str, amount: str | None) -> None:
    """Make a host suffer; `restore` straightens its links and trees, `disk-ok` and `inodes-ok` its disk."""
    Lab.find(name).fault(host, kind, *([amount] if amount is not None else []))
    _note(f"{host}: {kind} {amount or ''}".rstrip())


def _become(fleet: Lab, host: str | None, command: tuple[str, ...]) -> None:
    argv = fleet.host_argv(host, command) if host else fleet.exec_argv(command)
    sys.stdout.flush()
    os.execv(argv[0], argv)  # noqa: S606 - the command takes this process's place, signals and terminal included


def _note(text: str) -> None:
    click.echo(text, err=True)
