"""E and T: the environment that is there, and whether the wheels and the compiler can work on this system."""

from __future__ import annotations

from collections.abc import Iterator

from cudaup.domain.facts import EnvironmentState, Facts, Program
from cudaup.domain.platforms import fits, glibc_minor, needed_glibc, python_version
from cudaup.domain.rules.finding import Finding, Rule, Severity
from cudaup.domain.stack import NVCC_CASE, Stack

GLIBC_OLD = Rule(
    id="E001",
    severity=Severity.BLOCKER,
    title="the C library is older than the wheels need",
    consequence="the packages cannot be installed or loaded",
    fix="upgrade the distribution, or choose wheels with an older manylinux tag",
)
NO_PYTHON = Rule(
    id="E002",
    severity=Severity.BLOCKER,
    title="no Python in the stack's range",
    consequence="the new environment has no interpreter",
    fix="install one of the stack's range, or change the range",
)
WHEELS_UNFIT = Rule(
    id="E003",
    severity=Severity.BLOCKER,
    title="wheels do not fit any Python of this host",
    consequence="the packages cannot be installed",
    fix="choose wheels for this Python and machine, or install the Python they are for",
)
NOT_FOUND = Rule(
    id="E004",
    severity=Severity.BLOCKER,
    title="the environment is not there",
    consequence="nothing could be switched, and nothing put back",
    fix="correct `environment.path` in the stack, or leave the host out",
)
NOT_ADOPTABLE = Rule(
    id="E005",
    severity=Severity.BLOCKER,
    title="the environment is not a plain directory",
    consequence="its path cannot be exchanged for a link in one step",
    fix="name the real directory in `environment.path`",
)
NO_ENVIRONMENT = Rule(
    id="E006",
    severity=Severity.BLOCKER,
    title="the directory is no Python environment",
    consequence="something else would be moved aside and replaced",
    fix="name the environment itself (where pyvenv.cfg or conda-meta lies) in `environment.path`",
)
UNFIT = Rule(
    id="E007",
    severity=Severity.BLOCKER,
    title="the environment cannot be adopted where it lies",
    consequence="moving it aside would break it, or could not be undone exactly",
    fix="see the evidence: it names what is in the way and what helps",
)
NO_COMPILER = Rule(
    id="T001",
    severity=Severity.BLOCKER,
    title="no host compiler for nvcc, and the smoke suite compiles",
    consequence="nvcc cannot even preprocess without one, so the smoke case could not pass",
    fix="install g++",
)
NO_COMPILER_FOR_JIT = Rule(
    id="T002",
    severity=Severity.WARNING,
    title="no host compiler for the toolkit",
    consequence="kernels compiled at run time will fail",
    fix="install g++",
)


def check_wheels(facts: Facts, stack: Stack) -> Iterator[Finding]:
    minor = glibc_minor(facts.host.glibc)
    too_new = [
        f"{wheel.name} {wheel.version} (2.{needed})"
        for wheel in (*stack.wheels, stack.uv)
        if (needed := needed_glibc(wheel, facts.host.arch)) is not None and (minor is None or needed > minor)
    ]
    if too_new:
        yield GLIBC_OLD.found(f"glibc is {facts.host.glibc or 'not found'}, wanted by {', '.join(too_new)}")
    pythons = suitable_pythons(facts, stack)
    if not pythons:
        there = ", ".join(f"{python.path} {python.version}" for python in facts.pythons) or "none"
        yield NO_PYTHON.found(f"stack wants Python {stack.python}, found {there}")
    elif not too_new:
        yield from _unfit(facts, stack, pythons)


def suitable_pythons(facts: Facts, stack: Stack) -> tuple[Program, ...]:
    return tuple(python for python in facts.pythons if stack.python.has(python.version))


def _unfit(facts: Facts, stack: Stack, pythons: tuple[Program, ...]) -> Iterator[Finding]:
    minor = glibc_minor(facts.host.glibc) or 0
    unfit_by_python = {
        python: [
            wheel.filename
            for wheel in stack.wheels
            if not fits(wheel, python_version(python.version), minor, facts.host.arch)
        ]
        for python in pythons
    }
    if all(unfit_by_python.values()):
        nearest = min(unfit_by_python, key=lambda python: len(unfit_by_python[python]))
        evidence = f"Python {nearest.version} on {facts.host.arch} takes none of {', '.join(unfit_by_python[nearest])}"
        yield WHEELS_UNFIT.found(evidence)


def check_environment(facts: Facts, stack: Stack) -> Iterator[Finding]:
    if stack.environment is None:
        return
    path, found = stack.environment.path, facts.environment
    if found is None or found.path != path or found.state is EnvironmentState.ABSENT:
        yield NOT_FOUND.found(f"{path} does not exist")
    elif found.state in {EnvironmentState.LINK, EnvironmentState.OTHER}:
        target = f" to {found.real}" if found.real else ""
        yield NOT_ADOPTABLE.found(f"{path} is a {found.state.value}{target}")
    elif found.state is EnvironmentState.DIRECTORY and found.kind == "none":
        yield NO_ENVIRONMENT.found(f"{path} has no pyvenv.cfg and no conda-meta")
    elif found.unfit is not None:
        yield UNFIT.found(f"{path}: {found.unfit}")


def check_compiler(facts: Facts, stack: Stack) -> Iterator[Finding]:
    if stack.toolkit is None or facts.compilers:
        return
    rule = NO_COMPILER if NVCC_CASE in stack.smoke.cases else NO_COMPILER_FOR_JIT
    yield rule.found(f"toolkit {stack.toolkit.version} is wanted, no C++ compiler was found")
