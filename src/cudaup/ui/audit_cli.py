"""`cudaup audit`: what it takes and how it ends; the words are in audit_text."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cudaup.domain.audit import Asked, AuditReport
from cudaup.domain.errors import UsageError
from cudaup.domain.stack import Stack
from cudaup.ui import wiring
from cudaup.ui.audit_text import audit_text


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1)
@click.option("-i", "--inventory", "sources", multiple=True, help="Ansible inventory: audit its hosts' generations.")
@click.option("-l", "--limit", multiple=True, help="Ansible's host pattern.")
@click.option("--generation", metavar="GEN", help="Of the hosts, by its id. Default: the current one.")
@click.option(
    "-s", "--stack", "stack_path", type=click.Path(path_type=Path), help="Take the GPU and the required files from it."
)
@click.option("--sm", metavar="SM", help="The GPU: 120, or 12.0. Default: the hosts' or the stack's.")
@click.option(
    "--driver", metavar="VERSION", help="Count only PTX that this driver can compile. Default: the hosts' own."
)
@click.option("--cuda", metavar="VERSION", help="The same by the CUDA version that the driver supports.")
@click.option("--require", "required", metavar="FILE", multiple=True, help="Exit 3 when this file is of no use there.")
@click.option(
    "--quick", "is_quick", is_flag=True, help="Of wheels: read a large file only until code for the GPU is seen."
)
@click.option("--scan", "scan_all", is_flag=True, help="Search every byte of every file, not only of dead ones.")
@click.option("--all", "shows_all", is_flag=True, help="List also the files that have no GPU code.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def audit(
    targets: tuple[str, ...],
    sources: tuple[str, ...],
    limit: tuple[str, ...],
    generation: str | None,
    stack_path: Path | None,
    required: tuple[str, ...],
    *,
    shows_all: bool,
    as_json: bool,
    **depth: str | bool | None,
) -> None:
    """Say which GPU code wheels, URLs of wheels, environments, files or hosts' generations carry, and what a GPU runs.

    Nothing is installed, unpacked or run, and no GPU is needed.
    """
    stack = wiring.stack(stack_path) if stack_path else None
    asked = _with_stack(Asked.model_validate(depth), stack)
    required = (*required, *(stack.audit.require if stack else ()))
    if asked.driver and asked.cuda:
        raise UsageError("which of the two?", wanted="--driver or --cuda", found="both")
    if bool(targets) == bool(sources):
        found = "both" if targets else "neither"
        raise UsageError("what is to be audited?", wanted="TARGET..., or -i INVENTORY", found=found)
    if sources:
        with wiring.fleet(sources, ",".join(limit) or None) as on:
            report = wiring.audit_on(on, generation, asked, required)
    else:
        report = wiring.audit(targets, asked, required)
    _print(report, as_json=as_json, shows_all=shows_all)
    sys.exit(report.exit_code)


def _with_stack(asked: Asked, stack: Stack | None) -> Asked:
    if stack is None or stack.gpu_sm is None or asked.sm is not None:
        return asked
    return asked.model_copy(update={"sm": stack.gpu_sm})


def _print(report: AuditReport, *, as_json: bool, shows_all: bool) -> None:
    click.echo(report.model_dump_json(indent=1) if as_json else audit_text(report, shows_all=shows_all))
