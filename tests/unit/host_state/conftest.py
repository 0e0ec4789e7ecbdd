from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.host_state.machine import HandClock, LocalSystemd, Machine, make_environment
from tests.unit.host_state.quick import QuickMachine

from cudaup.host import adopt
from cudaup.host.mounts import prepare_root

OLD_PATH = "ml-env"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A host as cudaup finds it: an environment with a service running from it, and cudaup's program installed."""
    make_environment(tmp_path / OLD_PATH, "1.0")
    command = [str(tmp_path / OLD_PATH / "bin" / "python"), str(tmp_path / OLD_PATH / "serve.py")]
    systemd = LocalSystemd(tmp_path / "systemd", tmp_path / "opt" / "cudaup", {"ml.service": command})
    systemd.unit_dir.mkdir()
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
