"""Which processes use a directory: as program, working directory, open file or mapping. Read from /proc."""

import os
from pathlib import Path
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union


class Use(NamedTuple):
    pid: int
    command: str
    how: str
    path: str


def users_of(places: Sequence[Path]) -> List[Use]:
    """Processes other than this one that use any of `places`; one entry each, the first use found."""
    prefixes = [str(place) for place in places]
    uses_found = (_use_by(pid, prefixes) for pid in pids() if pid != os.getpid())
    return [use for use in uses_found if use is not None]


def pids() -> List[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def uses(pid: int, places: Sequence[Path]) -> List[Use]:
    """All uses of `places` by one process."""
    prefixes = [str(place) for place in places]
    command = " ".join(argv_of(pid)[:3])
    return [Use(pid, command, how, path) for how, path in _paths_of(pid) if is_under(path, prefixes)]


def environ_of(pid: int) -> List[str]:
    return _read(pid, "environ").split("\0")


def argv_of(pid: int) -> List[str]:
    return _read(pid, "cmdline").split("\0")[:-1]


def _use_by(pid: int, prefixes: Sequence[str]) -> Optional[Use]:
    for how, path in _paths_of(pid):
        if is_under(path, prefixes):
            return Use(pid, " ".join(argv_of(pid)[:3]), how, path)
    return None


def _paths_of(pid: int) -> Iterable[Tuple[str, str]]:
    """Cheapest first. Only the program and its script count of the arguments: `vim FILE` does not run from FILE."""
    for argument in argv_of(pid)[:2]:
        yield "argument", argument
    for name in ("exe", "cwd", "root"):
        yield name, _link(pid, name)
    for line in _read(pid, "maps").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6:
            yield "mapping", fields[5]
    for fd in _list_fds(pid):
        yield "open file", _link(pid, f"fd/{fd}")


def is_under(path: str, places: Sequence[Union[Path, str]]) -> bool:
    return any(path == str(place) or path.startswith(f"{place}/") for place in places)


def _list_fds(pid: int) -> List[str]:
    try:
        return [path.name for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def _read(pid: int, name: str) -> str:
    """Empty when the process is gone, or is not ours to look at."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
