"""The labs of this machine, as their folders say; starting and removing them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from cudaup.domain.errors import UsageError
from cudaup.lab import cgroup, machine
from cudaup.lab.disk import wait_until_detached
from cudaup.lab.paths import Files
from cudaup.lab.spec import LAB_SPEC, LabSpec
from cudaup.lab.sysctl import Setting

_LOCK = machine.LABS / ".lock"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One lab's folder. `warden_pid` is None until its warden runs."""

    spec: LabSpec
    since: float
    warden_pid: int | None

    @property
    def is_up(self) -> bool:
        """The warden's cgroup tells a living warden from another process that got its old pid."""
        return self.warden_pid in cgroup.processes(self.spec.cgroup / cgroup.WARDEN)


def names() -> list[str]:
    return sorted(path.parent.name for path in machine.LABS.glob("*/spec.json"))


def read(name: str) -> Record:
    """Raises UsageError when there is no such lab."""
    files = Files(machine.LABS / name)
    try:
        spec = LAB_SPEC.validate_json(files.spec.read_bytes())
        since = files.spec.stat().st_mtime
    except FileNotFoundError:
        known = ", ".join(names()) or "none"
        raise UsageError(f"there is no lab `{name}`", found=known, fix="cudaup lab up") from None
    pid = int(files.warden_pid.read_text()) if files.warden_pid.exists() else None
    return Record(spec=spec, since=since, warden_pid=pid)


def claim(spec: LabSpec) -> None:
    """Make the lab's folder and cgroups, after cleaning up a dead lab of that name. Raises UsageError when it is up."""
    with machine.locked(_LOCK):
        machine.LABS.chmod(0o700)
        if spec.directory.exists():
            if Files(spec.directory).spec.exists() and read(spec.name).is_up:
                fix = f"cudaup lab down --name {spec.name}, or another --name"
                raise UsageError(f"the lab `{spec.name}` is up already", fix=fix)
            _remove(spec)
        spec.directory.mkdir(mode=0o700)
        Files(spec.directory).spec.write_bytes(LAB_SPEC.dump_json(spec))
        Setting().raise_it()
        cgroup.make(spec.cgroup)


def release(spec: LabSpec) -> None:
    """End everything the lab runs and remove what it left, whether its warden still lives or not."""
    if Path("/proc/self").resolve().name in map(str, cgroup.processes(spec.cgroup)):
        raise UsageError(f"this shell is inside the lab `{spec.name}`", fix="leave it first: exit")
    with machine.locked(_LOCK):
        _remove(spec)
        if not names():
            Setting().put_back()


def _remove(spec: LabSpec) -> None:
    cgroup.kill(spec.cgroup)
    wait_until_detached(spec.directory / "disks")
    shutil.rmtree(spec.directory)
