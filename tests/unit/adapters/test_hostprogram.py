from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

from cudaup.adapters import hostprogram


def test_the_same_sources_give_the_same_bytes() -> None:
    first = hostprogram.zipapp()
    hostprogram.zipapp.cache_clear()
    assert hostprogram.zipapp() == first


def test_it_holds_the_host_program_its_cases_and_the_reader_and_nothing_else_of_cudaup() -> None:
    names = zipfile.ZipFile(BytesIO(hostprogram.zipapp())).namelist()
    assert {"__main__.py", "cudaup/host/lease.py", "cudaup/smoke/vector_add.cu", "cudaup/audit/fatbin.py"} <= set(names)
    assert {name.split("/")[1] for name in names if name.startswith("cudaup/")} == {
        "__init__.py",
        "host",
        "smoke",
        "audit",
    }


def test_the_file_runs_by_itself_with_nothing_installed(tmp_path: Path) -> None:
    program = tmp_path / "cudaup-host"
    program.write_bytes(b"#!/usr/bin/env python3\n" + hostprogram.zipapp())
    command = [sys.executable, "-I", str(program), "status", "--root", str(tmp_path / "root")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"kind": "result"' in done.stdout
    assert not (tmp_path / "root").exists()  # asking leaves nothing behind
