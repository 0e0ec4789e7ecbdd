"""Everything true about a host that a plan rests on, in one call. Reads only; what cannot be read is said."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Optional

from cudaup.host import adoptable, environment, gpu, machine, services, status
from cudaup.host.protocol import Context, Json

Job = Callable[[], object]


def collect(ctx: Context) -> Json:
    """The verb `facts`."""
    env_path: Optional[Path] = ctx.options["env"]
    problems: List[str] = []
    jobs: Dict[str, Job] = {
        "gpus": lambda: gpu.gpus(problems),
        "gpu_users": lambda: gpu.gpu_users(problems),
        "driver": gpu.driver,
        "pythons": lambda: _each(machine.python_paths(), machine.versioned, problems),
        "compilers": lambda: _each(machine.compiler_paths(), machine.versioned, problems),
        "toolkits": lambda: _each(machine.toolkit_paths(), machine.toolkit, problems),
        "environment": lambda: _environment(ctx, env_path) if env_path is not None else None,
        "services": lambda: services.status(ctx, env_path),
    }
    facts = _together(jobs)
    facts["host"] = machine.host()
    facts["cudaup"] = status.of(ctx, facts["services"]) if ctx.root.is_dir() else None  # null where it never was
    facts["disks"] = [machine.disk(ctx.root)]
    facts["simulated"] = gpu.simulated()
    facts["problems"] = sorted(set(problems))
    return facts


def _environment(ctx: Context, path: Path) -> Json:
    """`unfit` is why it cannot be adopted, where it would have to be."""
    described = environment.describe(path)
    would_be_adopted = described["state"] == "directory" and described["kind"] != "none"
    fault = adoptable.fault_of(path, ctx.layout) if would_be_adopted else None
    return {**described, "unfit": f"{fault.text} (fix: {fault.fix})" if fault else None}


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
