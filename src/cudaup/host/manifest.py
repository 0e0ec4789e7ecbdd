"""What every file of a generation was when it was made, and whether it still is.

Not looked at: the generation's own caches, its record (which changes), and bytecode, which Python itself checks
against its source and which anyone who starts the interpreter by hand writes.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from cudaup.host import generations
from cudaup.host.files import sha256_file, write_json
from cudaup.host.layout import Layout
from cudaup.host.protocol import Context, Json, Refused

MANIFEST = "manifest.json"
_TOP_LEVEL_IGNORED = frozenset({"cache", "generation.json", MANIFEST, f".{MANIFEST}.new", ".generation.json.new"})
_IGNORED_DIR = "__pycache__"
_LISTED_PROBLEMS = 100


def seal(generation: Path) -> None:
    """Write down what is there. Hashes every file."""
    entries = {name: _entry(path, info, full=True) for name, path, info in _walk(generation)}
    write_json(generation / MANIFEST, entries)


def verify(ctx: Context) -> Json:
    """The verb `verify`."""
    return check(ctx.layout, generations.asked(ctx), full=ctx.options["full"])


def check(layout: Layout, generation_id: str, *, full: bool) -> Json:
    """`fast` trusts size and modification time, `full` reads every byte again."""
    generation = layout.generation(generation_id)
    sealed = _sealed(generation)
    problems, seen = [], set()
    for name, path, info in _walk(generation):
        seen.add(name)
        problem = _problem(sealed.get(name), path, info, full=full)
        if problem:
            problems.append({"path": name, "problem": problem})
    problems += [{"path": name, "problem": "missing"} for name in sealed if name not in seen]
    return {
        "generation": generation_id,
        "ok": not problems,
        "mode": "full" if full else "fast",
        "files": len(seen),
        "problems": sorted(problems, key=lambda each: each["path"])[:_LISTED_PROBLEMS],
    }


def _sealed(generation: Path) -> Dict[str, Json]:
    try:
        sealed: Dict[str, Json] = json.loads((generation / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused("not-found", f"`{generation}` has no {MANIFEST}: it was never finished") from None
    except ValueError as error:
        raise Refused("not-verified", f"`{generation / MANIFEST}` is damaged: {error}") from error
    return sealed


def _problem(wanted: Optional[Json], path: Path, info: os.stat_result, *, full: bool) -> str:
    if wanted is None:
        return "extra"
    try:
        found = _entry(path, info, full=full)
    except OSError:
        return "unreadable"
    return "" if all(wanted.get(key) == value for key, value in found.items()) else "changed"


def _entry(path: Path, info: os.stat_result, *, full: bool) -> Json:
    if stat.S_ISLNK(info.st_mode):
        return {"link": os.readlink(str(path))}
    entry: Json = {"mode": stat.S_IMODE(info.st_mode), "kind": stat.S_IFMT(info.st_mode)}
    if stat.S_ISREG(info.st_mode):
        entry.update(size=info.st_size, mtime_ns=info.st_mtime_ns)
        if full:
            entry["sha256"] = sha256_file(path)
    return entry


def _walk(generation: Path) -> Iterator[Tuple[str, Path, os.stat_result]]:
    """Everything of a generation, by its path in it; then the interpreter, by its own.

    An adopted generation's `venv` is a link to where the environment lies: followed, as the files there are it.
    """
    yield from _below(generation, "", _TOP_LEVEL_IGNORED)
    venv = generation / "venv"
    if venv.is_symlink():
        yield from _below(Path(os.path.realpath(str(venv))), "venv/", frozenset())
    interpreter = Path(os.path.realpath(str(venv / "bin" / "python")))
    if interpreter.is_file() and Path(os.path.realpath(str(venv))) not in interpreter.parents:
        yield str(interpreter), interpreter, interpreter.stat()


def _below(directory: Path, prefix: str, ignored: "frozenset[str]") -> Iterator[Tuple[str, Path, os.stat_result]]:
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
                yield inside + entry.name, Path(entry.path), entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def _scan(folder: str) -> "List[os.DirEntry[str]]":
    """Nothing where there is no folder; an adopt cut short leaves links that lead in a circle."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ELOOP}:
            raise
        return []
