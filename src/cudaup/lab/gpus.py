"""Simulated GPUs: recorded tool output laid into a host's upper, marked so that every fact from it says `simulated`."""

from __future__ import annotations

import platform
import re
import uuid
from pathlib import Path

from cudaup.lab.root import DATA

PROFILES = ("pro6000x8", "h200x2")
_RECORDED_UUID = re.compile(r"GPU-00000000-0000-0000-0000-0{10}(\d\d)")
_DRIVER = re.compile(r"Kernel Module for \S+\s+([\d.]+)")
_KERNEL_FILE = "proc-driver-nvidia-version.txt"


def install(upper: Path, profile: str, identity: str) -> None:
    """Put `profile` under `upper`; `identity` makes its GPU UUIDs: the same one, the same UUIDs."""
    recorded = {path.name: _own(path.read_text(), identity) for path in (DATA / "profiles" / profile).iterdir()}
    kernel_text = recorded.pop(_KERNEL_FILE)
    version = driver_version(kernel_text)
    simulated = Path("etc/cudaup-simulated")
    texts = {simulated / "nvidia-smi" / name: text for name, text in recorded.items()} | {
        simulated / "what": "driver gpus\n",
        simulated / "root/proc/driver/nvidia/version": kernel_text,
        simulated / "root/sys/module/nvidia/version": f"{version}\n",
        simulated / "modinfo/version": f"{version}\n",
        simulated / "modinfo/license": "Dual MIT/GPL\n" if "Open Kernel Module" in kernel_text else "NVIDIA\n",
    }
    for path, text in texts.items():
        _write(upper / path, text)
    _install_tools(upper)
    _install_library(upper / f"usr/lib/{platform.machine()}-linux-gnu", version)


def driver_version(kernel_text: str) -> str:
    """Of /proc/driver/nvidia/version. Raises ValueError."""
    found = _DRIVER.search(kernel_text)
    if found is None:
        raise ValueError(f"no driver version in {kernel_text!r}")
    return found[1]


def _own(text: str, identity: str) -> str:
    return _RECORDED_UUID.sub(lambda number: f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'{identity}/{number[1]}')}", text)


def _install_tools(upper: Path) -> None:
    _write(upper / "usr/bin/nvidia-smi", "#!/usr/bin/python3\n" + (DATA / "nvidia_smi.py").read_text(), mode=0o755)
    _write(upper / "usr/sbin/modinfo", (DATA / "modinfo.sh").read_text(), mode=0o755)
    real = upper / "usr/lib/cudaup-lab/modinfo"  # kmod goes by the name it is called by
    real.parent.mkdir(parents=True)
    real.symlink_to("/bin/kmod")


def _install_library(folder: Path, version: str) -> None:
    """A placeholder: programs read the version off its name, nobody can load it."""
    _write(folder / f"libnvidia-ml.so.{version}", "simulated by cudaup's lab\n")
    (folder / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
