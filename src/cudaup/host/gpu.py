"""GPUs and their driver as the host's own tools tell. A tool that hangs is named, never waited for."""

import re
from pathlib import Path
from typing import List, Optional, Tuple

from cudaup.host.command import query
from cudaup.host.protocol import Json

# Without persistence mode each GPU is woken up first: eight of them take seconds.
_SMI_LIMIT_S = 10.0
_MODINFO_LIMIT_S = 3.0
_GPU_COLUMNS = "index,uuid,name,compute_cap,memory.total,pci.bus_id"
_USER_COLUMNS = "pid,process_name,used_gpu_memory"
_LIBRARY_DIRS = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib")

_SIMULATED = Path("/etc/cudaup-simulated")  # only in cudaup's own lab
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MODULE = re.compile(r"NVIDIA UNIX (Open )?.*?Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")


def simulated() -> List[str]:
    """What of this host is recorded output instead of hardware. Empty everywhere but in cudaup's lab."""
    try:
        return (_SIMULATED / "what").read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return []


def gpus(problems: List[str]) -> List[Json]:
    text = query(["nvidia-smi", "--query-gpu=" + _GPU_COLUMNS, "--format=csv,noheader"], _SMI_LIMIT_S, problems)
    return parse_gpus(text) if text else []


def gpu_users(problems: List[str]) -> List[Json]:
    argv = ["nvidia-smi", "--query-compute-apps=" + _USER_COLUMNS, "--format=csv,noheader"]
    text = query(argv, _SMI_LIMIT_S, problems)
    return parse_gpu_users(text) if text else []


def driver() -> Json:
    """Loaded, on disk and in the library are three different things until the host has rebooted."""
    loaded, is_open = loaded_driver()
    return {"loaded": loaded, "on_disk": _version_on_disk(), "library": _library_version(), "open_module": is_open}


def loaded_driver() -> Tuple[Optional[str], Optional[bool]]:
    """Its version and whether it is the open module; only the version where the driver does not say the rest."""
    version, is_open = parse_module_version(_read_kernel_file("/proc/driver/nvidia/version"))
    return version or _read_kernel_file("/sys/module/nvidia/version").strip() or None, is_open


def parse_gpus(text: str) -> List[Json]:
    """Of `nvidia-smi --query-gpu`, in our order of columns; header lines and others that are no GPU are passed over."""
    found = []
    for fields in _rows(text, len(_GPU_COLUMNS.split(","))):
        index, uuid, name, compute_cap, memory, bus_id = fields
        found.append(
            {
                "index": int(index),
                "uuid": uuid,
                "name": name,
                "compute_cap": compute_cap,
                "memory_mib": _mib(memory),
                "bus_id": bus_id,
            }
        )
    return found


def parse_gpu_users(text: str) -> List[Json]:
    """Of `nvidia-smi --query-compute-apps`. A process name may hold commas."""
    found = []
    for line in _lines(text):
        pid, _, rest = line.partition(",")
        name, _, memory = rest.rpartition(",")
        if pid.strip().isdigit():
            found.append({"pid": int(pid), "name": name.strip(), "memory_mib": _mib(memory)})
    return found


def parse_module_version(text: str) -> Tuple[Optional[str], Optional[bool]]:
    """Version and whether it is the open module, of /proc/driver/nvidia/version."""
    found = _MODULE.search(text)
    return (found.group(2), found.group(1) is not None) if found else (None, None)


def _lines(text: str) -> List[str]:
    return _ANSI.sub("", text).splitlines()


def _rows(text: str, columns: int) -> List[List[str]]:
    rows = [[field.strip() for field in line.split(",")] for line in _lines(text)]
    return [row for row in rows if len(row) == columns and row[0].isdigit()]


def _mib(text: str) -> Optional[int]:
    """As in "97887 MiB"; the driver writes "[N/A]" where it does not tell."""
    number = text.replace("MiB", "").strip()
    return int(number) if number.isdigit() else None


def _version_on_disk() -> Optional[str]:
    """None without the module or without modinfo: a host with no NVIDIA driver is no problem by itself."""
    text = query(["modinfo", "-F", "version", "nvidia"], _MODINFO_LIMIT_S, problems=[])
    return text.strip() or None if text else None


def _library_version() -> Optional[str]:
    """Programs get the version that libnvidia-ml.so.1 leads to."""
    for root in (_SIMULATED / "root", Path("/")):
        for pattern in _LIBRARY_DIRS:
            for link in sorted(root.glob(pattern[1:] + "/libnvidia-ml.so.1")):
                version = link.resolve().name.replace("libnvidia-ml.so.", "", 1)
                if version != "1":
                    return version
    return None


def _read_kernel_file(path: str) -> str:
    recorded = _SIMULATED / "root" / path[1:]
    try:
        return (recorded if recorded.exists() else Path(path)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
