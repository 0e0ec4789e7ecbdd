"""Resolves with uv, for a platform that need not be this one. Everything but the result is thrown away."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.utils import canonicalize_name
from uv import find_uv_bin

from cudaup.app.ports import Resolution
from cudaup.domain.errors import LockFailed
from cudaup.domain.lockfile import Wheel
from cudaup.domain.locking import Candidate, Platform, best_wheel
from cudaup.domain.packages import Packages

_PROJECT = "cudaup-lock"
_LIMIT_S = 600
_ASK_LIMIT_S = 60
_GLIBC_OF_UV = (17, 28, *range(31, 41))  # the platforms that uv knows; a host takes the wheels of an older one too
# Kernels are bound to the one torch that they were compiled against.
_BOUND = re.compile(r"([A-Za-z0-9._-]+(?:==[^\s,]+)?) depends? on torch==([^\s,]+)")
_GONE = re.compile(r"there is no version of ([A-Za-z0-9._-]+)(==[^\s,]+)")


class UvResolver:
    """Satisfies `Resolver`. Settings of the default index are the user's own; nothing is added to them."""

    @property
    def version(self) -> str:
        return metadata.version("uv")

    def resolve(
        self, packages: Packages, platform: Platform, *, preferred: Sequence[Wheel] = (), upgrade: Sequence[str] = ()
    ) -> Resolution:
        done, exported = _compile(packages, platform, preferred, upgrade)
        if done.returncode:
            raise _failed(packages, platform, done.stderr)
        found = tomllib.loads(exported)["packages"]
        return Resolution(wheels=[_candidate(package, packages, platform) for package in found], exported=exported)


def _compile(
    packages: Packages, platform: Platform, preferred: Sequence[Wheel], upgrade: Sequence[str]
) -> tuple[subprocess.CompletedProcess[str], str]:
    with tempfile.TemporaryDirectory(prefix="cudaup-lock-") as scratch:
        folder = Path(scratch)
        (folder / "pyproject.toml").write_text(_project(packages, platform))
        result = folder / "pylock.toml"
        if preferred:
            result.write_text(_preferences(preferred))
        command = [
            find_uv_bin(),
            "pip",
            "compile",
            "pyproject.toml",
            "--quiet",
            "--no-header",
            "--only-binary",
            ":all:",
        ]
        command += ["--format", "pylock.toml", "--output-file", result.name]
        glibc = max(minor for minor in _GLIBC_OF_UV if minor <= max(platform.glibc, min(_GLIBC_OF_UV)))
        command += ["--python-platform", f"{platform.arch}-manylinux_2_{glibc}"]
        command += ["--python-version", ".".join(map(str, platform.python))]
        for name in upgrade:
            command += ["--upgrade-package", name]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise LockFailed(f"resolving took more than {_LIMIT_S} s", fix="see whether the indexes answer") from error
        return done, result.read_text() if done.returncode == 0 else ""


def _project(packages: Packages, platform: Platform) -> str:
    """An explicit index serves the packages that name it and no other (uv, "Package indexes")."""
    lines = ["[project]", f'name = "{_PROJECT}"', 'version = "0"']
    lines += [f'requires-python = ">={platform.python[0]}.{platform.python[1]}"']
    lines += [f"dependencies = {json.dumps(packages.require)}"]
    lines += ["[tool.uv]", f"constraint-dependencies = {json.dumps(packages.constrain)}", "[tool.uv.sources]"]
    lines += [
        f"{json.dumps(canonicalize_name(name))} = {{ index = {json.dumps(key)} }}"
        for key, index in packages.indexes.items()
        for name in index.packages
    ]
    for key, index in packages.indexes.items():
        lines += ["[[tool.uv.index]]", f"name = {json.dumps(key)}", f"url = {json.dumps(index.url)}", "explicit = true"]
    return "\n".join(lines) + "\n"


def _preferences(wheels: Sequence[Wheel]) -> str:
    """An earlier lock as uv reads it: what is in there stays, where it can."""
    head = 'lock-version = "1.0"\ncreated-by = "cudaup"\n'
    return head + "".join(
        f"[[packages]]\nname = {json.dumps(canonicalize_name(each.name))}\nversion = {json.dumps(each.version)}\n"
        for each in wheels
    )


