import json
import subprocess
import sys
from pathlib import Path

import pytest

from cudaup.adapters.hostprogram import zipapp
from cudaup.host import boot
from cudaup.host.boot import BOOT

TOKEN = "tok-4711"  # noqa: S105 - the marker line, no secret
SHA = "a" * 64


def stream(root: Path, argv: list[str], data: bytes = b"", *, token_line: bytes = TOKEN.encode()) -> bytes:
    request = json.dumps({"argv": argv, "root": str(root)}).encode()
    sizes = f"{len(zipapp())} {len(request)}".encode()
    return token_line + b"\n" + sizes + b"\n" + zipapp() + request + data


def run(sent: bytes, *, before: str = "", cwd: Path = Path("/"), **env: str) -> "subprocess.CompletedProcess[bytes]":
    argv = [before + word if word == BOOT else word for word in boot.argv(sys.executable, TOKEN)]
    return subprocess.run(argv, input=sent, capture_output=True, check=False, cwd=cwd, env=env)


def answer(done: "subprocess.CompletedProcess[bytes]") -> dict[str, object]:
    """The last object; every line must carry the token."""
    lines = done.stdout.decode().splitlines()
    assert lines, done.stderr
    assert all(line.startswith(f"{TOKEN} {{") for line in lines)
    last: dict[str, object] = json.loads(lines[-1].partition(" ")[2])
    return last


def test_boot_is_one_line() -> None:
    assert "\n" not in BOOT


def test_what_comes_before_the_token_is_thrown_away_and_what_comes_after_the_request_is_the_verbs(
    tmp_path: Path,
) -> None:
    wanted = [{"sha256": SHA, "name": "demo-1.0-py3-none-any.whl", "size": 3}]
    sent = b"secret\nmotd tok-4711 hello\n" + stream(tmp_path, ["blob", "missing"], json.dumps(wanted).encode())
    done = run(sent)
    assert answer(done) == {"kind": "result", "data": {"missing": [SHA]}}
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, b"", [])


def test_a_kernel_without_memory_files_gets_a_file_without_a_name(tmp_path: Path) -> None:
    done = run(stream(tmp_path, ["lease", "show"]), before="import os; del os.memfd_create; ")
    assert answer(done)["kind"] == "result"


def test_nothing_is_imported_from_where_the_login_begins(tmp_path: Path) -> None:
    """A user who may become root by sudo: what else runs as that user can write there."""
    root = tmp_path / "root"
    for name in ("tempfile.py", "json.py", "argparse.py", "sitecustomize.py"):
        (tmp_path / name).write_text("import os\nos._exit(66)\n")
    done = run(stream(root, ["lease", "show"]), cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, answer(done)["kind"]) == (0, "result")


@pytest.mark.parametrize("sent", [b"", b"tok-4710\n", b"tok-4711\n100 10\nshort"])
def test_an_input_that_ends_early_runs_nothing(sent: bytes) -> None:
    done = run(sent)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"ended" in done.stderr


def test_answers_and_their_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "transit.json").write_text("{}")
    cases = {("lease", "take"): ("refused", 3), ("verify",): ("refused", 3), ("status",): ("broken", 70)}
    for argv, wanted in cases.items():
        done = run(stream(tmp_path, list(argv)))
        assert (answer(done)["kind"], done.returncode) == wanted
    assert answer(run(stream(tmp_path, ["lease", "take"])))["code"] == "usage"
