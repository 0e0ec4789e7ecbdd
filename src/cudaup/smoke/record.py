"""Whether every file of every package is what its package recorded. Reads all of them.

conda keeps its own records, of what is no Python package too, and writes the environment's path into files after their
package was made: where both tell of a file, it may be as either says.
"""

import base64
import csv
import hashlib
import itertools
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

from cudaup.smoke.verdict import FAIL, PASS, Json, Verdict, answer, context

# Two packages of the CUDA 13 closure each install their own file of this name; whichever came last is there.
_KNOWN_SHARED = frozenset({"build_backend.py"})
_CHUNK = 1 << 20
_NAMED = 10


class Claim(NamedTuple):
    """What one package says of one file; `digest` is empty where it does not say."""

    owner: str
    path: str
    digest: str
    is_condas: bool = False


def judge(site_packages: List[Path], conda_metas: Sequence[Path] = ()) -> Verdict:
    by_path: Dict[str, List[Claim]] = {}
    for claim in itertools.chain(claims(site_packages), _conda_claims(conda_metas)):
        by_path.setdefault(claim.path, []).append(claim)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing runs outside the interpreter's lock
        checked = list(pool.map(_check, by_path.values()))
    wrong = sorted(problem for problem, _size in checked if problem)
    evidence: Json = {
        "files": len(by_path),
        "bytes": sum(size for _problem, size in checked),
        "packages": len({claim.owner for owned in by_path.values() for claim in owned}),
    }
    if not by_path:
        return Verdict(FAIL, "no package has a RECORD", evidence)
    if wrong:
        more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        return Verdict(FAIL, "; ".join(wrong[:_NAMED]) + more, {**evidence, "wrong": wrong[:100]})
    return Verdict(PASS, f"{len(by_path)} files as recorded", evidence)


def claims(site_packages: List[Path]) -> Iterator[Claim]:
    for site in site_packages:
        for record in sorted(site.glob("*.dist-info/RECORD")):
            owner = re.sub(r"\.dist-info$", "", record.parent.name)
            with record.open(newline="", encoding="utf-8") as stream:
                for row in csv.reader(stream):
                    if row and not row[0].endswith(".pyc"):
                        yield Claim(owner, os.path.normpath(str(site / row[0])), row[1] if len(row) > 1 else "")


def _conda_claims(conda_metas: Sequence[Path]) -> Iterator[Claim]:
    for meta in conda_metas:
        for entry in sorted(meta.glob("*.json")):
            paths = json.loads(entry.read_text(encoding="utf-8")).get("paths_data", {}).get("paths", [])
            for each in paths:
                digest = each.get("sha256_in_prefix") or each.get("sha256")
                is_plain = each.get("path_type") == "hardlink" and not each["_path"].endswith(".pyc")
                if digest and is_plain:  # what conda made itself, entry points and bytecode, has no content of its own
                    path = os.path.normpath(str(meta.parent / each["_path"]))
                    yield Claim(entry.stem, path, _as_in_records(digest), is_condas=True)


def _as_in_records(digest: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(bytes.fromhex(digest)).decode().rstrip("=")


def _check(claims: List[Claim]) -> Tuple[str, int]:
    """What is wrong with one file, and how much was read."""
    path = Path(claims[0].path)
    owners = " and ".join(claim.owner for claim in claims)
    wanted = {claim.digest for claim in claims if claim.digest}
    is_disputed = any(
        len({claim.digest for claim in claims if claim.digest and claim.is_condas is condas}) > 1
        for condas in (False, True)
    )
    if is_disputed and path.name not in _KNOWN_SHARED:
        return f"{path}: {owners} each bring their own", 0
    try:
        size = path.stat().st_size
        found = _digests(path, {digest.partition("=")[0] for digest in wanted})
    except OSError as error:
        return f"{path}: {error.strerror} ({owners})", 0
    return ("" if not wanted or found & wanted else f"{path}: changed ({owners})"), size


def _digests(path: Path, algorithms: Set[str]) -> Set[str]:
    hashers = {name: hashlib.new(name) for name in algorithms}
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            for hasher in hashers.values():
                hasher.update(chunk)
    return {
        f"{name}={base64.urlsafe_b64encode(hasher.digest()).decode().rstrip('=')}" for name, hasher in hashers.items()
    }


def main() -> None:
    venv = Path(context()["venv"])
    answer(judge(sorted(venv.glob("lib/python3*/site-packages")), sorted(venv.glob("conda-meta"))))


if __name__ == "__main__":
    main()
