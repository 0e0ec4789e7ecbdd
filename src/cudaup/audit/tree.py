"""Walks an environment: its binaries and its distributions, each folder and file once, whatever links there are."""

import errno
import os
from typing import Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

from cudaup.audit.distributions import Distribution, named, recorded
from cudaup.audit.file import NAMES

_DEEPEST = 100
_LIBRARIES = frozenset({"", "site-packages", "dist-packages"})  # elsewhere lies what a package brought along
_LONGEST_RECORD = 64 << 20


class Tree(NamedTuple):
    """Paths are relative to the root; `problems` are folders that could not be read."""

    binaries: Sequence[str]
    distributions: Sequence[Distribution]
    problems: Sequence[Tuple[str, str]]
    files: Sequence[str]


def walk(root: str) -> Tree:
    """Raises OSError when the root itself cannot be read."""
    os.scandir(root).close()
    binaries: Dict[Tuple[int, int], str] = {}
    links: List[Tuple[Tuple[int, int], str]] = []
    dist_infos: List[str] = []
    loaders: List[str] = []
    problems: List[Tuple[str, str]] = []
    for entry, path in _entries(root, problems):
        if entry.name.endswith(".dist-info") and path.rpartition("/")[0].rpartition("/")[2] in _LIBRARIES:
            dist_infos.append(path)
        elif entry.name == "load_utils.py":
            loaders.append(path)
        elif NAMES.fullmatch(entry.name) and not entry.is_dir():
            if entry.is_symlink():
                links.append((_identity(entry), path))
            else:
                binaries.setdefault(_identity(entry), path)
    for identity, path in links:  # a file is shown by its own name, if that is in the tree
        binaries.setdefault(identity, path)
    found = [_distribution(root, path, problems) for path in sorted(dist_infos)]
    return Tree(sorted(binaries.values()), found, problems, sorted([*binaries.values(), *loaders]))


def _entries(root: str, problems: List[Tuple[str, str]]) -> Iterator[Tuple["os.DirEntry[str]", str]]:
    real_root = os.path.realpath(root)
    seen: Set[Tuple[int, int]] = set()
    waiting: List[str] = [""]
    behind_links: List[str] = []
    while waiting or behind_links:
        folder = waiting.pop() if waiting else behind_links.pop()
        try:
            entries = _listed(os.path.join(root, folder), folder.count("/"), seen)
        except OSError as error:
            problems.append((folder, error.strerror or str(error)))
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if _is_folder(entry, real_root):
                (behind_links if entry.is_symlink() else waiting).append(path)
            yield entry, path


def _listed(folder: str, depth: int, seen: Set[Tuple[int, int]]) -> Sequence["os.DirEntry[str]"]:
    """Nothing of a folder that was seen already: links lead in circles."""
    status = os.stat(folder)
    if (status.st_dev, status.st_ino) in seen:
        return ()
    seen.add((status.st_dev, status.st_ino))
    if depth > _DEEPEST:
        raise OSError(errno.ELOOP, f"deeper than {_DEEPEST} folders: not read")
    with os.scandir(folder) as listing:
        return list(listing)


def _is_folder(entry: "os.DirEntry[str]", real_root: str) -> bool:
    """Links are followed as long as they stay inside: `lib64`, not `/`."""
    if not entry.is_symlink():
        return entry.is_dir(follow_symlinks=False)
    try:
        return entry.is_dir() and os.path.realpath(entry.path).startswith(real_root + os.sep)
    except OSError:
        return False


def _identity(entry: "os.DirEntry[str]") -> Tuple[int, int]:
    """A link that leads nowhere is itself, so that it is reported."""
    try:
        status = entry.stat()
    except OSError:
        status = entry.stat(follow_symlinks=False)
    return status.st_dev, status.st_ino


def _distribution(root: str, path: str, problems: List[Tuple[str, str]]) -> Distribution:
    name, version = named(path)
    record = os.path.join(root, path, "RECORD")
    try:
        with open(record, "rb") as stream:
            text = stream.read(_LONGEST_RECORD).decode("utf-8", "replace")
    except OSError as error:
        problems.append((f"{path}/RECORD", error.strerror or str(error)))
        text = ""
    return Distribution(name, version, recorded(text, path.rpartition("/")[0]))
