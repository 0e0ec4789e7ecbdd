"""Lines of known_hosts as OpenSSH reads them; hashed names are made by ssh-keygen itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.unit.adapters.real_sshd import make_key

from cudaup.adapters.known_hosts import fingerprint, lookup, parse, read

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1vhBXvDMjYyrZJ0Yf3jzJ9tRq5rXkHjz4mWbHJrYwV"


def places(text: str, *names: str) -> list[str]:
    return [entry.place for entry in lookup(parse(text, "kh"), names)]


@pytest.mark.parametrize(
    ("names", "asked", "is_known"),
    [
        ("gpu1", "gpu1", True),
        ("gpu1", "gpu10", False),
        ("GPU1", "gpu1", True),
        ("other,gpu1", "gpu1", True),
        ("gpu?", "gpu1", True),
        ("*.lab,!gpu9.lab", "gpu1.lab", True),
        ("*.lab,!gpu9.lab", "gpu9.lab", False),
        ("[gpu1]:2222", "[gpu1]:2222", True),
        ("[gpu1]:2222", "gpu1", False),
        ("[gpu*]:2222", "[gpu1]:2222", True),
    ],
)
def test_which_names_a_line_is_for(names: str, asked: str, is_known: bool) -> None:  # noqa: FBT001  a column
    assert bool(places(f"{names} {_KEY}", asked)) is is_known


def test_hashed_names_match_what_ssh_keygen_hashed(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"plain {_KEY}\n[gpu1]:2222 {_KEY}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "gpu1" not in file.read_text()
    known = read([str(file)])
    assert [entry.line for entry in lookup(known, ["[gpu1]:2222"])] == [2]
    assert lookup(known, ["gpu2"]) == ()


def test_the_name_without_a_port_counts_only_when_the_one_with_it_is_missing() -> None:
    text = f"gpu1 {_KEY}\n[gpu1]:2222 {_KEY}"
    assert places(text, "[gpu1]:2222", "gpu1") == ["kh:2"]
    assert places(f"gpu1 {_KEY}", "[gpu1]:2222", "gpu1") == ["kh:1"]


def test_comments_blank_and_broken_lines_are_no_keys() -> None:
    assert places(f"# gpu1 {_KEY}\n\ngpu1 ssh-ed25519 not-base64\ngpu1 ssh-ed25519\ngpu1 {_KEY}", "gpu1") == ["kh:5"]


def test_markers_are_kept_apart_from_plain_keys() -> None:
    entries = lookup(parse(f"@revoked gpu1 {_KEY}\n@cert-authority *.lab {_KEY}", "kh"), ["gpu1"])
    assert [(entry.marker, entry.line) for entry in entries] == [("@revoked", 1)]


def test_the_fingerprint_is_the_one_ssh_keygen_shows(tmp_path: Path) -> None:
    public = make_key(tmp_path / "k").with_suffix(".pub")
    shown = subprocess.run(["ssh-keygen", "-lf", str(public)], check=True, capture_output=True, text=True).stdout
    (entry,) = parse(f"h {public.read_text()}", "kh")
    assert fingerprint(entry.key) == shown.split()[1]
