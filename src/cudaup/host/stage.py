"""Builds a generation beside the one in use: offline, from wheels that are here, whole or not at all.

Everything happens in `generations/.staging-*`; a rename gives it its name, and its record, written last, makes it a
generation. What a crash leaves is removed by the next stage, or by `recover`.
"""

import contextlib
import os
import shutil
import stat
import zipfile
from pathlib import Path
from typing import Dict, Iterator, Optional, Tuple

from cudaup.host import blobs, caches, envfile, environment, generations, machine, manifest, recorded, spec, uv
from cudaup.host.fence import mutation
from cudaup.host.files import write_atomic
from cudaup.host.layout import Layout
from cudaup.host.manifest import Digests
from cudaup.host.protocol import Context, Failed, Json, Refused
from cudaup.host.spec import Spec

_STAGING = ".staging-"
_SPEC_LIMIT_BYTES = 16 << 20
_BLOCK = 4096
_SPARE_BYTES, _SPARE_INODES = 64 << 20, 1000
_NAMED = 5


def stage(ctx: Context) -> Json:
    """The verb `stage`. Unchanged when a generation of the same digest is there and verified."""
    wanted = spec.parse(ctx.stdin.read(_length(ctx)))
    there = _verified(ctx.layout, wanted.digest)
    if there is not None:
        return {"generation": there, "changed": False, "digest": wanted.digest}
    _require_space(ctx.layout, wanted)
    python = _interpreter(wanted)
    if ctx.dry_run:
        return {"would": f"build a generation of {len(wanted.wheels)} wheels with {python['path']}"}
    with mutation(ctx, "stage", {"digest": wanted.digest, "name": wanted.name}), _umask(0o022):
        digests = manifest.Digests()
        generation, shared_by = _build(ctx, wanted, python, digests)
        manifest.renew(ctx.layout, digests)  # the new links moved the ctime of what its siblings share with it
    return {"generation": generation, "changed": True, "digest": wanted.digest, "shared_by": shared_by}


def _length(ctx: Context) -> int:
    length = int(ctx.options["spec_bytes"])
    if not 0 < length <= _SPEC_LIMIT_BYTES:
        raise Refused("usage", f"--spec-bytes {length}: a spec has 1 to {_SPEC_LIMIT_BYTES} bytes")
    return length


def _verified(layout: Layout, digest: str) -> Optional[str]:
    """The newest generation of that digest, when it is as it was made."""
    same = [record["id"] for record in generations.load_all(layout) if record["digest"] == digest]
    return same[-1] if same and manifest.check(layout, same[-1], full=False)["ok"] else None


