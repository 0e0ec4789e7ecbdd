"""The wanted state, as one YAML file says it, and the words in which the host program hears of it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from packaging.utils import canonicalize_name
from pydantic import Field, ValidationInfo, field_validator

from cudaup.domain.lockfile import Wheel
from cudaup.domain.packages import Packages
from cudaup.domain.platforms import PYTHONS, have_common_platform
from cudaup.domain.problem import Problem, raise_problems, wrong
from cudaup.domain.stack_sections import (
    AdoptedEnvironment,
    AuditGate,
    Gpus,
    Health,
    Hooks,
    ModuleName,
    Name,
    Smoke,
    Timers,
    Toolkit,
)
from cudaup.domain.value import Value
from cudaup.domain.versions import VersionRange

NVCC_CASE = "nvcc"
_NVCC_WHEEL = "nvidia-cuda-nvcc"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"(TOKEN|PASSWORD|PASSWD|SECRET)$", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{[^{}]*\}?|\}")


class Stack(Value):
    """Checks that need two sections read the earlier one from `info.data`, so that all errors come at once."""

    name: Name
    description: str = ""
    driver: VersionRange | None = None
    gpus: Gpus | None = Field(default=None, validate_default=True)
    python: VersionRange
    toolkit: Toolkit | None = None
    environment: AdoptedEnvironment | None = None
    env: dict[str, str] = Field(default_factory=dict)
    imports: tuple[ModuleName, ...] = ()
    uv: Wheel
    packages: Packages | None = None
    wheels: tuple[Wheel, ...] = Field(default=(), validate_default=True)
    smoke: Smoke
    audit: AuditGate = AuditGate()
    health: Health = Health()
    timers: Timers = Timers()
    hooks: Hooks = Hooks()

    @field_validator("gpus")
    @classmethod
    def _gpus_need_a_driver(cls, gpus: Gpus | None, info: ValidationInfo) -> Gpus | None:
        if gpus is not None and info.data.get("driver", "invalid") is None:
            raise wrong("a driver range too (key driver) where GPUs are wanted", "none")
        return gpus

    @field_validator("env")
    @classmethod
    def _env_is_plain(cls, env: dict[str, str]) -> dict[str, str]:
        raise_problems([*_bad_names(env), *_unknown_placeholders(env), *_long_values(env), *_secrets(env)])
        return env

    @field_validator("wheels")
    @classmethod
    def _wheels_go_together(cls, wheels: tuple[Wheel, ...], info: ValidationInfo) -> tuple[Wheel, ...]:
        if not wheels:
            if info.data.get("packages") is not None:
                return wheels  # not locked yet
            raise wrong("at least one wheel, or packages to lock", "none")
        everything = [*_duplicates(wheels), *_no_common_platform(wheels, info.data), *_other_nvcc(wheels, info.data)]
        raise_problems(everything)
        return wheels

    @field_validator("smoke")
    @classmethod
    def _sm_is_the_gpus(cls, smoke: Smoke, info: ValidationInfo) -> Smoke:
        gpus = info.data.get("gpus")
        if smoke.sm is not None and gpus is not None and smoke.sm.rstrip("af") != sm_of(gpus.arch):
            wanted = f"code for gpus.arch {gpus.arch} ({sm_of(gpus.arch)})"
            raise_problems([Problem(path=("sm",), wanted=wanted, found=smoke.sm)])
        if smoke.sm is None and gpus is None and "gpus" in info.data and NVCC_CASE in smoke.cases:
            raise_problems([Problem(path=("sm",), wanted="an SM number, as there is no gpus.arch", found="none")])
        return smoke

    @field_validator("smoke")
    @classmethod
    def _nvcc_is_there(cls, smoke: Smoke, info: ValidationInfo) -> Smoke:
        """A case that cannot pass would stop the services for nothing."""
        if "toolkit" in info.data and info.data["toolkit"] is None:
            raise_problems(
                Problem(path=("cases",), wanted=f"a toolkit for {case} (key toolkit), or waived accepted", found="none")
                for case in ("nvcc", "launch")
                if case in smoke.cases and "waived" not in smoke.accept.get(case, ())
            )
        return smoke

    @field_validator("audit")
    @classmethod
    def _gate_is_for_a_gpu(cls, audit: AuditGate, info: ValidationInfo) -> AuditGate:
        gpus, smoke = info.data.get("gpus"), info.data.get("smoke")
        if audit.require and "gpus" in info.data and smoke is not None and not (gpus or smoke.sm):
            raise_problems(
                [Problem(path=("require",), wanted="a GPU to look for (gpus.arch or smoke.sm)", found="none")]
            )
        return audit

    @field_validator("hooks")
    @classmethod
    def _hooks_fit_below_the_ceiling(cls, hooks: Hooks, info: ValidationInfo) -> Hooks:
        timers = info.data.get("timers")
        if timers is not None:
            wanted = f"less than timers.ceiling_s ({timers.ceiling_s:g})"
            raise_problems(
                Problem(path=(name, "timeout_s"), wanted=wanted, found=f"{hook.timeout_s:g}")
                for name, hook in hooks.by_name().items()
                if hook.timeout_s >= timers.ceiling_s
            )
        return hooks

    @property
    def sm(self) -> str | None:
        return self.smoke.sm or (sm_of(self.gpus.arch) if self.gpus else None)

    @property
    def gpu_sm(self) -> str | None:
        """The GPU's own number, whatever variant of code is compiled for it."""
        return self.sm.rstrip("af") if self.sm else None

    def digest(self) -> str:
        """Of what a generation is made from; docs/host-program.md has the definition both sides keep."""
        spec = generation_spec(self)
        made_from = {key: spec[key] for key in ("python", "wheels", "toolkit", "env")}
        return hashlib.sha256(canonical_json(made_from).encode()).hexdigest()


