"""Who may compile into a generation's caches: real files, real users, so these tests are root's."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest
from tests.unit.host_state.quick import QuickMachine

from cudaup.host import caches, generations

NOBODY = pwd.getpwnam("nobody")
UNITS = ("ml.service", "other.service")


@pytest.fixture
def generation(quick: QuickMachine) -> Path:
    found = quick.ctx.layout.generation(str(generations.current_id(quick.ctx.layout)))
    for name in caches.FOLDERS.values():
        (found / "cache" / name).mkdir(exist_ok=True)
    return found


def owners(generation: Path) -> set[int]:
    return {(generation / "cache" / name).stat().st_uid for name in caches.FOLDERS.values()}


def run_as(quick: QuickMachine, monkeypatch: pytest.MonkeyPatch, *users: str) -> None:
    states = {unit: quick.systemd.show(unit)._replace(user=user) for unit, user in zip(UNITS, users, strict=False)}
    monkeypatch.setattr(quick.systemd, "show", states.__getitem__)
    caches.give_to_services(quick.ctx, str(generations.current_id(quick.ctx.layout)), UNITS[: len(users)])


@pytest.mark.parametrize("user", ["nobody", str(NOBODY.pw_uid)])
def test_a_service_of_another_user_gets_folders_of_its_own(
    quick: QuickMachine, generation: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    run_as(quick, monkeypatch, user)
    assert owners(generation) == {NOBODY.pw_uid}
    assert (generation / "cache").stat().st_uid == 0


@pytest.mark.parametrize("users", [("",), ("root",), ("nobody", ""), ("nobody", "daemon"), ("comes-with-its-service",)])
def test_folders_that_are_not_for_one_known_user_stay_roots(
    quick: QuickMachine, generation: Path, monkeypatch: pytest.MonkeyPatch, users: tuple[str, ...]
) -> None:
    run_as(quick, monkeypatch, *users)
    assert owners(generation) == {0}


def test_what_a_user_has_put_in_is_given_to_nobody_else(
    quick: QuickMachine, generation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as(quick, monkeypatch, "nobody")
    run_as(quick, monkeypatch, "daemon")
    assert owners(generation) == {NOBODY.pw_uid}


def test_root_runs_nothing_that_a_user_compiled(
    quick: QuickMachine, generation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {key: str(generation / "cache" / name) for key, name in caches.FOLDERS.items()}
    assert caches.without_strangers(generation, {**variables, "A": "b"}) == {**variables, "A": "b"}
    run_as(quick, monkeypatch, "nobody")
    found = caches.without_strangers(generation, {**variables, "A": "b"})
    assert found == {"A": "b", **{key: str(generation / "cache/smoke" / name) for key, name in caches.FOLDERS.items()}}


def test_bytecode_goes_and_its_folder_stays(quick: QuickMachine, generation: Path) -> None:
    folder = generation / "cache" / "pycache"
    (folder / "usr").mkdir()
    (folder / "usr" / "torn.pyc").touch()
    (folder / "link").symlink_to(generation)
    caches.drop_bytecode(quick.ctx.layout, generation.name)
    assert (list(folder.iterdir()), generation.is_dir()) == ([], True)
