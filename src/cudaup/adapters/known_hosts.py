"""known_hosts files as OpenSSH reads them: hashed names, patterns, ports, markers. Pure but for `read`."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class KnownKey:
    """One usable line. `marker` is empty, `@revoked` or `@cert-authority`."""

    path: str
    line: int
    marker: str
    names: str
    key_type: str
    key: bytes

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    def is_for(self, name: str) -> bool:
        if self.names.startswith("|1|"):
            return _hash_matches(self.names, name)
        found = False
        for pattern in self.names.lower().split(","):
            if pattern.startswith("!") and _matches(pattern[1:], name):
                return False
            found = found or _matches(pattern, name)
        return found


def fingerprint(key: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def read(paths: Sequence[str]) -> tuple[KnownKey, ...]:
    """Files that do not exist are empty, as for OpenSSH."""
    known: list[KnownKey] = []
    for path in paths:
        if Path(path).is_file():
            known += parse(Path(path).read_text(encoding="utf-8", errors="replace"), path)
    return tuple(known)


def parse(text: str, path: str) -> Iterable[KnownKey]:
    """Lines that OpenSSH would skip are skipped."""
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        try:
            key = base64.b64decode(words[2], validate=True)
        except binascii.Error:
            continue
        yield KnownKey(path=path, line=number, marker=marker, names=words[0], key_type=words[1], key=key)


def lookup(known: Iterable[KnownKey], names: Sequence[str]) -> tuple[KnownKey, ...]:
    """The lines for the first of `names` that has a plain key; revoked and authority lines for any of them."""
    known = tuple(known)
    special = [entry for entry in known if entry.marker and any(entry.is_for(name) for name in names)]
    for name in names:
        plain = [entry for entry in known if not entry.marker and entry.is_for(name)]
        if plain:
            return (*plain, *special)
    return tuple(special)


def _matches(pattern: str, name: str) -> bool:
    # OpenSSH knows `*` and `?` only; the brackets of `[host]:port` are plain characters there.
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _hash_matches(hashed: str, name: str) -> bool:
    try:
        _, _, salt, digest = hashed.split("|")
        wanted = base64.b64decode(digest)
        found = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(wanted, found)