def _candidate(package: Mapping[str, Any], packages: Packages, platform: Platform) -> Candidate:
    index = packages.index_of(package["name"])
    listed = _listed(index, package["name"]) if index else {}
    found = [_of_entry(package, entry, index, listed) for entry in package.get("wheels", ())]
    if not found:
        raise LockFailed(f"{package['name']} {package.get('version')} has no wheel", wanted=f"a wheel for {platform}")
    return best_wheel(found, platform)


def _of_entry(
    package: Mapping[str, Any], entry: Mapping[str, Any], index: str | None, listed: Mapping[str, Sequence[str]]
) -> Candidate:
    filename = entry.get("name") or unquote(urlsplit(entry["url"]).path.rpartition("/")[2])
    sha256 = entry["hashes"]["sha256"]
    return Candidate(
        name=package["name"],
        version=package["version"],
        filename=filename,
        sha256=sha256,
        size=entry.get("size") or _size_of(entry["url"]),
        index=index,
        others=tuple(each for each in listed.get(filename, ()) if each != sha256),
    )


def _size_of(url: str) -> int:
    """Plain indexes list no sizes."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_ASK_LIMIT_S) as answer:  # noqa: S310 - an address that uv has just read from an index
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError) as error:
        raise LockFailed("the index does not say how large a wheel is", where=url, found=str(error)) from error


def _listed(index: str, name: str) -> Mapping[str, Sequence[str]]:
    """The hashes of each file name of a project: an index may keep the line of a file that was replaced."""
    page = f"{index.rstrip('/')}/{canonicalize_name(name)}/"
    try:
        with urllib.request.urlopen(page, timeout=_ASK_LIMIT_S) as answer:  # noqa: S310 - the stack's own index
            text = answer.read().decode("utf-8", "replace")
    except OSError as error:
        raise LockFailed("the index cannot be read", where=page, found=str(error)) from error
    links = _Links()
    links.feed(text)
    found: dict[str, list[str]] = {}
    for target in links.targets:
        url, fragment = urldefrag(urljoin(page, target))
        if fragment.startswith("sha256="):
            found.setdefault(unquote(urlsplit(url).path.rpartition("/")[2]), []).append(fragment[7:])
    return found


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.targets += [text for key, text in attrs if key == "href" and text]


def _failed(packages: Packages, platform: Platform, complaint: str) -> LockFailed:
    told = " ".join(complaint.split())
    advice = [_newest(packages, platform, name, pin) for name, pin in dict.fromkeys(_GONE.findall(told))]
    advice += [
        f"{kernel} was built for torch {built_for}: require `torch=={built_for}`, or a {kernel} for yours"
        for kernel, built_for in dict.fromkeys(_BOUND.findall(told))
        if kernel != _PROJECT
    ]
    return LockFailed(
        f"the packages cannot be resolved for {platform}",
        found=complaint.strip()[-2000:],
        fix="; ".join([*advice, "change `packages` in the stack"]),
    )


def _newest(packages: Packages, platform: Platform, name: str, pin: str) -> str:
    """A nightly leaves its index after weeks: what has come instead."""
    wanted = canonicalize_name(name)
    indexes = {key: each for key, each in packages.indexes.items() if wanted in map(canonicalize_name, each.packages)}
    alone = Packages(
        require=(f"{name}>=0.dev0",),  # a pre-release is good enough an answer
        indexes={key: each.model_copy(update={"packages": (name,)}) for key, each in indexes.items()},
    )
    done, exported = _compile(alone, platform, (), ())
    versions = _versions(exported, wanted) if done.returncode == 0 else iter(())
    newest = next(versions, None)
    return f"{name}{pin} is not in its index" + (f", the newest there is {newest}" if newest else "")


def _versions(exported: str, name: str) -> Iterator[str]:
    return (each["version"] for each in tomllib.loads(exported).get("packages", ()) if each["name"] == name)
