"""Runs smoke cases against a generation: each in a process of its own, with a hard limit and a clean environment.

A case that crashes, hangs or says nothing is an `error`; the runner never makes up a pass.
"""

import json
import os
import pkgutil
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

from cudaup.host import caches, envfile, gpu
from cudaup.host.command import Ran
from cudaup.host.contained import run_contained
from cudaup.host.layout import Layout
from cudaup.host.protocol import Channel, Json, Refused
from cudaup.smoke.verdict import ERROR, PASS, VERDICTS

# Whether the generation's own Python runs the case. The others ask about what is around it: the host's Python does.
_BY_GENERATION = {"driver": False, "imports": True, "record": True, "nvcc": False, "launch": False}
_ABOUT_GPUS = frozenset({"driver", "launch"})
_FILES = (
    ("cudaup.smoke", ("verdict.py", "toolchain.py", "vector_add.cu", *(f"{case}.py" for case in _BY_GENERATION))),
    ("cudaup.audit", ("fatbin.py", "window.py")),
)
_LIMIT_S = 120.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SCRATCH_BYTES = 64 << 20


def run_suite(
    layout: Layout, generation_id: str, suite: Json, channel: Channel, should_stop: Callable[[], bool]
) -> List[Json]:
    """The verdict of every case of the suite, in its order; `suite` is as in docs/host-program.md."""
    verdicts = []
    with workplace(layout) as work:
        asked = context_of(layout.generation(generation_id), suite)
        for case in suite["cases"]:
            channel.event("smoke", "started", f"{case} on {generation_id}")
            verdict = run_case(case, work, asked, suite.get("limits", {}).get(case, _LIMIT_S), should_stop)
            state = "done" if verdict["verdict"] == PASS else "note"
            channel.event("smoke", state, f"{case} on {generation_id}: {verdict['verdict']}", **verdict)
            verdicts.append(verdict)
    return verdicts


def require_usable(suite: Json) -> None:
    """Refused `usage`: what is found out only when its turn comes has stopped the service for nothing."""
    cases, limits = suite.get("cases", []), suite.get("limits", {})
    is_whole = isinstance(cases, list) and bool(cases) and isinstance(limits, dict)
    if not is_whole or not all(isinstance(limit, (int, float)) and limit > 0 for limit in limits.values()):
        raise Refused("usage", f"no smoke suite: {suite}", '{"cases": [NAME, ...], "limits": {NAME: S}, ...}')
    unknown = [case for case in cases if case not in _BY_GENERATION]
    if unknown or not isinstance(suite.get("accept", {}), dict):
        raise Refused("usage", f"no smoke case: {unknown}", f"cases are {', '.join(_BY_GENERATION)}")


def passed(cases: List[Json], suite: Json) -> bool:
    """Whether every case of the suite was run and its verdict is one that the suite accepts."""
    verdicts = {case["case"]: case["verdict"] for case in cases}
    accepted = suite.get("accept", {})
    return all(verdicts.get(case) in accepted.get(case, [PASS]) for case in suite["cases"])


def context_of(generation: Path, suite: Json) -> Json:
    venv, toolkit = generation / "venv", generation / "cuda"
    return {
        "generation": os.path.realpath(str(generation)),
        "venv": os.path.realpath(str(venv)),
        "toolkit": os.path.realpath(str(toolkit)) if toolkit.is_dir() else None,
        "sm": suite.get("sm"),
        "imports": suite.get("imports", []),
        "gpu": _probe_gpus() if _ABOUT_GPUS & set(suite["cases"]) else None,
    }


def _probe_gpus() -> Json:
    problems: List[str] = []
    found = {"gpus": gpu.gpus(problems), "driver": gpu.driver(), "simulated": gpu.simulated()}
    return {**found, "problems": problems}


