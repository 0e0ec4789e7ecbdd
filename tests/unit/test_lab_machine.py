from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from cudaup.domain.errors import UsageError
from cudaup.lab import build, machine
from cudaup.lab.sysctl import Setting


def test_off_linux_the_error_says_what_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(UsageError, match="Darwin") as caught:
        machine.require_lab_machine()
    assert (
        caught.value.fix == "plan, apply, rollback and status of real hosts work here; they need neither Linux nor root"
    )


def test_without_root_sudo_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="sudo"):
        machine.require_lab_machine()


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for tool in ("ip", "tc", "nsenter", "mkfs.ext4"):
        (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setattr(machine, "tool_path", lambda: str(tmp_path))
    with pytest.raises(UsageError, match="no debootstrap, nft") as caught:
        machine.require_lab_machine()
    assert caught.value.fix == "apt-get install debootstrap nftables"


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    (tmp_path / "max").write_text("128\n")
    return Setting(file=tmp_path / "max", saved=tmp_path / "saved")


def test_the_setting_goes_back_to_what_it_was_before_the_first_lab(setting: Setting) -> None:
    setting.raise_it()
    setting.raise_it()  # a second lab
    assert setting.file.read_text() == "8192\n"
    setting.put_back()
    assert setting.file.read_text() == "128\n"


def test_a_setting_that_is_high_enough_is_left_alone(setting: Setting) -> None:
    setting.file.write_text("10000\n")
    setting.raise_it()
    setting.put_back()
    assert setting.file.read_text() == "10000\n"


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ('Acquire::http::Proxy "http://proxy.example:3128";', {"http_proxy": "http://proxy.example:3128"}),
        ('Acquire::http::Proxy "DIRECT";', {}),
        ("", {}),
    ],
)
def test_debootstrap_gets_the_proxy_that_apt_uses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, environment: dict[str, str]
) -> None:
    (tmp_path / "apt.conf").write_text(f"{line}\n")
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    assert build._proxy() == environment  # noqa: SLF001 - what debootstrap is given, without running it