def _require_space(layout: Layout, wanted: Spec) -> None:
    """As if nothing of it were in uv's cache: files are linked from there, so they count once."""
    size, count = _SPARE_BYTES, _SPARE_INODES
    for blob in wanted.blobs:
        with zipfile.ZipFile(str(blobs.require(layout, blob))) as wheel:
            sizes = [info.file_size for info in wheel.infolist()]
        size += sum(-(-each // _BLOCK) * _BLOCK for each in sizes)
        count += len(sizes)
    free = machine.disk(layout.root)
    if free["free_bytes"] < size or (free["total_inodes"] and free["free_inodes"] < count):
        found = f"{free['free_bytes'] >> 20} MiB and {free['free_inodes']} inodes free at `{free['mount']}`"
        raise Refused("no-space", f"needs {size >> 20} MiB and {count} inodes, {found}", "`cudaup-host gc` frees some")


def _interpreter(wanted: Spec) -> Json:
    """The first on the path that fits."""
    found = [machine.versioned(path, []) for path in machine.python_paths()]
    pythons = [python for python in found if python is not None]
    for python in pythons:
        if spec.is_in_range(python["version"], wanted.python_range):
            return python
    seen = ", ".join(f"{python['path']} ({python['version']})" for python in pythons) or "none"
    raise Refused("unsupported", f"no Python {wanted.python_range} here; found: {seen}", "install one that fits")


class _Unlike(Exception):
    """Files that are not what their wheels recorded."""


def _build(ctx: Context, wanted: Spec, python: Json, digests: Digests) -> Tuple[str, str]:
    """Its name, and how it shares its files with uv's cache. The cache may be damaged: once, it is made anew."""
    try:
        return _attempt(ctx, wanted, python, digests)
    except _Unlike as found:
        ctx.channel.event("stage", "note", f"uv's cache is damaged ({found}): once more, from the wheels themselves")
    try:
        return _attempt(ctx, wanted, python, digests)
    except _Unlike as found:
        raise Failed("stage", f"not what its wheels recorded: {found}", {"state": "unchanged"}) from found


def _attempt(ctx: Context, wanted: Spec, python: Json, digests: Digests) -> Tuple[str, str]:
    layout = ctx.layout
    for leftover in layout.generations.glob(_STAGING + "*"):
        shutil.rmtree(str(leftover))
    generation = generations.next_id(layout, wanted.digest)
    staging = layout.generations / (_STAGING + generation)
    staging.mkdir(mode=0o755)
    try:
        shared_by = uv.link_mode(layout, staging)
        with uv.cache(layout):
            _fill(ctx, wanted, python, staging, layout.generation(generation), shared_by)
            _seal(ctx, staging, digests)
        staging.rename(layout.generation(generation))
    except OSError as error:  # a full disk, most likely
        raise Failed("stage", f"{generation} could not be built: {error}", {"state": "unchanged"}) from error
    finally:
        shutil.rmtree(str(staging), ignore_errors=True)  # when it has its name already, nothing is there
    generations.save(layout, _record(ctx, wanted, generation))
    return generation, shared_by


def _fill(ctx: Context, wanted: Spec, python: Json, staging: Path, final: Path, shared_by: str) -> None:
    layout, venv = ctx.layout, staging / "venv"
    binary = uv.unpack_binary(layout, wanted.uv)
    ctx.channel.event("stage", "note", f"installing {len(wanted.wheels)} wheels with {python['path']}")
    uv.make_environment(layout, binary, Path(python["path"]), venv)
    uv.install(layout, binary, venv, wanted.wheels, shared_by)
    if wanted.toolkit is not None:
        _link_toolkit(staging, wanted.toolkit)
    for folder in caches.FOLDERS.values():
        (staging / "cache" / folder).mkdir(parents=True)
    write_atomic(staging / "env", envfile.render(_variables(wanted, final)).encode())
    _take_ownership(staging)


def _seal(ctx: Context, staging: Path, digests: Digests) -> None:
    ctx.channel.event("stage", "note", "sealing")
    wrong = recorded.unlike(staging, manifest.seal(staging, digests))
    if wrong:
        more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        raise _Unlike(", ".join(wrong[:_NAMED]) + more)


def _link_toolkit(staging: Path, version: str) -> None:
    """`cuda` names the toolkit inside the environment, with the two links that its wheels lack (and nvcc needs)."""
    inside = f"nvidia/cu{version.split('.', 1)[0]}"
    found = next(
        (site / inside for site in environment.site_packages(staging / "venv") if (site / inside).is_dir()), None
    )
    if found is None:
        raise Failed("stage", f"no wheel brought a CUDA toolkit ({inside})", {"state": "unchanged"})
    (staging / "cuda").symlink_to(found.relative_to(staging))
    _link_unless_there(found / "lib64", "lib")
    for library in (found / "lib").glob("libcudart.so.[0-9]*"):
        _link_unless_there(found / "lib" / "libcudart.so", library.name)


def _link_unless_there(link: Path, target: str) -> None:
    if not os.path.lexists(str(link)):
        link.symlink_to(target)


def _variables(wanted: Spec, final: Path) -> Dict[str, str]:
    """Paths are real ones: a process started before a switch must not find the other stack after it."""
    real = os.path.realpath(str(final.parent)) + "/" + final.name
    own = {key: f"{real}/cache/{folder}" for key, folder in caches.FOLDERS.items()}
    return {**own, **{key: value.replace("{generation}", real) for key, value in wanted.env.items()}}


def _take_ownership(tree: Path) -> None:
    """Nobody but us may write there, whatever modes the wheels had. Hard-linked files are uv's cache too: fine."""
    for folder, folders, files in os.walk(str(tree)):
        for path in (Path(folder, name) for name in (*folders, *files)):
            info = path.lstat()
            if (info.st_uid, info.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(str(path), os.geteuid(), os.getegid(), follow_symlinks=False)
            if not stat.S_ISLNK(info.st_mode) and info.st_mode & 0o022:
                path.chmod(stat.S_IMODE(info.st_mode) & ~0o022)


def _record(ctx: Context, wanted: Spec, generation: str) -> Json:
    return {
        "id": generation,
        "number": int(generation.split("-", 1)[0]),
        "digest": wanted.digest,
        "kind": "staged",
        "name": wanted.name,
        "created": ctx.clock.wall(),
        "confirmed": False,
        "proven": None,
        "blobs": sorted({blob.sha256 for blob in wanted.blobs}),
        "packages": {environment.normalized(wheel.name): wheel.version for wheel in wanted.wheels},
    }


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