def run_case(case: str, work: Path, asked: Json, limit_s: float, should_stop: Callable[[], bool]) -> Json:
    if case not in _BY_GENERATION:
        return _verdict(case, ERROR, f"there is no case `{case}` in this host program")
    if should_stop():
        return _verdict(case, ERROR, "stopped before it began")
    folder = work / case
    folder.mkdir()
    (folder / "context.json").write_text(json.dumps({**asked, "work": str(folder)}), encoding="utf-8")
    # By its real path: an adopted environment's own scripts name a path that may lead to the other stack by now.
    python = f"{asked['venv']}/bin/python" if _BY_GENERATION[case] else sys.executable
    argv = [python, "-B", "-m", f"cudaup.smoke.{case}", str(folder / "context.json")]
    ran = run_contained(argv, limit_s, _environment(asked, folder), cwd=str(work), should_stop=should_stop)
    shutil.rmtree(str(folder), ignore_errors=True)
    said = _last_verdict(ran.out) if ran.is_ok else None
    if said is None:
        reason = ran.why() if not ran.is_ok else "ended without a verdict"
        evidence = {"output": ran.last_lines(10)}
        return _verdict(case, ERROR, f"{reason}: {ran.last_lines(1)}".rstrip(": "), ran, evidence)
    simulated = case in _ABOUT_GPUS and bool(asked["gpu"]["simulated"])
    return _verdict(case, said["verdict"], said["reason"], ran, said["evidence"], simulated=simulated)


def _verdict(
    case: str,
    verdict: str,
    reason: str,
    ran: Optional[Ran] = None,
    evidence: Optional[Json] = None,
    *,
    simulated: bool = False,
) -> Json:
    seconds = round(ran.seconds, 3) if ran is not None else 0.0
    return {
        "case": case,
        "verdict": verdict,
        "reason": reason,
        "seconds": seconds,
        "evidence": evidence or {},
        "simulated": simulated,
    }


def _last_verdict(out: str) -> Optional[Json]:
    """The last line, when it is a verdict in the words we know."""
    lines = out.strip().splitlines()
    try:
        said = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    is_verdict = isinstance(said, dict) and said.get("verdict") in VERDICTS and {"reason", "evidence"} <= set(said)
    return said if is_verdict else None


def _environment(asked: Json, folder: Path) -> Dict[str, str]:
    """Nothing of the caller's: what the service will get, and what any process needs."""
    try:
        generation = Path(asked["generation"])
        own = caches.without_strangers(generation, envfile.parse((generation / "env").read_text(encoding="utf-8")))
    except FileNotFoundError:  # adopted
        own = {}
    base = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8", "TMPDIR": str(folder), "PYTHONNOUSERSITE": "1"}
    # Also of what a case starts. On a disk that fills up Python leaves half a file, which no import survives.
    return {**base, **own, "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def workplace(layout: Layout) -> Iterator[Path]:
    """A directory of our own with the cases in it, wherever there is room: going back must work on a full disk."""
    work = Path(tempfile.mkdtemp(prefix="cudaup-smoke-", dir=str(_roomy(layout))))
    try:
        for package, names in _FILES:
            folder = work / package.replace(".", "/")
            folder.mkdir(parents=True)
            # Real packages: without this, a cudaup installed for that Python would come before ours.
            for place in (folder.parent, folder):
                (place / "__init__.py").touch()
            for name in names:
                (folder / name).write_bytes(pkgutil.get_data(package, name) or b"")
        yield work
    finally:
        shutil.rmtree(str(work), ignore_errors=True)


def _roomy(layout: Layout) -> Path:
    """Memory first; cases also run what they built there. On a full disk, wherever there is anything."""
    places = [place for place in (Path("/dev/shm"), layout.root, Path("/tmp")) if place.is_dir()]  # noqa: S108 - mkdtemp makes it ours
    sizes = {place: os.statvfs(str(place)) for place in places}
    free = {place: size.f_bavail * size.f_frsize for place, size in sizes.items()}
    fit = (each for each in places if free[each] >= _SCRATCH_BYTES and not sizes[each].f_flag & os.ST_NOEXEC)
    return next(fit, max(places, key=lambda place: free[place]))
