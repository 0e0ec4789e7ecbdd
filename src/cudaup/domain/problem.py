"""What is wrong with one key of a file, in two halves an operator can act on: wanted and found."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import AfterValidator
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError


@dataclass(frozen=True, kw_only=True)
class Problem:
    """`path` is relative to the value being checked: `("accept", "nvcc")`."""

    path: tuple[str | int, ...] = ()
    wanted: str
    found: Any


def wrong(wanted: str, found: Any) -> PydanticCustomError:
    """For a validator that has one thing to say about its own value."""
    return PydanticCustomError(
        "wanted_found", "wanted {wanted}, found {found}", {"wanted": wanted, "found": str(found)}
    )


def matching(pattern: str, wanted: str) -> AfterValidator:
    """To annotate text that must match as a whole."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise wrong(wanted, text)
        return text

    return AfterValidator(check)


def raise_problems(problems: Iterable[Problem]) -> None:
    """Raise all of them at once, each at its own place below the value being checked."""
    details = [
        InitErrorDetails(type=wrong(problem.wanted, problem.found), loc=problem.path, input=problem.found)
        for problem in problems
    ]
    if details:
        raise ValidationError.from_exception_data("value", details)
