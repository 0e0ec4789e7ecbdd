from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cudaup.adapters.journal_store import FileJournal, RunStore, state_directory
from cudaup.domain.errors import UsageError


def test_what_was_appended_is_read_in_order(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal.jsonl")
    for number in range(3):
        journal.append({"n": number})
    assert journal.read() == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_threads_never_mix_their_lines(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal.jsonl")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: journal.append({"n": n, "fill": "x" * 5000}), range(64)))
    assert sorted(record["n"] for record in journal.read()) == list(range(64))


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"n": 0}\n{"n": 1, "te')
    assert FileJournal(path).read() == [{"n": 0}]


def test_damage_before_the_end_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"n": 0}\ngarbage\n{"n": 2}\n')
    with pytest.raises(UsageError) as caught:
        FileJournal(path).read()
    assert caught.value.where == f"{path}:2"


def test_a_run_keeps_its_plan_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    RunStore(tmp_path).create("r-1", "the plan")
    folder = tmp_path / "runs" / "r-1"
    assert (folder / "plan.json").read_text() == "the plan"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"CUDAUP_STATE": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/cudaup"),
        ({"HOME": "/c"}, "/c/.local/state/cudaup"),
    ],
)
def test_where_state_lives(environ: dict[str, str], wanted: str) -> None:
    assert str(state_directory(environ)) == wanted


def test_a_journal_that_can_no_longer_be_written_keeps_the_rest_in_memory_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path)
    journal.append({"n": 0})
    path.unlink()
    path.mkdir()
    journal.append({"n": 1})
    journal.append({"n": 2})
    assert journal.read() == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert str(path) in journal.trouble


def test_only_an_incident_does_without_a_folder(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(UsageError, match="cannot be kept"):
        RunStore(tmp_path).create("r-1", "the plan")
    journal = RunStore(tmp_path).create("r-1", "the plan", is_incident=True)
    journal.append({"n": 0})
    assert (journal.read(), "Not a directory" in journal.trouble) == ([{"n": 0}], True)
