"""Values for tests: a healthy simulated host with 8 RTX PRO 6000, the stack for it, and variations of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cudaup.domain.facts import Facts, GenerationSummary
from cudaup.domain.journal import Record, RunStarted, RunState, record_json, replay, run_started
from cudaup.domain.lockfile import Wheel
from cudaup.domain.plan import Plan
from cudaup.domain.planner import build_plan
from cudaup.domain.stack import Stack

NOW = 1_764_500_000.0
GIB = 1024**3
Json = dict[str, Any]

OLD = {
    "id": "0001-aaaaaa",
    "digest": "aaaaaa" + "0" * 58,
    "kind": "adopted",
    "name": "ml-env",
    "created": NOW - 9000,
    "confirmed": True,
    "proven": NOW - 8000,
    "packages": {"numpy": "1.26.4"},
}

_HEALTHY: Json = {
    "host": {
        "hostname": "gpu-1",
        "machine_id": "4c4c4544004d3510",
        "boot_id": "11111111-2222-3333-4444-555555555555",
        "kernel": "6.1.0-38-amd64",
        "arch": "x86_64",
        "os": {"id": "debian", "version_id": "12", "pretty": "Debian GNU/Linux 12 (bookworm)"},
        "glibc": "2.36",
        "time": NOW,
        "clock_synced": True,
        "init": "systemd",
        "uid": 0,
    },
    "pythons": [{"path": "/usr/bin/python3.11", "version": "3.11.2"}],
    "driver": {"loaded": "590.48.01", "on_disk": "590.48.01", "library": "590.48.01", "open_module": True},
    "gpus": [
        {
            "index": index,
            "uuid": f"GPU-0000000{index}",
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "compute_cap": "12.0",
            "memory_mib": 97887,
            "bus_id": f"00000000:{index + 1:02X}:00.0",
        }
        for index in range(8)
    ],
    "gpu_users": [{"pid": 812, "name": "python", "memory_mib": 90000}],
    "compilers": [{"path": "/usr/bin/g++", "version": "12.2.0"}],
    "toolkits": [{"path": "/usr/local/cuda-12.8", "version": "12.8.93"}],
    "disks": [
        {
            "path": "/opt/cudaup",
            "mount": "/",
            "fstype": "ext4",
            "free_bytes": 100 * GIB,
            "total_bytes": 400 * GIB,
            "free_inodes": 9_000_000,
            "total_inodes": 10_000_000,
        }
    ],
    "environment": {
        "path": "/root/ml-env",
        "state": "directory",
        "real": "/root/ml-env",
        "python": "3.11.2",
        "kind": "venv",
        "packages": {"numpy": "1.26.4"},
        "digest": "e" * 64,
    },
    "services": [{"unit": "ml.service", "active": "active", "pid": 812, "fragment_sha256": "f" * 64}],
    "cudaup": None,
    "simulated": ["gpus", "driver"],
    "problems": [],
}

_STATUS: Json = {
    "root": "/opt/cudaup",
    "current": OLD,
    "previous": None,
    "generations": [OLD],
    "transit": None,
    "lease": {"state": "free", "epoch": 3},
    "adopted": [{"path": "/root/ml-env", "aside": "/root/.ml-env.cudaup", "generation": OLD["id"]}],
    "services": [],
    "installed_sha256": "c" * 64,
}


def make_facts(**changes: Any) -> Facts:
    """Healthy facts; a mapping changes single keys of its section, anything else replaces it."""
    return Facts.model_validate(_changed(_HEALTHY, changes))


def make_status(**changes: Any) -> Json:
    """What `cudaup` on a host says that once adopted its environment."""
    return _changed(_STATUS, changes)


def make_generation(number: int, digest: str, **changes: Any) -> Json:
    return _changed(OLD, {"id": f"{number:04}-{digest[:6]}", "digest": digest, "kind": "staged", **changes})


def facts_on(stack: Stack, **changes: Any) -> Facts:
    """A host upgraded to `stack`, confirmed, with its old environment as the previous generation."""
    new = make_generation(2, stack.digest(), name=stack.name)
    return make_facts(cudaup=make_status(current=new, previous=OLD, generations=[OLD, new]), **changes)


def make_wheel(name: str = "numpy", version: str = "2.3.1", tag: str = "py3-none-any", size: int = 20_000_000) -> Wheel:
    filename = f"{name.replace('-', '_')}-{version}-{tag}.whl"
    digest = f"{sum(map(ord, filename)):064x}"
    return Wheel(name=name, version=version, filename=filename, sha256=digest, size=size)


def stack_json(**changes: Any) -> Json:
    manylinux = "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"
    wheels = [
        make_wheel("numpy", "2.3.1", "cp311-cp311-manylinux_2_28_x86_64"),
        make_wheel("nvidia-cuda-nvcc", "13.0.88", manylinux, 40_000_000),
    ]
    healthy: Json = {
        "name": "cu130-demo",
        "driver": ">=590,<591",
        "gpus": {"arch": "12.0", "count": 8},
        "python": ">=3.11,<3.12",
        "toolkit": {"version": "13.0", "from": "wheels"},
        "environment": {"path": "/root/ml-env"},
        "env": {"CUDA_HOME": "{generation}/cuda"},
        "imports": ["numpy"],
        "uv": make_wheel("uv", "0.13.9", manylinux).model_dump(),
        "wheels": [wheel.model_dump() for wheel in wheels],
        "smoke": {
            "cases": ["nvcc", "imports", "launch"],
            "accept": {"launch": ["pass", "waived"]},
            "limits": {"nvcc": 120},
        },
        "health": {"http": {"url": "http://127.0.0.1:8000/health", "timeout_s": 30}},
        "timers": {"lease_s": 60, "ttl_s": 30, "ceiling_s": 1800},
    }
    return _changed(healthy, changes)


def make_stack(**changes: Any) -> Stack:
    return Stack.model_validate(stack_json(**changes))


def plan_for(**observed: Facts) -> Plan:
    return build_plan(make_stack(), observed, now=NOW, plan_id="p-1", sources=("hosts.yml",))


def start_for(*hosts: str) -> RunStarted:
    return run_started(plan_for(**dict.fromkeys(hosts, make_facts())), run="r-1", time=NOW)


def as_json(records: tuple[Record, ...]) -> list[Json]:
    """Through text, as a store would keep them."""
    loaded: list[Json] = json.loads(json.dumps([record_json(record) for record in records]))
    return loaded


def replayed(*records: Record) -> RunState:
    return replay(as_json(records))


def summary(generation: Mapping[str, Any]) -> GenerationSummary:
    return GenerationSummary.model_validate(generation)


def _changed(base: Json, changes: Mapping[str, Any]) -> Json:
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
