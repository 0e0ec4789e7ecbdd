"""Runs inside a host for a whole sweep: looks at the environment's path and the service all the time, obeys the driver.

It opens nothing below the path: who has a file there open counts as somebody who works with it.
"""

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

RUN, NEXT_BOOT = Path("/run/cudaup-sweep"), Path("/etc/cudaup-sweep")
LOG, STOP, REACHED, GO = (RUN / name for name in ("log", "stop", "reached", "go"))
TRANSIT = Path("/opt/cudaup/transit.json")
PATH = Path("/root/ml-env")
SITE = "lib/python3.11/site-packages"
URL = "http://127.0.0.1:8000/"
_PATH_EVERY_S, _SERVICE_EVERY_S = 0.006, 0.2

say_lock = threading.Lock()


def say(**words: Any) -> None:
    with say_lock:
        sys.stdout.write(json.dumps({"at": round(time.monotonic(), 3), **words}) + "\n")
        sys.stdout.flush()


class Watch:
    """`known` has, by variant, the versions that belong together; `""` is what was there before cudaup."""

    def __init__(self, known: dict[str, dict[str, str]]) -> None:
        self.known = known
        self.whole: set[str] = set()
        self.tree = ""
        self.service: str | None = None
        self.pid = 0
        self.reached = ""
        self.looks = 0

    def look_at_path(self) -> None:
        self.looks += 1
        try:
            (PATH / "bin/python").stat()
        except OSError as error:
            say(bad=f"the path: {error}")
            return
        tree = os.path.realpath(PATH)
        if not os.path.isdir(tree):  # noqa: PTH112 - it was resolved in steps, and something moved meanwhile
            return
        if tree != self.tree:
            self.tree = tree
            say(path=tree)
        if tree not in self.whole:
            found = {name: self.version_in(tree, name) for name in self.known[""]}
            if found in self.known.values():
                self.whole.add(tree)
            else:
                say(bad=f"a mixed environment at {tree}: {found}")

    def version_in(self, tree: str, name: str) -> str | None:
        versions = {versions[name] for versions in self.known.values()}
        there = [each for each in versions if Path(tree, SITE, f"{name}-{each}.dist-info").is_dir()]
        return there[0] if len(there) == 1 else None

    def look_at_service(self) -> None:
        """Down is no harm. What it answers must be one variant: by its versions, its variables and its files."""
        try:
            with urllib.request.urlopen(URL, timeout=2) as answer:
                found = json.loads(answer.read())
            pid = found["pid"]
            variant, trees = variant_of(pid), trees_of(pid)
        except (OSError, ValueError):
            self.seen(None, 0)
            return
        if not trees:  # it is just ending
            self.seen(None, 0)
            return
        if found["versions"] != self.known.get(variant) or len(trees) != 1:
            say(bad=f"a mixed service: {found['versions']} of variant `{variant}` from {sorted(trees)}")
        self.seen(variant, pid)

    def seen(self, variant: str | None, pid: int) -> None:
        self.pid = pid
        if variant != self.service:
            self.service = variant
            say(service=variant)

    def look_for_stop(self) -> None:
        try:
            reached = REACHED.read_text()
        except FileNotFoundError:
            reached = ""
        if reached and reached != self.reached:
            say(reached=json.loads(reached))
        self.reached = reached


def variant_of(pid: int) -> str:
    """Which generation's variables a process has. Raises OSError when it is gone."""
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(each.partition("=")[::2] for each in pairs).get("CUDAUP_TEST", "")


def trees_of(pid: int) -> set[str]:
    """The environments whose files a process has mapped. Raises OSError when it is gone."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(None, 5)[5].partition(f"/{SITE}")[0] for line in maps if f"/{SITE}" in line}


def arm(stop: str, *, next_boot: bool) -> None:
    """Count from zero. On the disk before it is answered: the next thing may be a power loss."""
    for path in (LOG, GO, REACHED):
        path.unlink(missing_ok=True)
    STOP.write_text("" if next_boot else stop)
    if next_boot:
        with NEXT_BOOT.open("w") as stream:
            stream.write(stop)
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder()


def disarm() -> None:
    """In this boot and the next."""
    STOP.write_text("")
    if NEXT_BOOT.exists():
        NEXT_BOOT.unlink()
        sync_folder()


def sync_folder() -> None:
    fd = os.open(NEXT_BOOT.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def programs() -> list[int]:
    """Processes of the host program: streamed, by hand, or of a unit."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(path.name) != os.getpid() and b"cudaup-host" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


def waits_for_input(pid: int) -> bool:
    """Streamed, and cut off before it knew what to do; its input may never come."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()[:2] == ["0", "0x0"]
    except OSError:
        return True  # it has ended


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def obey(watch: Watch, order: dict[str, Any]) -> dict[str, Any]:
    do = order["do"]
    if do == "arm":
        arm(order["stop"], next_boot=order["next_boot"])
    elif do == "disarm":
        disarm()
    elif do == "go":
        GO.touch()
    elif do == "kill":
        kill([order["pid"]] if order["pid"] else programs())
    looks, watch.looks = watch.looks, 0
    return {
        "is_quiet": not TRANSIT.exists() and all(map(waits_for_input, programs())),
        "in_transit": TRANSIT.exists(),
        "written": LOG.read_text().splitlines() if LOG.exists() else [],
        "service": watch.service,
        "pid": watch.pid,
        "looks": looks,
    }


def watch_service(watch: Watch) -> None:
    while True:
        watch.look_at_service()
        time.sleep(_SERVICE_EVERY_S)


def main() -> None:
    watch = Watch(json.loads(sys.argv[1]))
    RUN.mkdir(exist_ok=True)
    threading.Thread(target=watch_service, args=(watch,), daemon=True).start()
    pending = b""
    while True:
        watch.look_at_path()
        watch.look_for_stop()
        if not select.select([0], [], [], _PATH_EVERY_S)[0]:
            continue
        more = os.read(0, 65536)
        if not more:
            return
        *lines, pending = (pending + more).split(b"\n")
        for line in lines:
            order = json.loads(line)
            say(answer=order["id"], data=obey(watch, order))


if __name__ == "__main__":
    main()
