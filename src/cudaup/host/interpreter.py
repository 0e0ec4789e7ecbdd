"""The interpreter of an environment where it lies elsewhere: the distribution's, which may be upgraded under it."""

import os
import re
from pathlib import Path
from typing import Dict, Iterator, List

from cudaup.host.files import sha256_file
from cudaup.host.protocol import Json

CHANGED, LEFT, OTHER = "the interpreter changed", "no longer the interpreter", "another interpreter"
PROBLEMS = frozenset({CHANGED, LEFT, OTHER})
_LIBPYTHON = re.compile(rb"libpython3[0-9.]*[a-z]*\.so[0-9.]*")  # as the program names it in its dynamic section
_LIBRARY_FOLDERS = ("lib", "lib64", "lib/x86_64-linux-gnu")


def digests(venv: Path) -> Dict[str, str]:
    """By path, of the program that `bin/python` leads to and of the libpython it loads.

    Empty when the program lies in the environment itself, where it is a file like all others.
    """
    program = Path(os.path.realpath(str(venv / "bin" / "python")))
    if not program.is_file() or Path(os.path.realpath(str(venv))) in program.parents:
        return {}
    return {str(path): sha256_file(path) for path in (program, *_libraries_of(program))}


def problems(sealed: Dict[str, str], now: Dict[str, str]) -> List[Json]:
    gone = [{"path": path, "problem": LEFT} for path in sealed if path not in now]
    changed = [{"path": path, "problem": CHANGED} for path in sealed if now.get(path, sealed[path]) != sealed[path]]
    return gone + changed + [{"path": path, "problem": OTHER} for path in now if path not in sealed]


def _libraries_of(program: Path) -> Iterator[Path]:
    named = _LIBPYTHON.search(program.read_bytes())
    if named is not None:
        places = (program.parent.parent / folder / named.group().decode() for folder in _LIBRARY_FOLDERS)
        yield from [place for place in places if place.is_file()][:1]
