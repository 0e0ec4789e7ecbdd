"""Labs for tests: unique names, always down at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from cudaup.lab import registry
from cudaup.lab.fleet import Lab

_numbers = count()


def unique_name() -> str:
    """Tests of several checkouts may run on one machine at once."""
    return f"t{os.getpid()}-{next(_numbers)}"


def take_down(name: str) -> None:
    if name in registry.names():
        registry.release(registry.read(name).spec)


@pytest.fixture
def lab_factory() -> Iterator[Callable[..., Lab]]:
    names: list[str] = []

    def up(hosts: int = 1, **options: Any) -> Lab:
        """As `Lab.up`, with a name of its own and one host."""
        names.append(unique_name())
        return Lab.up(names[-1], hosts, **options)

    yield up
    for name in names:
        take_down(name)


@pytest.fixture(scope="session")
def fleet() -> Iterator[Lab]:
    """Three hosts for a whole session. Leave them as you found them, or make a lab of your own."""
    name = unique_name()
    yield Lab.up(name, hosts=3)
    take_down(name)
