"""How long a host waits for the host program itself: the switch of its links, and `verify` of a big generation.

    .venv/bin/python bench/host.py [--dir DIR] [--files 75000] [--gb 10]

The generation is synthetic: FILES files in packages of 600, nearly all of them small (log-normal, median 3 kB), and 60
big ones that make up the rest of GB. All are sparse, so they take no room in DIR, and their apparent sizes are right:
`verify` fast stats each and reads none; `verify` full reads them all, from memory.

The switch is what `activate` does between the smoke of the new generation and the start of its services: the intent,
the exchange of the links, the outcome and the phase, each on the disk before the next (fsync), beside a journal that is
as long as it gets. Stop, smoke and start of services are not in it.

Run it on a filesystem like the host's (DIR), on a quiet machine. Prints the median of the rounds, the worst, and the
processor time of one.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from cudaup.host import fence, generations, manifest, mounts, revert, transit
from cudaup.host.journal import Journal
from cudaup.host.layout import Layout
from cudaup.host.protocol import Channel, Context
from cudaup.host.transit import Transit

ROUNDS = 5
SWITCHES = 50
BIG_FILES = 60
PER_FOLDER, PER_PACKAGE = 24, 600
JOURNAL_BYTES = 120 << 10
ONE, OTHER = "0001-aaaaaa", "0002-bbbbbb"


def main() -> None:
    parser = argparse.ArgumentParser(description="See the docstring.")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--files", type=int, default=75_000)
    parser.add_argument("--gb", type=float, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cudaup-bench-", dir=asked.dir) as folder:
        layout = Layout(Path(folder) / "cudaup")
        mounts.prepare_root(layout)
        print(f"{os.cpu_count()} cores, {mounts.mount_of(layout.root).fstype}, Python {sys.version.split()[0]}")
        make_generation(layout.generation(ONE), asked.files, int(asked.gb * 1e9))
        for number, each in enumerate((ONE, OTHER), 1):
            layout.generation(each).mkdir(exist_ok=True)
            generations.save(layout, {"id": each, "number": number, "confirmed": True})
        generations.make_first(layout, ONE)
        report("seal", [timed(lambda: manifest.seal(layout.generation(ONE), manifest.Digests()))])
        report("verify fast, warm", [timed(lambda: verify(layout)) for _ in range(ROUNDS + 1)][1:])
        report("verify full, warm", [timed(lambda: verify(layout, "--full"))])
        with switching(layout) as switch:
            report("switch", [timed(switch) for _ in range(SWITCHES)])


class Spent(NamedTuple):
    """Processor seconds count on a machine that others use too, where the wall's are theirs as well."""

    wall: float
    cpu: float


def timed(action: Callable[[], object]) -> Spent:
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    action()
    return Spent(time.perf_counter() - wall, sum(os.times()[:4]) - cpu)


def report(what: str, spent: list[Spent]) -> None:
    walls, cpu = [each.wall * 1000 for each in spent], sum(each.cpu for each in spent) * 1000 / len(spent)
    worst = f"worst of {len(walls)}: {max(walls):.1f}, of the processor: {cpu:.1f}"
    print(f"{what:18} {statistics.median(walls):9.1f} ms  ({worst})", flush=True)


def make_generation(generation: Path, files: int, size: int) -> None:
    rng = random.Random(1)  # noqa: S311 - sizes, not secrets
    small = [min(int(rng.lognormvariate(8, 1.8)), 1 << 20) for _ in range(files - BIG_FILES)]
    names = (f"package{n // PER_PACKAGE}/part{n // PER_FOLDER}/module{n}.py" for n in range(len(small)))
    big = (f"package0/libbig{n}.so" for n in range(BIG_FILES))
    sizes = [*small, *[(size - sum(small)) // BIG_FILES] * BIG_FILES]
    site = generation / "venv" / "lib" / "python3.11" / "site-packages"
    for name, length in zip((*names, *big), sizes, strict=True):
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.truncate(length)


def verify(layout: Layout, *options: str) -> None:
    """As a person or the controller calls it: a process of its own."""
    command = [sys.executable, "-m", "cudaup.host", "verify", "--root", str(layout.root), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def switching(layout: Layout) -> Iterator[Callable[[], None]]:
    """A call that goes to the other of the two generations."""
    ctx = Context(layout.root, Channel(), BytesIO())
    pending = Transit(
        origin=ONE,
        target=OTHER,
        previous=None,
        epoch=1,
        boot_id=ctx.clock.boot_id(),
        deadline=0,
        ceiling=0,
        phase=transit.STOPPED,
        units=("ml.service",),
        order=("ml.service",),
        ttl_s=60,
        suite={},
        health={},
        hooks={},
    )
    journal = Journal(layout)
    while not layout.journal.exists() or layout.journal.stat().st_size < JOURNAL_BYTES:
        journal.done(journal.intent("stage", 1, {"name": "x" * 300}))
    with fence.mutation(ctx, "bench", {}) as change:

        def switch() -> None:
            target = OTHER if generations.current_id(layout) == ONE else ONE
            with change.step("switch", {"from": ONE, "to": OTHER}):
                generations.switch(layout, target)
            revert.mark(ctx, transit.SWITCHED if target == OTHER else transit.STOPPED)

        transit.write(layout, pending)
        yield switch


if __name__ == "__main__":
    main()
