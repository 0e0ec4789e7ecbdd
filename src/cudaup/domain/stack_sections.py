"""The sections of a stack file, each checked by itself. `docs/stack-file.md` describes every key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from cudaup.domain.facts import Verdict
from cudaup.domain.problem import Problem, matching, raise_problems, wrong
from cudaup.domain.value import Value

Seconds = Annotated[float, Field(gt=0, le=24 * 3600)]


Name = Annotated[str, matching(r"[a-z0-9][a-z0-9.-]{0,62}", "lower-case letters, digits, dots and dashes")]
Architecture = Annotated[str, matching(r"\d{1,2}\.\d", "a compute capability such as 12.0")]
SmCode = Annotated[str, matching(r"\d{2,3}[af]?", "an SM number such as 120, 120a or 120f")]
MajorMinor = Annotated[str, matching(r"\d+\.\d+", "major.minor such as 13.0")]
ModuleName = Annotated[str, matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "the name of a Python module")]
AbsolutePath = Annotated[
    str, matching(r"(/(?!\.{1,2}(/|$))[^/\0]+)+", "an absolute path, without ., .. or / at its end")
]
HttpUrl = Annotated[str, matching(r"http://(\[[\da-f:.]+\]|[^\s/:@]+)(:\d{1,5})?(/\S*)?", "a plain http address")]
OnHost = Annotated[str, matching("host", "host, as hooks on the controller are not there yet")]


def _a_program(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command or not command[0]:
        raise wrong("a program and its arguments", "an empty list" if not command else "no program")
    return command


def _with_a_real_port(url: str) -> str:
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise wrong("a port up to 65535", url) from None
    return url


Command = Annotated[tuple[str, ...], AfterValidator(_a_program)]


class Gpus(Value):
    """`count` is how many each host must have; any number when it is not given."""

    arch: Architecture
    count: int | None = Field(default=None, gt=0)


class Toolkit(Value):
    """The CUDA toolkit of a generation. Wheels are the only source for now."""

    model_config = ConfigDict(populate_by_name=True)

    version: MajorMinor
    from_: Literal["wheels"] = Field(alias="from")


class AdoptedEnvironment(Value):
    """The environment that is on the hosts already, and that the service runs from."""

    path: AbsolutePath


# What the host program has; a test holds the two together.
SMOKE_CASES = ("driver", "imports", "record", "nvcc", "launch")


class Smoke(Value):
    """`accept` says which verdicts let a case through (only `pass` unless said), `limits` are seconds per case."""

    cases: tuple[Name, ...]
    accept: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    limits: dict[str, Seconds] = Field(default_factory=dict)
    sm: SmCode | None = None

    @field_validator("cases")
    @classmethod
    def _known_and_once(cls, cases: tuple[str, ...]) -> tuple[str, ...]:
        if not cases:
            raise wrong("at least one case", "none")
        known = f"one of {', '.join(SMOKE_CASES)}"
        raise_problems(
            Problem(path=(number,), wanted="each case once" if case in SMOKE_CASES else known, found=case)
            for number, case in enumerate(cases)
            if case not in SMOKE_CASES or case in cases[:number]
        )
        return cases

    @field_validator("accept")
    @classmethod
    def _acceptable(cls, accept: dict[str, tuple[str, ...]], info: ValidationInfo) -> dict[str, tuple[str, ...]]:
        acceptable = [verdict.value for verdict in Verdict if verdict.may_be_accepted]
        wanted = f"{' or '.join(acceptable)} (nothing else proves the stack)"
        unfit = [
            Problem(path=(case, number), wanted=wanted, found=verdict)
            for case, verdicts in accept.items()
            for number, verdict in enumerate(verdicts)
            if verdict not in acceptable
        ]
        none = [Problem(path=(case,), wanted=wanted, found="none") for case, given in accept.items() if not given]
        raise_problems([*_unknown_cases(accept, info), *unfit, *none])
        return accept

    @field_validator("limits")
    @classmethod
    def _limits_of_cases(cls, limits: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        raise_problems(_unknown_cases(limits, info))
        return limits


def _unknown_cases(named: Iterable[str], info: ValidationInfo) -> list[Problem]:
    """Nothing when the cases themselves are wrong: they have their own errors."""
    cases = info.data.get("cases")
    if cases is None:
        return []
    wanted = f"one of smoke.cases ({', '.join(cases)})"
    return [Problem(path=(case,), wanted=wanted, found=case) for case in named if case not in cases]


class HttpHealth(Value):
    url: Annotated[HttpUrl, AfterValidator(_with_a_real_port)]
    timeout_s: Seconds


FileName = Annotated[str, Field(min_length=1)]


class AuditGate(Value):
    """Files that must have code for the stack's GPUs; named as docs/audit.md says."""

    require: tuple[FileName, ...] = ()


class Health(Value):
    """What says that the service works: an address, a command, or nothing but that its units are active."""

    http: HttpHealth | None = None
    command: Command | None = None
    timeout_s: Seconds | None = Field(default=None, validate_default=True)

    @field_validator("command")
    @classmethod
    def _one_way(cls, command: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        if command is not None and info.data.get("http") is not None:
            raise wrong("http or command, not both", "both")
        return command

    @field_validator("timeout_s")
    @classmethod
    def _with_its_command(cls, timeout_s: float | None, info: ValidationInfo) -> float | None:
        has_command = info.data.get("command", "invalid") is not None
        if has_command and timeout_s is None:
            raise wrong("a limit in seconds for command", "none")
        if timeout_s is not None and not has_command:
            raise wrong("timeout_s beside command (http has its own)", f"{timeout_s:g}")
        return timeout_s

    @property
    def is_asked(self) -> bool:
        return self.http is not None or self.command is not None

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)


class Hook(Value):
    """A program of the hosts' own and its arguments."""

    command: Command
    timeout_s: Seconds
    on: OnHost = "host"


class Hooks(Value):
    """What systemd does not run, and what has to happen around a switch. `undrain` and `start` undo another one."""

    drain: Hook | None = None
    undrain: Hook | None = Field(default=None, validate_default=True)
    stop: Hook | None = None
    start: Hook | None = Field(default=None, validate_default=True)
    bench: Hook | None = None

    @field_validator("undrain", "start")
    @classmethod
    def _beside_what_it_undoes(cls, hook: Hook | None, info: ValidationInfo) -> Hook | None:
        undone = {"undrain": "drain", "start": "stop"}[str(info.field_name)]
        if undone in info.data and (info.data[undone] is None) is not (hook is None):
            raise wrong(f"{undone} and {info.field_name} together", "one of them")
        return hook

    def by_name(self) -> dict[str, Hook]:
        """In the order in which a switch runs them."""
        order = (("drain", self.drain), ("stop", self.stop), ("start", self.start))
        rest = (("bench", self.bench), ("undrain", self.undrain))
        return {name: hook for name, hook in (*order, *rest) if hook is not None}


class Timers(Value):
    """`ttl_s`: a switch without its operator lasts no longer; `ceiling_s`: nor one with him."""

    lease_s: Seconds = 60
    ceiling_s: Seconds = 1800
    ttl_s: Seconds = Field(default=30, validate_default=True)

    @field_validator("ttl_s")
    @classmethod
    def _below_ceiling(cls, ttl_s: float, info: ValidationInfo) -> float:
        ceiling_s = info.data.get("ceiling_s")
        if ceiling_s is not None and ttl_s >= ceiling_s:
            raise wrong(f"less than ceiling_s ({ceiling_s:g})", f"{ttl_s:g}")
        return ttl_s
