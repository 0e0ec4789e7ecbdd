import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.host_state.machine import HandClock, LocalSystemd, Machine, make_environment
from tests.unit.host_state.quick import QuickMachine

from cudaup.host import adopt, surroundings
from cudaup.host.mounts import prepare_root

OLD_PATH = "ml-env"


@pytest.fixture(autouse=True)
def surrounded_by_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever else runs where the tests do, a container engine say, and whatever umask the tests are run with."""
    monkeypatch.setattr(surroundings, "_ROOT", tmp_path / "surroundings")
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A host as cudaup finds it: an environment with a service running from it, and cudaup's program installed."""
    make_environment(tmp_path / OLD_PATH, "1.0")
    command = [str(tmp_path / OLD_PATH / "bin" / "python"), str(tmp_path / OLD_PATH / "serve.py")]
    folder = tmp_path / "systemd"
    systemd = LocalSystemd(folder, folder, tmp_path / "opt" / "cudaup", {"ml.service": command})
    folder.mkdir()
    found = Machine(tmp_path, HandClock(), systemd)
    prepare_root(found.ctx.layout)
    found.ctx.layout.program.parent.mkdir()
    found.ctx.layout.program.touch()
    systemd.start("ml.service")
    yield found
    systemd.close()


@pytest.fixture
def adopted(machine: Machine) -> str:
    """The old environment's generation."""
    return str(adopt.adopt(machine.call(path=str(machine.path)))["generation"])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuickMachine]:
    """The same for thousands of commands; its environment is adopted."""
    found = QuickMachine(monkeypatch)
    adopt.adopt(found.call(path=str(found.path)))
    yield found
    found.close()
