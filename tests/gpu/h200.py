"""Run by hand on a machine with H200s and driver 580 (no systemd, no network): what this project has seen on real GPUs.

`python3 tests/gpu/h200.py WHEELS`, with the wheels of cudaup's dependencies on PYTHONPATH and msgpack, packaging and uv
for Python 3.12 in the folder WHEELS. The 590 rule must refuse; a stack that allows 580 is then applied to this machine,
its `driver` case judged on the real driver, and the machine put back. `launch` runs with the machine's own toolkit.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import parse_wheel_filename

TREE = Path(__file__).resolve().parents[2]
DEMO = TREE / "stacks" / "demo.yml"
ENVIRONMENT = Path("/root/ml-env")
NAMES = {"msgpack", "packaging"}


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def cudaup(*arguments: str, expect: int) -> None:
    print(f"$ cudaup {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "cudaup.ui.cli", *arguments], check=False)
    print(f"[exit {done.returncode}]", flush=True)
    if done.returncode != expect:
        sys.exit(f"wanted exit {expect}")


def pin(path: Path) -> dict[str, Any]:
    name, version, _, _ = parse_wheel_filename(path.name)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "name": str(name),
        "version": str(version),
        "filename": path.name,
        "sha256": digest,
        "size": path.stat().st_size,
    }


def stack_for(wheels: Path, target: Path) -> None:
    pins = {str(found["name"]): found for found in map(pin, wheels.glob("*.whl"))}
    stack = yaml.safe_load(DEMO.read_text())
    del stack["toolkit"]
    stack |= {
        "name": "h200",
        "driver": ">=580,<581",
        "gpus": {"arch": "9.0"},
        "python": ">=3.12,<3.13",
        "env": {},
        "imports": sorted(NAMES),
        "uv": pins["uv"],
        "wheels": [pins[name] for name in sorted(NAMES)],
        "smoke": {"cases": ["driver", "imports", "record"]},
        "health": {},
    }
    target.write_text(yaml.safe_dump(stack))


def old_environment(wheels: Path) -> None:
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(ENVIRONMENT)], check=True)
    packages = ENVIRONMENT / "lib" / "python3.12" / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--find-links", str(wheels)]
    subprocess.run([*command, "--target", str(packages), "packaging"], check=True)


def cases_with_the_toolkit_of_the_machine() -> None:
    from cudaup.host import smoke  # noqa: PLC0415 - the host program's own runner, with its own probe of the GPUs

    with tempfile.TemporaryDirectory() as directory:
        generation = Path(directory)
        (generation / "venv").symlink_to(ENVIRONMENT)
        (generation / "cuda").symlink_to("/usr/local/cuda")
        suite = {"cases": ["driver", "nvcc", "launch"], "sm": "90", "imports": []}
        asked = smoke.context_of(generation, suite)
        with tempfile.TemporaryDirectory() as root:
            from cudaup.host.layout import Layout  # noqa: PLC0415 - as above

            with smoke.workplace(Layout(Path(root))) as work:
                for case in suite["cases"]:
                    print(
                        json.dumps(smoke.run_case(str(case), work, asked, 120.0, lambda: False), indent=1), flush=True
                    )


def main() -> None:
    wheels = Path(sys.argv[1]).resolve()
    os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels), PYTHONUNBUFFERED="1")
    old_environment(wheels)
    local = ("-i", "localhost,")
    say("driver 580 against the 590 rule: refused")
    cudaup("plan", *local, "-s", str(DEMO), expect=3)
    say("a stack that allows 580: applied to this machine, proven on the real driver, put back")
    stack = Path(tempfile.mkdtemp()) / "h200.yml"
    stack_for(wheels, stack)
    cudaup("plan", *local, "-s", str(stack), "--detailed-exitcode", expect=2)
    cudaup("apply", *local, "-s", str(stack), "--yes", expect=0)
    cudaup("status", *local, expect=0)
    cudaup("rollback", *local, expect=4)
    say("the cases that need a compiler and a GPU, with the machine's own toolkit, for sm_90")
    cases_with_the_toolkit_of_the_machine()


if __name__ == "__main__":
    main()
