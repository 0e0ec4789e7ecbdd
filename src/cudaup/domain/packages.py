"""What a stack asks for before it is resolved: requirements, constraints, the one index of each package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from cudaup.domain.problem import Problem, matching, raise_problems, wrong
from cudaup.domain.stack_sections import Name
from cudaup.domain.value import Value


def _a_requirement(text: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise wrong("a requirement such as torch==2.14.1", text) from None
    if requirement.url or requirement.marker:
        raise wrong("a name and versions; no address, no marker: the lock is for one platform", text)
    return text


RequirementText = Annotated[str, AfterValidator(_a_requirement)]
IndexUrl = Annotated[str, matching(r"https?://[^\s/@]+(/[^\s?#@]*)?", "an index's address, without user or query")]


class Index(Value):
    """An index beside the default one. `packages` come from here and nowhere else, and nothing else comes from here."""

    url: IndexUrl
    packages: tuple[str, ...] = Field(min_length=1)


class Packages(Value):
    """`require` are what the stack is for; `constrain` only holds versions of what those bring along."""

    require: tuple[RequirementText, ...] = Field(min_length=1)
    constrain: tuple[RequirementText, ...] = ()
    indexes: dict[Name, Index] = Field(default_factory=dict)

    @field_validator("indexes")
    @classmethod
    def _indexes_are_used(cls, indexes: dict[str, Index], info: ValidationInfo) -> dict[str, Index]:
        if "require" in info.data:
            raise_problems(_misplaced(indexes, frozenset(map(name_of, info.data["require"]))))
        return indexes

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(name_of, self.require))

    def index_of(self, name: str) -> str | None:
        """The address of the index a package must come from; None for the default one."""
        wanted = canonicalize_name(name)
        of = {canonicalize_name(each): index.url for index in self.indexes.values() for each in index.packages}
        return of.get(wanted)


def name_of(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def _misplaced(indexes: dict[str, Index], required: frozenset[str]) -> Iterator[Problem]:
    """Resolvers tie only what is asked for to an index; what came along would be taken from anywhere."""
    first: dict[str, str] = {}
    for key, index in indexes.items():
        for number, name in enumerate(index.packages):
            path = (key, "packages", number)
            known = first.setdefault(canonicalize_name(name), key)
            if known != key:
                yield Problem(path=path, wanted=f"one index for {name} (it is in {known})", found=key)
            if canonicalize_name(name) not in required:
                yield Problem(path=path, wanted="a package of packages.require", found=name)