def sm_of(arch: str) -> str:
    return arch.replace(".", "")


def canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def generation_spec(stack: Stack) -> dict[str, Any]:
    """What the host program's `stage` reads."""
    wheels = sorted(stack.wheels, key=lambda wheel: wheel.filename)
    return {
        "name": stack.name,
        "python": {"version": str(stack.python), "executable": None},
        "wheels": [wheel.model_dump(mode="json", exclude={"index"}) for wheel in wheels],
        "uv": stack.uv.model_dump(mode="json", include={"filename", "sha256", "size"}),
        "toolkit": stack.toolkit.model_dump(mode="json", by_alias=True) if stack.toolkit else None,
        "env": dict(stack.env),
        "imports": list(stack.imports),
    }


def smoke_suite(stack: Stack) -> dict[str, Any]:
    """What the host program's `--suite` takes."""
    return {
        "cases": list(stack.smoke.cases),
        "accept": {case: list(verdicts) for case, verdicts in stack.smoke.accept.items()},
        "limits": dict(stack.smoke.limits),
        "sm": stack.sm,
        "imports": list(stack.imports),
    }


def health_json(stack: Stack) -> dict[str, Any]:
    """What the host program's `--health` takes."""
    return stack.health.as_json()


def hooks_json(stack: Stack) -> dict[str, Any]:
    """What the host program's `--hooks` takes."""
    kept = {"command", "timeout_s"}
    return {name: hook.model_dump(mode="json", include=kept) for name, hook in stack.hooks.by_name().items()}


def _bad_names(env: dict[str, str]) -> list[Problem]:
    wanted = "a variable's name: letters, digits and _, no digit first"
    return [Problem(path=(key,), wanted=wanted, found=key) for key in env if not _NAME.fullmatch(key)]


def _unknown_placeholders(env: dict[str, str]) -> list[Problem]:
    return [
        Problem(path=(key,), wanted="no placeholder but {generation}", found=found)
        for key, text in env.items()
        for found in _PLACEHOLDER.findall(text)
        if found != "{generation}"
    ]


def _long_values(env: dict[str, str]) -> list[Problem]:
    return [Problem(path=(key,), wanted="one line", found="several") for key, text in env.items() if "\n" in text]


def _secrets(env: dict[str, str]) -> list[Problem]:
    """The file, the plan and the host all keep these values in clear."""
    return [
        Problem(path=(key,), wanted="no secret, as plans and hosts keep it in clear", found="a value (hidden)")
        for key in env
        if _SECRET.search(key)
    ]


def _duplicates(wheels: tuple[Wheel, ...]) -> list[Problem]:
    first: dict[str, Wheel] = {}
    problems = []
    for number, wheel in enumerate(wheels):
        known = first.setdefault(canonicalize_name(wheel.name), wheel)
        if known is not wheel:
            wanted = f"{known.name} once (it is {known.version} above)"
            problems.append(Problem(path=(number, "name"), wanted=wanted, found=f"{wheel.name} {wheel.version}"))
    return problems


def _no_common_platform(wheels: tuple[Wheel, ...], earlier: dict[str, Any]) -> list[Problem]:
    python = earlier.get("python")
    if not isinstance(python, VersionRange):
        return []
    pythons = [version for version in PYTHONS if allows(python, version)]
    if have_common_platform(wheels, pythons):
        return []
    lonely = [wheel.filename for wheel in wheels if not have_common_platform([wheel], pythons)]
    wanted = f"wheels that one Linux machine with Python {python} can use together"
    return [Problem(wanted=wanted, found=", ".join(lonely or [wheel.filename for wheel in wheels]))]


def allows(python: VersionRange, version: tuple[int, int]) -> bool:
    """Whether some patch release of it is in the range (CPython has had no more than 25 in a series)."""
    return any(python.has(f"{version[0]}.{version[1]}.{patch}") for patch in range(40))


def _other_nvcc(wheels: tuple[Wheel, ...], earlier: dict[str, Any]) -> list[Problem]:
    """Resolvers let nvcc float above the toolkit; its PTX is then too new for the driver."""
    toolkit = earlier.get("toolkit")
    if not isinstance(toolkit, Toolkit):
        return []
    wanted = f"{_NVCC_WHEEL} {toolkit.version}.* for toolkit {toolkit.version}"
    found = [wheel for wheel in wheels if canonicalize_name(wheel.name) == _NVCC_WHEEL]
    if not found:
        return [Problem(wanted=wanted, found="none")]
    fitting = f"{found[0].version}.".startswith(f"{toolkit.version}.")
    return [] if fitting else [Problem(wanted=wanted, found=found[0].version)]
