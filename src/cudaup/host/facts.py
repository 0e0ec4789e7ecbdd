"""Everything true about a host that a plan rests on, in one call. Reads only; what cannot be read is said."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Optional

from cudaup.host import adoption, environment, gpu, machine, services, status
from cudaup.host.files import sha256_file
from cudaup.host.layout import Layout
from cudaup.host.protocol import Channel, Context, Json
from cudaup.host.systemd import UnitState

Job = Callable[[], object]


def collect(layout: Layout, env_path: Optional[Path], disks: List[Path]) -> Json:
    problems: List[str] = []
    jobs: Dict[str, Job] = {
        "gpus": lambda: gpu.gpus(problems),
        "gpu_users": lambda: gpu.gpu_users(problems),
        "driver": gpu.driver,
        "pythons": lambda: _each(machine.python_paths(), machine.versioned, problems),
        "compilers": lambda: _each(machine.compiler_paths(), machine.versioned, problems),
        "toolkits": lambda: _each(machine.toolkit_paths(), machine.toolkit, problems),
        "environment": lambda: environment.describe(env_path) if env_path is not None else None,
        "cudaup": lambda: _status(layout),
        "services": lambda: _services(layout, env_path),
    }
    facts = _together(jobs)
    facts["host"] = machine.host()
    facts["disks"] = [machine.disk(path) for path in dict.fromkeys([layout.root, *disks])]
    facts["simulated"] = gpu.simulated()
    facts["problems"] = sorted(set(problems))
    return facts


def _status(layout: Layout) -> Optional[Json]:
    """None where cudaup never was."""
    if not layout.root.is_dir():
        return None
    return status.status(layout)


def _services(layout: Layout, env_path: Optional[Path]) -> List[Json]:
    """Units known from an adopted path, and units with a process that runs from it or from `env_path` now."""
    ctx = Context(layout.root, Channel(), io.BytesIO())
    if not ctx.systemd.is_running():
        return []
    known = adoption.read(layout)
    places = adoption.places(layout)
    if env_path is not None:
        places += [env_path, Path(os.path.realpath(str(env_path)))]
    units = {*services.running_from(ctx, places).units, *(known.units if known else ())}
    return [_service(unit, ctx.systemd.show(unit)) for unit in sorted(units)]


def _service(unit: str, state: UnitState) -> Json:
    fragment = sha256_file(state.fragment) if state.fragment and state.fragment.is_file() else None
    return {"unit": unit, "active": state.active, "pid": state.pid, "fragment_sha256": fragment}


def _each(paths: List[Path], ask: Callable[[Path, List[str]], Optional[Json]], problems: List[str]) -> List[Json]:
    """Ask all at once: each is a process of its own to wait for."""
    answers = _together({str(path): partial(ask, path, problems) for path in paths})
    return [answer for answer in answers.values() if answer is not None]


def _together(jobs: Dict[str, Job]) -> Json:
    """All at once, in a thread each: they wait for other programs, every one with its own limit."""
    if not jobs:
        return {}
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = {name: pool.submit(job) for name, job in jobs.items()}
        return {name: future.result() for name, future in running.items()}
