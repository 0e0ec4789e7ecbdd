"""The runner: what a case does decides its verdict, and nothing of it survives."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from cudaup.host import smoke
from cudaup.host.layout import Layout
from cudaup.host.protocol import Channel

Json = dict[str, Any]
ID = "0001-abcdef"
SAY = "import json\ndef say(**k): print(json.dumps({'reason': '', 'evidence': {}, **k}))\n"


class Recorder(Channel):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, str]] = []

    def send(self, obj: Json) -> None:
        self.sent.append((obj["state"], obj["text"]))


class RunOne(Protocol):
    def __call__(self, source: str, *, by: str = "host", limit_s: float = 20, stop: bool = False) -> Json: ...


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "root")
    venv = layout.generation(ID) / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", venv], check=True)
    return layout


@pytest.fixture
def work(layout: Layout) -> Iterator[Path]:
    with smoke.workplace(layout) as work:
        yield work


@pytest.fixture
def run(layout: Layout, work: Path, monkeypatch: pytest.MonkeyPatch) -> RunOne:
    """Runs a case of the test's own among the real ones."""

    def run_one(source: str, *, by: str = "host", limit_s: float = 20, stop: bool = False) -> Json:
        monkeypatch.setattr(smoke, "_BY_GENERATION", {"probe": by == "generation"})
        (work / "cudaup" / "smoke" / "probe.py").write_text(SAY + source)
        asked = smoke.context_of(layout.generation(ID), {"cases": ["probe"], "imports": ["x"]})
        return smoke.run_case("probe", work, asked, limit_s, lambda: stop)

    return run_one


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


# what counts as a verdict


@pytest.mark.parametrize("verdict", ["pass", "fail", "noop", "substituted", "waived", "error"])
def test_a_verdict_is_taken_as_it_is(run: RunOne, verdict: str) -> None:
    found = run(f"print('chatter')\nsay(verdict={verdict!r}, reason='why', evidence={{'a': 1}})")
    assert (found["case"], found["verdict"], found["reason"]) == ("probe", verdict, "why")
    assert (found["evidence"], found["simulated"], found["seconds"] > 0) == ({"a": 1}, False, True)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "ended without a verdict"),
        ("print('pass')", "ended without a verdict: pass"),
        ("say(verdict='passed')", "ended without a verdict"),
        ("say(verdict='pass')\nprint('and on')", "ended without a verdict: and on"),
        ("say(verdict='pass')\nraise SystemExit(3)", "exit code 3"),
        ("say(verdict='pass')\nimport os; os.abort()", "killed by signal 6"),
        ("1/0", "exit code 1: ZeroDivisionError: division by zero"),
    ],
)
def test_anything_less_than_a_verdict_is_an_error(run: RunOne, source: str, reason: str) -> None:
    found = run(source)
    assert (found["verdict"], found["reason"].startswith(reason)) == ("error", True)


def test_a_hang_is_an_error_and_takes_its_children_with_it(run: RunOne, tmp_path: Path) -> None:
    began = time.monotonic()
    found = run(
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)",
        limit_s=1,
    )
    assert (found["verdict"], found["reason"]) == ("error", "no end after 1 s")
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert time.monotonic() - began < 10


def test_what_a_case_leaves_is_removed(run: RunOne, work: Path) -> None:
    source = "import subprocess\nchild = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    found = run(source + "say(verdict='pass', evidence={'pid': child.pid})")
    assert found["verdict"] == "pass"
    assert is_gone(found["evidence"]["pid"])
    assert list(work.iterdir()) == [work / "cudaup"]


def test_a_stop_is_an_error(run: RunOne) -> None:
    assert run("say(verdict='pass')", stop=True)["reason"] == "stopped before it began"


# where a case runs


