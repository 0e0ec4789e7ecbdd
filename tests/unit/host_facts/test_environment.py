from __future__ import annotations

from pathlib import Path

import pytest

from cudaup.host import environment


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    path = tmp_path / "ml-env"
    add_package(path, "python3.11", "Typing_Extensions", "4.16.0", "typing_extensions.py,sha256=abc,1\n")
    (path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    return path


def add_package(env: Path, python: str, name: str, version: str, record: str) -> Path:
    info = env / "lib" / python / "site-packages" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nVersion: of the text\n")
    (info / "RECORD").write_text(record)
    return info


def test_a_venv_is_described(venv: Path) -> None:
    described = environment.describe(venv)
    assert described["digest"] is not None
    assert {**described, "digest": ""} == {
        "path": str(venv),
        "state": "directory",
        "real": str(venv),
        "python": "3.11.2",
        "kind": "venv",
        "packages": {"typing-extensions": "4.16.0"},
        "digest": "",
    }


def test_a_conda_environment_is_described(tmp_path: Path) -> None:
    add_package(tmp_path, "python3.12", "numpy", "1.26.4", "")
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / "python-dateutil-2.9.0-pyhd8ed1ab_0.json").touch()
    (tmp_path / "conda-meta" / "python-3.12.4-h5148396_1.json").touch()
    described = environment.describe(tmp_path)
    assert (described["kind"], described["python"], described["packages"]) == ("conda", "3.12.4", {"numpy": "1.26.4"})


def test_uv_writes_the_version_under_another_key(venv: Path) -> None:
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.13.9\nversion_info = 3.11.7\n")
    assert environment.describe(venv)["python"] == "3.11.7"


def test_the_digest_stays_when_nothing_changes(venv: Path) -> None:
    assert environment.describe(venv)["digest"] == environment.describe(venv)["digest"]


@pytest.mark.parametrize("changed", ["typing_extensions.py", "pyvenv.cfg", "new package"])
def test_the_digest_moves_with_what_it_covers(venv: Path, changed: str) -> None:
    before = environment.describe(venv)["digest"]
    if changed == "new package":
        add_package(venv, "python3.11", "numpy", "2.4.6", "")
    elif changed == "pyvenv.cfg":
        (venv / "pyvenv.cfg").write_text("home = /opt/python\nversion = 3.11.2\n")
    else:
        record = next(venv.glob("lib/*/site-packages/*.dist-info/RECORD"))
        record.write_text("typing_extensions.py,sha256=abd,1\n")
    assert environment.describe(venv)["digest"] != before


def test_what_is_not_there_is_absent(tmp_path: Path) -> None:
    described = environment.describe(tmp_path / "nothing")
    assert (described["state"], described["real"], described["kind"]) == ("absent", None, "none")


def test_a_file_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert environment.describe(tmp_path / "file")["state"] == "other"


def test_a_link_somewhere_is_a_link(venv: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(venv)
    described = environment.describe(tmp_path / "link")
    assert (described["state"], described["real"], described["python"]) == ("link", str(venv), "3.11.2")


def test_a_link_through_current_is_adopted(venv: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "generations" / "0001-abcdef").mkdir(parents=True)
    (root / "generations" / "0001-abcdef" / "venv").symlink_to(venv)
    (root / "current").symlink_to("generations/0001-abcdef")
    (tmp_path / "path").symlink_to(root / "current" / "venv")
    described = environment.describe(tmp_path / "path")
    assert (described["state"], described["real"]) == ("adopted", str(venv))


def test_a_link_past_current_is_not_adopted(tmp_path: Path) -> None:
    (tmp_path / "root" / "generations" / "0001-abcdef" / "venv").mkdir(parents=True)
    (tmp_path / "path").symlink_to("root/generations/0001-abcdef/venv")
    (tmp_path / "root" / "backup").symlink_to("generations/0001-abcdef")
    (tmp_path / "other").symlink_to("root/backup/venv")
    assert [environment.state(tmp_path / name) for name in ("path", "other")] == ["link", "link"]


def test_a_broken_link_is_a_link_with_nothing_behind_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    described = environment.describe(tmp_path / "link")
    assert (described["state"], described["real"]) == ("link", None)
