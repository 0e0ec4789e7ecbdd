"""Which file a package's own loader takes on a GPU. Only that one matters: its folders are no architectures."""

from typing import List, NamedTuple, Optional, Sequence

from cudaup.audit.device import Device

_HOPPER = 90
_FAST_MATH, _PRECISE = "sm90", "sm100"
_COMPILED = (".so", ".pyd", ".dll")


class Route(NamedTuple):
    """`picks` is None when the loader finds nothing; `others` are files of the same name that it passes over."""

    package: str
    picks: Optional[str]
    others: Sequence[str]
    why: str


def sgl_kernel_routes(paths: Sequence[str], device: Device) -> Sequence[Route]:
    """As `sgl_kernel/load_utils.py` does it, alike in 0.3.21 to 0.4.10.

    Capability 9.0 takes the fast-math build in `sm90/`, everything else the precise one in `sm100/`; then the package.
    """
    packages = sorted({path[: -len("/load_utils.py")] for path in paths if path.endswith("sgl_kernel/load_utils.py")})
    return [_sgl_kernel(package, paths, device) for package in packages]


def _sgl_kernel(package: str, paths: Sequence[str], device: Device) -> Route:
    folder = _FAST_MATH if device.sm == _HOPPER else _PRECISE
    math = "fast math" if device.sm == _HOPPER else "precise math"
    candidates = [path for path in paths if path.startswith(f"{package}/") and _is_common_ops(path)]
    for place, why in ((f"{package}/{folder}", f"{math} for {device.name}"), (package, "the loader's fallback")):
        here = _compiled_first([path for path in candidates if path.rpartition("/")[0] == place])
        if here:
            return Route(package, here[0], [path for path in candidates if path != here[0]], why)
    return Route(package, None, candidates, f"looked for common_ops in {folder}/ and the package itself")


def _is_common_ops(path: str) -> bool:
    return path.rpartition("/")[2].startswith("common_ops.")


def _compiled_first(paths: Sequence[str]) -> List[str]:
    return sorted(paths, key=lambda path: (not any(ext in path for ext in _COMPILED), path))
