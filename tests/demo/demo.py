"""`make demo`: three real hosts upgraded, one of them failing, then all rolled back. Checks every exit code.

GPUs are simulated (recorded tool output); ssh, systemd, Ansible, wheels, nvcc and the switch are real.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
CUDAUP = [sys.executable, "-m", "cudaup.ui.cli"]
STACK = TREE / "stacks" / "demo.yml"
LAB = "demo"
INVENTORY = Path("/var/lib/cudaup-lab") / LAB / "inventory.yml"
STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"\n\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def cudaup(*arguments: str, expect: int) -> None:
    """Run one command as a person would and insist on its exit code."""
    print(f"$ cudaup {' '.join(arguments)}", flush=True)
    done = subprocess.run([*CUDAUP, *arguments], check=False)
    print(f"[exit {done.returncode}, {time.monotonic() - STARTED:.0f} s since the start]", flush=True)
    if done.returncode != expect:
        sys.exit(f"demo failed: `cudaup {arguments[0]}` ended with {done.returncode}, wanted {expect}")


def act(directory: Path) -> None:
    inventory = ("-i", str(INVENTORY))
    say("three hosts on the old stack: real systemd, real sshd, simulated GPUs")
    cudaup("lab", "up", "--hosts", "3", "--name", LAB, expect=0)
    cudaup("status", *inventory, expect=0)

    say("plan: what would change, and why")
    plan = str(directory / "plan.json")
    cudaup("plan", *inventory, "-s", str(STACK), "-o", plan, "--detailed-exitcode", expect=2)

    say("apply the reviewed plan: lease, prepare through Ansible, stop, smoke, switch, prove, confirm")
    cudaup("apply", plan, "--yes", expect=0)
    cudaup("plan", *inventory, "-s", str(STACK), "--detailed-exitcode", expect=0)

    say("the next stack wants headers in /opt/site/include; on h2 leftovers lie there, which only a smoke case can see")
    following = directory / "next.yml"
    following.write_text(STACK.read_text().replace("\nenv:\n", "\nenv:\n  CPATH: /opt/site/include\n", 1))
    leftovers = "mkdir -p /opt/site/include; echo '#error a header of the old toolkit' >/opt/site/include/features.h"
    cudaup("lab", "exec", "--name", LAB, "--host", "h2", "--", "sh", "-c", leftovers, expect=0)
    cudaup("apply", *inventory, "-s", str(following), "--yes", expect=4)
    cudaup("status", *inventory, expect=0)

    say("the incident: the whole fleet back to the stack it started with, no index, no play")
    cudaup("rollback", *inventory, "--to", "1", expect=4)
    cudaup("status", *inventory, expect=0)


def main() -> None:
    os.environ["CUDAUP_STATE"] = tempfile.mkdtemp(prefix="cudaup-demo-")
    subprocess.run([*CUDAUP, "lab", "down", "--name", LAB], check=False, capture_output=True)
    try:
        with tempfile.TemporaryDirectory() as directory:
            act(Path(directory))
    finally:
        subprocess.run([*CUDAUP, "lab", "down", "--name", LAB], check=False)
    say(f"done in {time.monotonic() - STARTED:.0f} s: planned, applied, one host put back by itself, fleet rolled back")


if __name__ == "__main__":
    main()
