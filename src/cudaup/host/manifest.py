"""What every file of a generation was when it was made, and whether it still is.

Not looked at: the generation's own caches, its record (which changes), and bytecode, which Python itself checks
against its source and which anyone who starts the interpreter by hand writes.

Files are hard links into uv's cache and into sibling generations where the filesystem cannot clone them: an edit in
place reaches them all, and each link that is made or removed moves the ctime of all. So what has a new ctime is read
again, and `renew` writes down the new one.
"""

import errno
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from cudaup.host import generations, interpreter
from cudaup.host.files import read_own, sha256_file, write_json
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Failed, Json, Refused

MANIFEST = "manifest.json"
_TOP_LEVEL_IGNORED = frozenset({"cache", "generation.json", MANIFEST, f".{MANIFEST}.new", ".generation.json.new"})
_IGNORED_DIR = "__pycache__"
_LISTED_PROBLEMS = 100
_THREADS = min(4, os.cpu_count() or 1)  # the service runs on meanwhile


class Found(NamedTuple):
    """One name in a generation, as it is now."""

    name: str
    path: str
    info: os.stat_result


class Digests:
    """What files hold: each inode is read once, however many generations link to it."""

    def __init__(self) -> None:
        self._known: Dict[Tuple[int, int, int], str] = {}

    def of(self, several: Sequence[Found]) -> List[str]:
        """In their order; empty for what cannot be read."""
        with ThreadPoolExecutor(_THREADS) as pool:  # hashing runs outside the interpreter's lock
            return list(pool.map(self._of, several))

    def _of(self, found: Found) -> str:
        key = (found.info.st_dev, found.info.st_ino, found.info.st_ctime_ns)
        if key not in self._known:
            try:
                self._known[key] = sha256_file(Path(found.path))
            except OSError:
                return ""
        return self._known[key]


class Comparison(NamedTuple):
    """`moved` are whole files under a new ctime."""

    files: int
    problems: List[Json]
    moved: List[Found]


def seal(generation: Path, digests: Digests) -> Dict[str, Json]:
    """Write down what is there, and return it. Hashes every file. Raises OSError when one cannot be read."""
    found = list(_walk(generation))
    entries = {each.name: _entry(each) for each in found}
    regular = [each for each in found if stat.S_ISREG(each.info.st_mode)]
    for each, digest in zip(regular, digests.of(regular)):
        if not digest:
            raise OSError(f"`{each.path}` cannot be read")
        entries[each.name].update(ctime_ns=each.info.st_ctime_ns, sha256=digest)
    _write(generation, {"files": entries, "interpreter": interpreter.digests(generation / "venv")})
    return entries


def verify(ctx: Context) -> Json:
    """The verb `verify`. Raises Failed `not-verified` with the report: a shell's `&&` goes by the exit status."""
    report = check(ctx.layout, generations.asked(ctx), full=ctx.options["full"])
    if not report["ok"]:
        raise Failed("not-verified", f"{report['generation']} is not what was recorded", report)
    return report


def check(layout: Layout, generation_id: str, *, full: bool) -> Json:
    """`fast` reads what has a new ctime, `full` every byte."""
    generation = layout.generation(generation_id)
    found = _compared(generation, _sealed(generation), Digests(), full=full)
    return {
        "generation": generation_id,
        "ok": not found.problems,
        "mode": "full" if full else "fast",
        "files": found.files,
        "problems": sorted(found.problems, key=lambda each: str(each["path"]))[:_LISTED_PROBLEMS],
    }


def renew(layout: Layout, digests: Digests) -> None:
    """After links were made or removed: files that are what they were get their new ctime written down.

    Best effort. Without it a fast `verify` is right all the same, only slow.
    """
    for record in generations.load_all(layout):
        generation = layout.generation(record["id"])
        with suppress(OSError, Refused):
            sealed = _sealed(generation)
            moved = _compared(generation, sealed, digests, full=False).moved
            for each in moved:
                sealed["files"][each.name]["ctime_ns"] = each.info.st_ctime_ns
            if moved:
                _write(generation, sealed)


def _sealed(generation: Path) -> Json:
    try:
        sealed: Json = json.loads(read_own(generation / MANIFEST).decode())
    except FileNotFoundError:
        raise Refused("not-found", f"`{generation}` has no {MANIFEST}: it was never finished") from None
    except ValueError as error:
        raise Refused("not-verified", f"`{generation / MANIFEST}` is damaged: {error}") from error
    return sealed


def _write(generation: Path, sealed: Json) -> None:
    write_json(generation / MANIFEST, sealed)


def _compared(generation: Path, sealed: Json, digests: Digests, *, full: bool) -> Comparison:
    files: Dict[str, Json] = sealed["files"]
    problems: List[Json] = []
    unread: List[Found] = []
    seen = set()
    for found in _walk(generation):
        seen.add(found.name)
        wanted = files.get(found.name)
        problem = _problem(wanted, found)
        if problem:
            problems.append({"path": found.name, "problem": problem})
        elif wanted is not None and "sha256" in wanted and (full or wanted["ctime_ns"] != found.info.st_ctime_ns):
            unread.append(found)
    moved = []
    for found, digest in zip(unread, digests.of(unread)):
        if digest == files[found.name]["sha256"]:
            moved.append(found)
        else:
            problems.append({"path": found.name, "problem": "changed" if digest else "unreadable"})
    problems += [{"path": name, "problem": "missing"} for name in files if name not in seen]
    now = interpreter.digests(generation / "venv")
    problems += interpreter.problems(sealed["interpreter"], now)
    return Comparison(len(seen) + len(now), problems, moved)


def _problem(wanted: Optional[Json], found: Found) -> str:
    if wanted is None:
        return "extra"
    try:
        now = _entry(found)
    except OSError:
        return "unreadable"
    return "" if all(wanted.get(key) == value for key, value in now.items()) else "changed"


def _entry(found: Found) -> Json:
    """All of it that costs no reading."""
    info = found.info
    if stat.S_ISLNK(info.st_mode):
        return {"link": os.readlink(found.path)}
    if stat.S_ISREG(info.st_mode):
        return {"mode": info.st_mode, "size": info.st_size, "mtime_ns": info.st_mtime_ns}
    return {"mode": info.st_mode}


def _walk(generation: Path) -> Iterator[Found]:
    """Everything of a generation, by its path in it.

    An adopted generation's `venv` is a link to where the environment lies: followed, as the files there are it.
    """
    yield from _below(generation, "", _TOP_LEVEL_IGNORED)
    venv = generation / "venv"
    if venv.is_symlink():
        yield from _below(Path(os.path.realpath(str(venv))), "venv/", frozenset())


def _below(directory: Path, prefix: str, ignored: "frozenset[str]") -> Iterator[Found]:
    """What goes away meanwhile was not there."""
    pending: List[Tuple[str, str]] = [(str(directory), prefix)]
    while pending:
        folder, inside = pending.pop()
        for entry in _scan(folder):
            if entry.name == _IGNORED_DIR or (inside == prefix and entry.name in ignored):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, inside + entry.name + "/"))
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield Found(inside + entry.name, entry.path, info)


def _scan(folder: str) -> "List[os.DirEntry[str]]":
    """Nothing where there is no folder; an adopt cut short leaves links that lead in a circle."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ELOOP}:
            raise
        return []
