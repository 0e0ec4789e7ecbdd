"""Environments that name their own path inside: conda's prefix, the console scripts of a real venv."""

import hashlib
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tests.unit.host_state.machine import TIMES, Machine, make_environment

from cudaup.host import activate, adopt, confirm, environment, forget, generations, lease, proof, rollback, smoke

NEW = "0002-abcdef"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
SUITE = {"cases": ["imports", "record"], "imports": ["demo"]}


def make_conda(env: Path) -> None:
    """As conda lays one out: no pyvenv.cfg, its own interpreter, its path written into scripts and records."""
    site = env / "lib" / PYTHON / "site-packages"
    make_environment(env, "1.0")
    (env / "pyvenv.cfg").unlink()
    (env / "bin" / "python").unlink()
    (env / "bin" / PYTHON).write_bytes(Path(sys.executable).resolve().read_bytes())
    (env / "bin" / PYTHON).chmod(0o755)
    (env / "bin" / "python").symlink_to(PYTHON)
    for entry in Path(sysconfig.get_path("stdlib")).iterdir():
        if entry.name not in {"site-packages", "__pycache__"}:
            (site.parent / entry.name).symlink_to(entry)
    script = env / "bin" / "demo"
    script.write_text(f"#!{env}/bin/python\nimport sys\nprint(sys.prefix)\n")
    script.chmod(0o755)
    files = [env / "bin" / PYTHON, site / "demo.py", script]
    (env / "conda-meta").mkdir()
    (env / "conda-meta" / "history").write_text("==> 2026-01-01 00:00:00 <==\n")
    for name, owned in ((f"python-{sys.version.split()[0]}-h1_0", files[:1]), ("demo-1.0-py_0", files[1:])):
        paths = [
            {
                "_path": str(path.relative_to(env)),
                "path_type": "hardlink",
                "sha256": "0" * 64,  # of the package, before the path was written into it
                "sha256_in_prefix": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in owned
        ]
        meta = {"name": name, "paths_data": {"paths": paths, "paths_version": 1}, "extracted_package_dir": str(env)}
        (env / "conda-meta" / f"{name}.json").write_text(json.dumps(meta))


def content(folder: Path) -> dict[str, tuple[int, int, int, bytes | Path]]:
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_ino,
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else b"",
        )
        for path in [folder, *folder.rglob("*")]
    }


def prefix_of(machine: Machine, script: Path) -> str:
    return subprocess.run([script], capture_output=True, check=True, text=True, cwd=machine.folder).stdout.strip()


@pytest.fixture
def conda(machine: Machine) -> Machine:
    machine.systemd.stop("ml.service")
    (machine.path / "serve.py").rename(machine.folder / "serve.py")
    subprocess.run(["rm", "-r", machine.path], check=True)
    make_conda(machine.path)
    (machine.folder / "serve.py").rename(machine.path / "serve.py")
    machine.systemd.start("ml.service")
    return machine


def go(machine: Machine) -> list[dict[str, object]]:
    """To the new generation, confirmed; what the baseline found."""
    machine.stage(NEW)
    epoch = machine.take_lease()
    times = {**TIMES, "suite": SUITE}
    done = activate.activate(machine.call(epoch, generation=NEW, **times))
    confirm.confirm(machine.call(epoch))
    lease.release(machine.call(epoch))
    baseline: list[dict[str, object]] = done["baseline"]
    return baseline


def test_a_conda_environment_is_adopted_proven_left_and_given_back(conda: Machine) -> None:
    before = content(conda.path)
    described = environment.describe(conda.path)
    assert (described["kind"], described["python"]) == ("conda", sys.version.split()[0])
    old = str(adopt.adopt(conda.call(path=str(conda.path)))["generation"])

    baseline = {case["case"]: case for case in go(conda)}
    assert {name: case["verdict"] for name, case in baseline.items()} == {"imports": "pass", "record": "pass"}
    assert baseline["record"]["evidence"]["files"] == 4  # type: ignore[index]  # RECORD and its file, Python, script
    aside = conda.folder / f".ml-env.{old}"
    origin = baseline["imports"]["evidence"]["imported"]["demo"]  # type: ignore[index]
    assert origin == f"{aside}/lib/{PYTHON}/site-packages/demo.py"
    assert conda.served_from() == NEW

    back = rollback.rollback(conda.call(to=old))
    assert (back["state"], [case["verdict"] for case in back["after"]]) == ("rolled-back-proven", ["pass"])
    forget.forget(conda.ctx)
    assert content(conda.path) == before
    assert prefix_of(conda, conda.path / "bin" / "demo") == str(conda.path)


@pytest.mark.usefixtures("conda")
def test_the_digest_moves_with_a_package_that_only_conda_knows(machine: Machine) -> None:
    before = environment.describe(machine.path)["digest"]
    (machine.path / "conda-meta" / "cuda-cudart-12.8.90-0.json").write_text("{}")
    assert environment.describe(machine.path)["digest"] != before


def test_an_old_console_script_reaches_the_new_python_but_the_old_smoke_does_not(conda: Machine) -> None:
    """Its first line names the path, and the path leads to what is current: so it is with venv's scripts too."""
    conda.systemd.stop("ml.service")
    subprocess.run(["rm", "-r", conda.path], check=True)
    venv.create(conda.path, symlinks=True)
    make_environment(conda.folder / "parts", "1.0")
    site = Path("lib") / PYTHON / "site-packages"
    for part in (conda.folder / "parts" / site).iterdir():
        part.rename(conda.path / site / part.name)
    script = conda.path / "bin" / "demo"
    script.write_text(f"#!{conda.path}/bin/python\nimport demo\nprint(demo.VERSION)\n")
    script.chmod(0o755)
    old = str(adopt.adopt(conda.call(path=str(conda.path)))["generation"])
    aside = conda.folder / f".ml-env.{old}"
    assert prefix_of(conda, aside / "bin" / "demo") == "1.0"
    go(conda)
    assert prefix_of(conda, aside / "bin" / "demo") == "2.0"
    found = {case["case"]: case for case in proof.run(conda.ctx, old, SUITE, lambda: False).cases}
    assert found["imports"]["evidence"]["imported"] == {"demo": f"{aside}/{site}/demo.py"}
    assert smoke.context_of(conda.ctx.layout.generation(old), SUITE)["venv"] == str(aside)
    assert generations.current_id(conda.ctx.layout) == NEW


def test_as_above_with_copies_of_the_interpreter_and_a_blank_in_the_path(conda: Machine) -> None:
    conda.systemd.stop("ml.service")
    spaced = conda.folder / "my env"
    venv.create(spaced, symlinks=False)
    make_environment(conda.folder / "parts", "1.0")
    site = Path("lib") / PYTHON / "site-packages"
    for part in (conda.folder / "parts" / site).iterdir():
        part.rename(spaced / site / part.name)
    before = content(spaced)
    old = str(adopt.adopt(conda.call(path=str(spaced)))["generation"])
    verdicts = [case["verdict"] for case in go(conda)]
    assert verdicts == ["pass", "pass"]
    assert rollback.rollback(conda.call(to=old))["state"] == "rolled-back-proven"
    forget.forget(conda.ctx)
    assert content(spaced) == before
