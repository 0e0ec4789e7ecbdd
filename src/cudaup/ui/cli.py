"""The command line: parses, asks, prints; the work is elsewhere. Data on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from cudaup.domain.errors import CudaupError, UsageError
from cudaup.domain.facts import is_settled
from cudaup.domain.journal import RunInterrupted
from cudaup.domain.outcome import INTERRUPTED, Outcome
from cudaup.domain.plan import HostVerdict, Plan, RollbackPlan
from cudaup.domain.plan_file import dump_plan
from cudaup.domain.report import report_of
from cudaup.ui import text, wiring
from cudaup.ui.audit_cli import audit
from cudaup.ui.lab_cli import lab
from cudaup.ui.lock_cli import lock
from cudaup.ui.progress import ProgressLines

CHANGES_PENDING = 2
_NO_OUTPUT = {errno.ENOSPC, errno.EPIPE, errno.EIO}

inventory_option = click.option(
    "-i",
    "--inventory",
    "sources",
    multiple=True,
    required=True,
    help="Ansible inventory: file, script or `host,`.",
)
limit_option = click.option(
    "-l", "--limit", multiple=True, callback=lambda *given: ",".join(given[2]) or None, help="Ansible's host pattern."
)
stack_option = click.option("-s", "--stack", "stack_path", type=click.Path(path_type=Path), help="The stack file.")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Also what hosts and plays report underway.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cudaup")
def cli() -> None:
    """Move fleets of GPU hosts to a CUDA 13 stack, prove it, and put a host back when it fails."""


cli.add_command(audit)
cli.add_command(lab)
cli.add_command(lock)


@cli.command()
@inventory_option
@limit_option
@stack_option
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Save the plan for `cudaup apply FILE`.")
@json_option
@click.option("--detailed-exitcode", is_flag=True, help="Exit 2 when changes are pending.")
def plan(
    sources: tuple[str, ...],
    limit: str | None,
    stack_path: Path | None,
    out: Path | None,
    *,
    as_json: bool,
    detailed_exitcode: bool,
) -> None:
    """Show what would change on each host, why, and what is in the way. Changes nothing."""
    wanted = wiring.stack(_required_stack(stack_path))
    with wiring.fleet(sources, limit) as on:
        made = wiring.make_plan(on, wanted)
    if out is not None:
        _save(out, dump_plan(made))
    click.echo(dump_plan(made) if as_json else text.plan_text(made), nl=not as_json)
    sys.exit(_plan_exit_code(made, detailed=detailed_exitcode))


@cli.command()
@click.argument("plan_path", metavar="[PLAN]", required=False, type=click.Path(path_type=Path))
@click.option("-i", "--inventory", "sources", multiple=True, help="Ansible inventory, when no PLAN is given.")
@limit_option
@stack_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@verbose_option
def apply(
    plan_path: Path | None,
    sources: tuple[str, ...],
    limit: str | None,
    stack_path: Path | None,
    *,
    yes: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Apply a saved PLAN as it was reviewed, or plan now and ask."""
    saved = _saved_plan(plan_path, sources, limit, stack_path)
    wanted = saved.stack if saved else wiring.stack(_required_stack(stack_path))
    with wiring.fleet(saved.sources if saved else sources, saved.limit if saved else limit) as on:
        made = saved or wiring.make_plan(on, wanted)
        if saved is None:
            click.echo(text.plan_text(made) + "\n", err=True)
        if made.has_changes:
            _ask(f"Apply to {len(made.changing)} hosts?", yes=yes)
        _execute(made, on, as_json=as_json, verbose=verbose)


@cli.command()
@inventory_option
@limit_option
@click.option("--to", help="Generation to go back to: id, number or start of its digest. Default: the previous one.")
@json_option
@verbose_option
def rollback(sources: tuple[str, ...], limit: str | None, to: str | None, *, as_json: bool, verbose: bool) -> None:
    """Put hosts back to an earlier generation. Needs no index, no play and no question: it is for incidents."""
    with wiring.fleet(sources, limit) as on:
        _execute(wiring.make_rollback_plan(on, to), on, as_json=as_json, verbose=verbose)


@cli.command()
@inventory_option
@limit_option
@json_option
def status(sources: tuple[str, ...], limit: str | None, *, as_json: bool) -> None:
    """Show each host's generation, state and lease. Exit 5 when one is unreachable, in transit or in quarantine."""
    with wiring.fleet(sources, limit) as on:
        observed = wiring.observe(on)
    if as_json:
        click.echo(json.dumps({name: facts.model_dump(mode="json") for name, facts in observed.items()}, indent=1))
    else:
        click.echo(text.fleet_text(observed))
    sys.exit(0 if all(is_settled(facts) for facts in observed.values()) else Outcome.UNREACHABLE.exit_code)


