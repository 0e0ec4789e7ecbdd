"""Builds the hosts' common root into a folder: `python -m cudaup.lab.build FOLDER`.

It works on a tmpfs in a mount namespace of its own: fsync costs nothing, and a killed build leaves no mount behind.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pip

from cudaup.lab import kernel
from cudaup.lab.root import DATA, OLD_STACK, PACKAGES, SUITE

_NOT_INSTALLED = ("doc", "info", "lintian", "locale", "man")
_NOT_KEPT = ("var/cache/apt", "var/lib/apt/lists", "var/log/journal", "var/log/apt", "tmp/pip", "etc/hostname")


def build(destination: Path) -> None:
    kernel.unshare(kernel.Namespaces.MNT)
    kernel.mount(None, "/", None, kernel.MountFlags.REC | kernel.MountFlags.PRIVATE)
    work = destination / "work"
    work.mkdir()
    kernel.mount("tmpfs", work, "tmpfs", data="size=3g,mode=755")
    root = work / "root"
    _debootstrap(root)
    _make_old_stack(root)
    _trim(root)
    _configure(root)
    _run("cp", "-a", str(root), str(destination / "root"))
    _run("cp", "-a", str(root / "root/ml-env"), str(destination / "ml-env"))
    shutil.rmtree(destination / "root/root/ml-env")  # every host gets its own copy, in its upper
    kernel.unmount(work)
    work.rmdir()
    _run("sync", "-f", str(destination))


def _debootstrap(root: Path) -> None:
    settings = root / "etc/dpkg/dpkg.cfg.d"
    settings.mkdir(parents=True)
    excluded = "".join(f"path-exclude=/usr/share/{folder}/*\n" for folder in _NOT_INSTALLED)
    (settings / "lab").write_text(f"force-unsafe-io\n{excluded}")
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root), *_mirror()]
    _run(*command, environment={**_proxy(), **os.environ})


def _mirror() -> list[str]:
    """The mirror this machine's apt uses for the suite; none (debootstrap's own default) when it has none."""
    wanted = "$(CODENAME) $(COMPONENT) $(IDENTIFIER) $(REPO_URI)"
    done = subprocess.run(["apt-get", "indextargets", "--format", wanted], capture_output=True, text=True, check=False)
    fields = (line.split() for line in done.stdout.splitlines())
    mirrors = [found[3] for found in fields if found[:3] == [SUITE, "main", "Packages"]]
    known_to_debootstrap = [uri for uri in mirrors if uri.startswith(("http", "file:"))]  # no mirror+file, no cdrom
    return known_to_debootstrap[:1]


def _proxy() -> dict[str, str]:
    """Debootstrap's wget goes by its environment alone; apt's configured proxy counts where that says nothing."""
    command = ["apt-config", "shell", "proxy", "Acquire::http::Proxy"]  # prints proxy='http://...', or nothing
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = "".join(shlex.split(done.stdout)).removeprefix("proxy=")
    return {"http_proxy": found} if found not in {"", "DIRECT"} else {}


def _make_old_stack(root: Path) -> None:
    """A venv of the hosts' own Python; pip is lent by this machine and does not stay."""
    wheels = root / "tmp/pip/wheels"
    shutil.copytree(Path(pip.__file__).parent, root / "tmp/pip/pip")
    target = ["--python-version", "3.11", "--platform", f"manylinux2014_{platform.machine()}"]
    options = ["--no-deps", "--only-binary=:all:", "--dest", str(wheels)]
    _run(sys.executable, "-m", "pip", "download", "--quiet", *target, *options, *OLD_STACK)
    _in(root, "/usr/bin/python3", "-m", "venv", "--without-pip", "/root/ml-env")
    install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir"]
    names = [f"/tmp/pip/wheels/{wheel.name}" for wheel in wheels.iterdir()]  # noqa: S108 - inside the new root
    _in(root, "/root/ml-env/bin/python", *install, *names, PYTHONPATH="/tmp/pip")  # noqa: S108 - the same


def _trim(root: Path) -> None:
    for name in _NOT_KEPT:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for folder in _NOT_INSTALLED:  # debootstrap's own unpacking does not read dpkg's settings
        shutil.rmtree(root / "usr/share" / folder, ignore_errors=True)
    for key in root.glob("etc/ssh/ssh_host_*"):  # every host gets its own
        key.unlink()
    (root / "etc/resolv.conf").write_text("# a lab host has no way out\n")


def _configure(root: Path) -> None:
    shutil.copytree(DATA / "root", root, dirs_exist_ok=True, copy_function=shutil.copyfile)
    units = root / "etc/systemd/system"
    for unit in (DATA / "masked-units.txt").read_text().splitlines():
        if not unit.startswith("#"):
            (units / unit).symlink_to("/dev/null")
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "ml.service").symlink_to("/etc/systemd/system/ml.service")


def _in(root: Path, *argv: str, **environment: str) -> None:
    _run("chroot", str(root), *argv, environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment})


def _run(*argv: str, environment: dict[str, str] | None = None) -> None:
    sys.stdout.write(f"+ {' '.join(argv)}\n")
    sys.stdout.flush()
    subprocess.run(argv, check=True, env=environment, stdin=subprocess.DEVNULL)


def main(argv: Sequence[str]) -> None:
    os.umask(0o022)
    build(Path(argv[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
