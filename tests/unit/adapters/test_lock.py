"""`cudaup lock` with the real uv and pip against indexes on loopback: what it takes from where, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.index_server import Indexes, serving_indexes
from tests.unit.audit.cases import content
from tests.unit.domain.builders import stack_json

from cudaup.adapters.auditor import BinaryAuditor
from cudaup.adapters.lock_file import lock_path, read_lock, write_lock
from cudaup.adapters.resolver import UvResolver
from cudaup.adapters.stack_file import load_stack
from cudaup.adapters.trial import UvTrialRoom
from cudaup.adapters.wheels import PipWheelStore
from cudaup.app.lock import Locked, Locking, lock_stack
from cudaup.domain.errors import AuditFailed, CudaupError, LockFailed, UsageError
from cudaup.domain.locking import Lock, Platform
from cudaup.domain.stack import Stack

HERE = Platform(glibc=36, python=(3, 11))
NIGHTLY = "2.12.0.dev20261130+cu130"
TORCH = {"torch/lib/libtorch_cuda.so": content("sm_120.so")}


@pytest.fixture
def indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Indexes]:
    folder = tmp_path / "indexes"
    (folder / "default").mkdir(parents=True)
    with serving_indexes(folder) as found:
        for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
            monkeypatch.setenv(name, found.address("default"))
        for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        yield found


def stack_of(indexes: Indexes, *require: str, nightly: tuple[str, ...] = (), **changes: Any) -> Stack:
    """Without a toolkit where `changes` names none."""
    beside = {"nightly": {"url": indexes.address("nightly"), "packages": list(nightly)}} if nightly else {}
    raw = {**stack_json(), "toolkit": None, "smoke": {"cases": ["imports"]}, "imports": [], **changes}
    del raw["wheels"]
    return Stack.model_validate({**raw, "packages": {"require": list(require), "indexes": beside}})


def lock(
    stack: Stack, tmp_path: Path, *, old: Lock | None = None, upgrade: tuple[str, ...] = (), on: Platform = HERE
) -> Locked:
    doing = Locking(
        resolver=UvResolver(),
        wheels=PipWheelStore(tmp_path / "cache"),
        auditor=BinaryAuditor(),
        trial=UvTrialRoom(),
        tell=lambda _text: None,
    )
    assert stack.packages
    return lock_stack(stack, stack.packages, on, old, doing, upgrade)


def versions(locked: Locked) -> dict[str, str]:
    return {wheel.name: wheel.version for wheel in locked.lock.wheels}


def test_a_package_comes_from_its_own_index_though_another_has_a_higher_version(
    indexes: Indexes, tmp_path: Path
) -> None:
    indexes.put("default", "torch", "2.12.0")  # a final release outranks a nightly, whatever it was built for
    indexes.put("default", "numpy", "2.4.6")
    indexes.put("nightly", "numpy", "9.9")
    path = indexes.put("nightly", "torch", NIGHTLY, requires=["numpy"], files=TORCH)
    locked = lock(stack_of(indexes, "torch>=2.12.0.dev0", nightly=("torch",), imports=["torch"]), tmp_path)
    assert versions(locked) == {"torch": NIGHTLY, "numpy": "2.4.6"}
    (torch,) = (wheel for wheel in locked.lock.wheels if wheel.name == "torch")
    assert (torch.index, torch.filename, torch.size) == (indexes.address("nightly"), path.name, path.stat().st_size)
    assert torch.sass == ("120",)
    assert locked.lock.total_bytes == sum(wheel.size for wheel in locked.lock.wheels)
    assert locked.lock.trial
    assert locked.lock.trial.imports == ("torch",)


def test_a_lock_names_no_address_of_the_default_index_and_does_not_churn(indexes: Indexes, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        indexes.put("default", "alpha", version, requires=["beta"])
        indexes.put("default", "beta", version)
    stack = stack_of(indexes, "alpha<2")
    first = lock(stack, tmp_path)
    write_lock(tmp_path / "mine.yml", first.lock)
    text = lock_path(tmp_path / "mine.yml").read_text()
    assert indexes.url not in text
    assert versions(first) == {"alpha": "1.0", "beta": "2.0"}
    indexes.put("default", "beta", "3.0")
    again = lock(stack, tmp_path, old=read_lock(tmp_path / "mine.yml"))
    assert (again.lock, again.changes) == (first.lock, ())
    moved = lock(stack, tmp_path, old=again.lock, upgrade=("beta",))
    assert (versions(moved), moved.changes) == ({"alpha": "1.0", "beta": "3.0"}, ("  beta 2.0 -> 3.0",))


def test_a_nightly_that_left_its_index_is_told_with_the_newest_there_is(indexes: Indexes, tmp_path: Path) -> None:
    indexes.put("nightly", "torch", NIGHTLY)
    with pytest.raises(LockFailed) as caught:
        lock(stack_of(indexes, "torch==2.12.0.dev20260901+cu130", nightly=("torch",)), tmp_path)
    wanted = f"torch==2.12.0.dev20260901+cu130 is not in its index, the newest there is {NIGHTLY}"
    assert wanted in str(caught.value.fix)


def test_a_missing_companion_is_named(indexes: Indexes, tmp_path: Path) -> None:
    indexes.put("nightly", "torch", NIGHTLY, requires=["pytorch-triton==3.6.0+git1"])
    with pytest.raises(LockFailed, match="pytorch-triton"):
        lock(stack_of(indexes, f"torch=={NIGHTLY}", nightly=("torch",)), tmp_path)


def test_a_kernel_that_is_bound_to_another_torch_is_told_with_the_pair(indexes: Indexes, tmp_path: Path) -> None:
    indexes.put("nightly", "torch", NIGHTLY)
    indexes.put("default", "sglang-kernel", "0.4.10", requires=["torch==2.11.0"])
    with pytest.raises(LockFailed) as caught:
        lock(stack_of(indexes, f"torch=={NIGHTLY}", "sglang-kernel", nightly=("torch",)), tmp_path)
    assert "sglang-kernel was built for torch 2.11.0: require `torch==2.11.0`" in str(caught.value.fix)


@pytest.mark.parametrize("is_first", [True, False])
def test_of_several_hashes_of_one_file_the_one_that_is_given_counts(
    indexes: Indexes, tmp_path: Path, *, is_first: bool
) -> None:
    (indexes.folder / "nightly" / "kernel").mkdir(parents=True)
    stale = indexes.folder / "nightly" / "kernel" / "kernel-0.4.10-py3-none-any.whl"
    if not is_first:
        indexes.list(stale, "b" * 64)
    path = indexes.put("nightly", "kernel", "0.4.10")
    if is_first:
        indexes.list(stale, "b" * 64)
    locked = lock(stack_of(indexes, "kernel", nightly=("kernel",)), tmp_path)
    assert [wheel.sha256 for wheel in locked.lock.wheels] == [hashlib.sha256(path.read_bytes()).hexdigest()]


def test_a_wheel_that_is_not_what_its_index_says_is_refused(indexes: Indexes, tmp_path: Path) -> None:
    path = indexes.put("default", "alpha", "1.0")
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(CudaupError, match=r"cannot fetch alpha 1\.0"):
        lock(stack_of(indexes, "alpha"), tmp_path)


def test_an_old_c_library_that_forces_an_old_version_is_an_error(indexes: Indexes, tmp_path: Path) -> None:
    indexes.put("default", "sglang", "0.5.10", tag="cp310-abi3-manylinux_2_17_x86_64")
    indexes.put("default", "sglang", "0.5.23", tag="cp310-abi3-manylinux_2_34_x86_64")
    old = HERE.model_copy(update={"glibc": 31})
    with pytest.raises(LockFailed, match=r"sglang 0\.5\.10 instead of 0\.5\.23: sglang 0\.5\.23 needs glibc 2\.34"):
        lock(stack_of(indexes, "sglang"), tmp_path, on=old)
    assert versions(lock(stack_of(indexes, "sglang"), tmp_path)) == {"sglang": "0.5.23"}
    assert versions(lock(stack_of(indexes, "sglang==0.5.10"), tmp_path, on=old)) == {"sglang": "0.5.10"}


def test_the_gate_is_asked_of_what_was_resolved(indexes: Indexes, tmp_path: Path) -> None:
    indexes.put("default", "kernels", "1.0", files={"kernels/common_ops.so": content("sm_90a.cubin")})
    assert "none of its GPU code runs on sm_120" in lock(stack_of(indexes, "kernels"), tmp_path).notes[0]
    with pytest.raises(AuditFailed, match=r"kernels/common_ops\.so: dead"):
        lock(stack_of(indexes, "kernels", audit={"require": ["common_ops"]}), tmp_path)


def test_what_resolves_and_does_not_import_is_refused(indexes: Indexes, tmp_path: Path) -> None:
    broken = b"raise AttributeError(\"module 'cuda.bindings.runtime' has no attribute 'cudaLibrary_t'\")\n"
    indexes.put("default", "alpha", "1.0", files={"alpha/__init__.py": broken})
    with pytest.raises(LockFailed, match=r"`import alpha` fails[\s\S]*cudaLibrary_t"):
        lock(stack_of(indexes, "alpha", imports=["alpha"]), tmp_path)


def test_what_needs_a_driver_is_not_called_imported(indexes: Indexes, tmp_path: Path) -> None:
    broken = b"raise ImportError('libcuda.so.1: cannot open shared object file: No such file or directory')\n"
    indexes.put("default", "kernels", "1.0", files={"kernels/__init__.py": broken})
    indexes.put("default", "alpha", "1.0")
    locked = lock(stack_of(indexes, "alpha", "kernels", imports=["kernels", "alpha"]), tmp_path)
    assert locked.lock.trial
    assert (locked.lock.trial.imports, locked.lock.trial.needs_driver) == (("alpha",), ("kernels",))
    assert "kernels: not imported here" in locked.notes[0]


def test_files_with_two_owners_are_told(indexes: Indexes, tmp_path: Path) -> None:
    for name, text in (("alpha", b"1"), ("beta", b"2")):
        indexes.put("default", name, "1.0", files={"build_backend.py": text})
    notes = lock(stack_of(indexes, "alpha", "beta"), tmp_path).notes
    assert notes == ("alpha and beta own 1 files in common; installed last wins: build_backend.py",)


def test_a_package_that_was_built_for_another_torch_is_told(indexes: Indexes, tmp_path: Path) -> None:
    """No more than told: it may bring one for each torch, and choose."""
    indexes.put("default", "torch", "2.11.0", files={"torch/lib/libc10.so": content("libc10.so"), **TORCH})
    indexes.put("default", "kernels", "1.0", files={"kernels/ops.so": content("other_torch.so")})
    indexes.put("default", "kernels", "2.0", files={"kernels/ops.so": content("fits.so")})
    told = "kernels: 1 of its files were built for another torch"
    assert told in lock(stack_of(indexes, "torch", "kernels==1.0"), tmp_path).notes
    assert told not in lock(stack_of(indexes, "torch", "kernels"), tmp_path).notes


def test_a_locked_stack_is_read_with_its_wheels_and_only_as_it_was_locked(indexes: Indexes, tmp_path: Path) -> None:
    indexes.put("default", "alpha", "1.0")
    path = tmp_path / "mine.yml"
    raw = stack_of(indexes, "alpha").model_dump(mode="json", by_alias=True, exclude={"wheels"}, exclude_none=True)
    path.write_text(json.dumps(raw))
    with pytest.raises(UsageError, match="is not locked"):
        load_stack(path)
    write_lock(path, lock(stack_of(indexes, "alpha"), tmp_path).lock)
    assert [wheel.name for wheel in load_stack(path).wheels] == ["alpha"]
    path.write_text(json.dumps({**raw, "packages": {"require": ["alpha", "beta"]}}))
    with pytest.raises(UsageError, match="the stack changed since it was locked"):
        load_stack(path)
    lock_path(path).write_text("{}")
    with pytest.raises(UsageError, match="this is no lock"):
        load_stack(path)


def test_vendored_wheels_outlive_their_index(indexes: Indexes, tmp_path: Path) -> None:
    gone = indexes.put("default", "alpha", "1.0")
    locked = lock(stack_of(indexes, "alpha"), tmp_path)
    PipWheelStore(tmp_path / "cache").vendor(locked.paths, tmp_path / "vendor")
    gone.unlink()
    store = PipWheelStore(tmp_path / "other", tmp_path / "vendor")
    found = store.fetch(locked.lock.wheels, lambda _text: None)
    assert list(found.values()) == [tmp_path / "vendor" / "alpha-1.0-py3-none-any.whl"]
    (tmp_path / "vendor" / "alpha-1.0-py3-none-any.whl").write_bytes(b"other")
    with pytest.raises(CudaupError, match="cannot fetch alpha"):
        store.fetch(locked.lock.wheels, lambda _text: None)