def test_the_environment_is_the_generations_and_nothing_of_ours(
    run: RunOne, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    (layout.generation(ID) / "env").write_text('CUDA_HOME="/the toolkit"\nPYTHONPYCACHEPREFIX="/cache"\n')
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    env = run("import os\nsay(verdict='pass', evidence=dict(os.environ))")["evidence"]
    assert (env["CUDA_HOME"], env["PYTHONPYCACHEPREFIX"]) == ("/the toolkit", "/cache")
    assert set(env) - {"LC_CTYPE"} == {
        "CUDA_HOME",
        "HOME",
        "LANG",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONNOUSERSITE",
        "PYTHONPYCACHEPREFIX",
        "TMPDIR",
    }


def test_an_adopted_environment_gets_no_bytecode(run: RunOne) -> None:
    assert run("import sys\nsay(verdict='pass', evidence={'is': sys.dont_write_bytecode})")["evidence"] == {"is": True}
    child = "import subprocess\nprobe = 'import sys; print(sys.dont_write_bytecode)'\n"
    child += "said = subprocess.run([sys.executable, '-c', probe], capture_output=True, text=True).stdout\n"
    assert run("import sys\n" + child + "say(verdict='pass', reason=said)")["reason"] == "True\n"


@pytest.mark.parametrize("by", ["host", "generation"])
def test_a_case_runs_by_the_python_it_asks_about(run: RunOne, layout: Layout, by: str) -> None:
    prefix = run("import sys\nsay(verdict='pass', reason=sys.prefix)", by=by)["reason"]
    assert prefix == (sys.prefix if by == "host" else str(layout.generation(ID) / "venv"))


def test_a_case_is_told_about_the_generation(run: RunOne, layout: Layout) -> None:
    source = "import sys\nsay(verdict='pass', evidence=json.load(open(sys.argv[1])))"
    asked = run(source)["evidence"]
    venv = str(layout.generation(ID) / "venv")
    assert (asked["venv"], asked["toolkit"], asked["sm"], asked["imports"]) == (venv, None, None, ["x"])


# whole suites


def test_the_real_cases_run_in_order_and_tell_what_they_do(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    probed = {"gpus": [], "driver": {"loaded": None, "library": None}, "simulated": ["gpus"], "problems": []}
    monkeypatch.setattr(smoke, "_probe_gpus", lambda: probed)
    site = next((layout.generation(ID) / "venv" / "lib").glob("python3*/site-packages"))
    (site / "mine.py").write_text("value = 1\n")
    suite = {"cases": ["imports", "record", "nvcc", "launch", "driver", "other"], "sm": "120", "imports": ["mine"]}
    channel = Recorder()
    found = smoke.run_suite(layout, ID, suite, channel, lambda: False)
    assert [(each["case"], each["verdict"], each["simulated"]) for each in found] == [
        ("imports", "pass", False),
        ("record", "fail", False),  # nothing is installed there
        ("nvcc", "waived", False),  # nor is a toolkit
        ("launch", "waived", True),
        ("driver", "waived", True),
        ("other", "error", False),
    ]
    assert channel.sent[:2] == [("started", f"imports on {ID}"), ("done", f"imports on {ID}: pass")]
    assert not (layout.generation(ID) / "venv" / "lib" / "__pycache__").exists()


def test_what_a_case_starts_compiles_nothing_into_the_generations_cache(layout: Layout) -> None:
    """A disk that fills up meanwhile leaves half a file there, which every later import dies of (seen by the sweep)."""
    generation = layout.generation(ID)
    (generation / "env").write_text(f'PYTHONPYCACHEPREFIX="{generation}/cache/pycache"\n')
    site = next((generation / "venv" / "lib").glob("python3*/site-packages"))
    (site / "mine.py").write_text("value = 1\n")
    (verdict,) = smoke.run_suite(layout, ID, {"cases": ["imports"], "imports": ["mine"]}, Recorder(), lambda: False)
    assert verdict["verdict"] == "pass"
    assert not (generation / "cache" / "pycache").exists()


def test_a_suite_leaves_nothing_behind(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "_roomy", lambda _layout: tmp_path)
    before = set(tmp_path.iterdir())
    smoke.run_suite(layout, ID, {"cases": ["record"]}, Recorder(), lambda: False)
    assert set(tmp_path.iterdir()) == before


CASES = [{"case": "imports", "verdict": "pass"}, {"case": "launch", "verdict": "waived"}]


@pytest.mark.parametrize(
    ("suite", "is_passed"),
    [
        ({"cases": ["imports"]}, True),
        ({"cases": ["imports", "launch"]}, False),
        ({"cases": ["imports", "launch"], "accept": {"launch": ["pass", "waived"]}}, True),
        ({"cases": ["imports", "record"]}, False),  # never ran
        ({"cases": ["imports"], "accept": {"imports": ["waived"]}}, False),
    ],
)
def test_a_suite_passes_when_every_verdict_is_accepted(suite: Json, is_passed: bool) -> None:  # noqa: FBT001 - a table
    assert smoke.passed(CASES, suite) is is_passed