def _required_stack(path: Path | None) -> Path:
    if path is None:
        raise UsageError("which stack?", wanted="-s STACK", found="none", fix="for a try: -s stacks/demo.yml")
    return path


def _saved_plan(path: Path | None, sources: tuple[str, ...], limit: str | None, stack_path: Path | None) -> Plan | None:
    """None when planning is to be done now. Raise UsageError for neither or a mixture."""
    others = [name for name, value in (("-i", sources), ("-l", limit), ("-s", stack_path)) if value]
    if path is None:
        if not sources:
            raise UsageError("what is to be applied?", wanted="a PLAN file, or -i INVENTORY -s STACK", found="neither")
        return None
    if others:
        raise UsageError(
            "a saved plan has its inventory, limit and stack already",
            wanted=f"cudaup apply {path}",
            found=f"{', '.join(others)} beside it",
        )
    return wiring.read_plan(path)


def _save(path: Path, content: str) -> None:
    """Over another plan only: a slip of the hand must not cost a stack file or an inventory."""
    if str(path) == "-":
        raise UsageError("a plan is saved in a file", found="-", fix="--json writes it to standard output")
    if path.exists() and not wiring.is_plan(path):
        raise UsageError("this file is not a plan", where=str(path), fix="name a new file, or remove it first")
    try:
        path.write_text(content)
    except OSError as error:
        raise UsageError("the plan cannot be saved", where=str(path), found=error.strerror or str(error)) from error


def _plan_exit_code(made: Plan, *, detailed: bool) -> int:
    """A host that cannot be planned is said by the code too; the worst of the usual order wins over `changes`."""
    verdicts = {host.verdict for host in made.hosts}
    if HostVerdict.UNREACHABLE in verdicts:
        return Outcome.UNREACHABLE.exit_code
    if HostVerdict.BLOCKED in verdicts:
        return Outcome.REFUSED.exit_code
    return CHANGES_PENDING if detailed and made.has_changes else 0


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("nobody can be asked here", wanted="--yes", found="no terminal on standard input")
    click.confirm(question, abort=True, err=True)


def _execute(made: Plan | RollbackPlan, on: wiring.Fleet, *, as_json: bool, verbose: bool) -> None:
    """Run the plan and report it. A second interrupt leaves at once: the hosts' own timers put back what is open."""
    stopping = threading.Event()
    is_left = False
    with (
        _stop_on_interrupt(stopping),
        wiring.open_run(made, on, ProgressLines(is_verbose=verbose), stopping.is_set) as run,
    ):
        try:
            wiring.carry_out(made, run, on)
        except KeyboardInterrupt:
            is_left = True
            run.record(RunInterrupted(time=run.clock.now()))
        report = report_of(run.journal.read())
        click.echo(json.dumps(report.to_json(), indent=1) if as_json else text.report_text(report))
        if is_left:
            sys.stdout.flush()
            os._exit(report.exit_code)  # threads still talk to hosts: leaving means leaving them
    sys.exit(report.exit_code)


@contextmanager
def _stop_on_interrupt(stopping: threading.Event) -> Iterator[None]:
    """First Ctrl-C: stop at the next safe point. Second: KeyboardInterrupt."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()
        click.echo(
            "stopping: what is switching or going back is settled first, nothing else is begun "
            "(again: leave now, the hosts' own timers put them back)",
            err=True,
        )

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _bug(error: Exception) -> int:
    report = "".join(traceback.format_exception(error))
    click.echo(f"{report}\ncudaup stopped on a bug of its own; hosts in transit put themselves back", err=True)
    return 1


def _no_output(error: OSError) -> int:
    with suppress(OSError):
        click.echo(f"cudaup: the output cannot be written: {error.strerror}", err=True)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - what is buffered would fail again at the exit
    return 1


def main(arguments: list[str] | None = None) -> None:
    """Map every way a command can end to the process's exit code."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # told, and with the same exit code
    sys.exit(_outcome(lambda: cli.main(arguments, prog_name="cudaup", standalone_mode=False)))


def _outcome(command: Callable[[], Any]) -> int:
    try:
        command()
    except CudaupError as error:
        click.echo(f"cudaup: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 1
    except (KeyboardInterrupt, click.Abort):
        click.echo("cudaup: interrupted", err=True)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one top-level handler
        return _no_output(error) if isinstance(error, OSError) and error.errno in _NO_OUTPUT else _bug(error)
    return 0


if __name__ == "__main__":
    main()
