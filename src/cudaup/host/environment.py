"""A Python environment as it lies on disk: what it is, which packages it holds, and a digest of exactly that."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional

from cudaup.host.protocol import Json

_CONDA_PYTHON = re.compile(r"python-(\d+\.\d+\.\d+)-")


class Package(NamedTuple):
    name: str
    version: str
    record: str  # sha256 of its RECORD, which holds the hash of every file


def describe(path: Path) -> Json:
    """Reads only. `state` says what is at `path`, everything else what is behind it."""
    described: Json = {"path": str(path), "state": state(path), "real": None, "python": None, "kind": "none"}
    described.update(packages={}, digest=None)
    if path.is_dir():
        described["real"] = os.path.realpath(str(path))
        described["kind"] = kind(path)
    if described["kind"] != "none":
        found = packages(path)
        described["python"] = python_version(path)
        described["packages"] = {package.name: package.version for package in found}
        described["digest"] = digest(path, found)
    return described


def state(path: Path) -> str:
    if path.is_symlink():
        return "adopted" if is_adopted(path) else "link"
    if path.is_dir():
        return "directory"
    return "other" if path.exists() else "absent"


def is_adopted(path: Path) -> bool:
    """Whether `path` is a link that follows a cudaup root's `current`."""
    current = (path.parent / os.readlink(str(path))).parent
    if current.name != "current" or not current.is_symlink():
        return False
    return (current.parent / "generations").is_dir()


def kind(path: Path) -> str:
    if (path / "pyvenv.cfg").is_file():
        return "venv"
    return "conda" if (path / "conda-meta").is_dir() else "none"


def python_version(path: Path) -> Optional[str]:
    """As written down when the environment was made; nothing is started."""
    found = re.search(r"^version(?:_info)?\s*=\s*(\S+)", _config(path), re.MULTILINE)
    if found:
        return found.group(1)
    for entry in sorted(path.glob("conda-meta/python-*.json")):
        named = _CONDA_PYTHON.match(entry.name)
        if named:
            return named.group(1)
    return None


def interpreter(path: Path) -> Path:
    """The file that runs, whatever links lead to it."""
    return Path(os.path.realpath(str(path / "bin" / "python")))


def broken(path: Path) -> Optional[str]:
    """Why its interpreter cannot start, as far as the files tell."""
    python = interpreter(path)
    if not (python.is_file() and os.access(str(python), os.X_OK)):
        return f"its interpreter is gone: `{path / 'bin' / 'python'}` leads to `{python}`"
    home = re.search(r"^home\s*=\s*(.+?)\s*$", _config(path), re.MULTILINE)
    if home and not Path(home.group(1)).is_dir():
        return f"the Python it was made with is gone: `home = {home.group(1)}` in its pyvenv.cfg"
    return None


def site_packages(path: Path) -> List[Path]:
    return sorted(path.glob("lib/python3*/site-packages"))


def packages(path: Path) -> List[Package]:
    """Sorted by name. A distribution whose metadata cannot be read is no package: pip sees it the same way."""
    found = [_package(info) for site in site_packages(path) for info in site.glob("*.dist-info")]
    return sorted(package for package in found if package is not None)


def digest(path: Path, found: List[Package]) -> str:
    """Changes whenever a package, one of its recorded files or the interpreter changes."""
    conda = {entry.name: hashlib.sha256(_read(entry)).hexdigest() for entry in path.glob("conda-meta/*.json")}
    content = json.dumps([found, _config(path), *([conda] if conda else [])], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _package(info: Path) -> Optional[Package]:
    headers = dict(_headers(_read(info / "METADATA").decode("utf-8", "replace")))
    if "name" not in headers or "version" not in headers:
        return None
    record = hashlib.sha256(_read(info / "RECORD")).hexdigest()
    return Package(normalized(headers["name"]), headers["version"], record)


def _headers(text: str) -> Iterator[List[str]]:
    for line in text.splitlines():
        if not line.strip():
            return
        if line[0] not in " \t" and ":" in line:
            key, _, value = line.partition(":")
            yield [key.strip().lower(), value.strip()]


def _config(path: Path) -> str:
    return _read(path / "pyvenv.cfg").decode("utf-8", "replace")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
