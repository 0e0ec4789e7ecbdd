from pathlib import Path

from tests.unit.host_state.machine import HandClock

from cudaup.host.journal import Journal
from cudaup.host.layout import Layout


def test_an_intent_is_open_until_its_outcome(tmp_path: Path) -> None:
    journal = Journal(Layout(tmp_path), HandClock())
    one, two = journal.intent("stop", 3, {"units": ["ml.service"]}), journal.intent("switch", 3, {})
    journal.failed(one, {"error": "no"})

    assert [entry["op"] for entry in journal.open_intents()] == ["switch"]
    assert journal.entries()[2] == {
        "seq": one,
        "op": "stop",
        "epoch": 3,
        "phase": "failed",
        "detail": {"error": "no"},
        "time": 1_800_001_000.0,
        "mono": 1000.0,
        "boot_id": "boot-1",
    }
    assert two == one + 1


def test_a_line_torn_by_a_power_loss_is_ignored_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    journal = Journal(Layout(tmp_path), HandClock())
    journal.done(journal.intent("stop", 1, {}))
    whole = Layout(tmp_path).journal.read_bytes()
    for length in range(1, len(whole.splitlines()[1])):
        Layout(tmp_path).journal.write_bytes(whole + whole.splitlines()[1][:length])
        assert len(journal.entries()) == 2
        seq = journal.intent("switch", 1, {})
        assert (seq, journal.entries()[-1]["op"], len(journal.entries())) == (2, "switch", 3)


def test_a_whole_line_that_lost_only_its_newline_counts(tmp_path: Path) -> None:
    journal = Journal(Layout(tmp_path), HandClock())
    journal.intent("stop", 1, {})
    path = Layout(tmp_path).journal
    path.write_bytes(path.read_bytes().rstrip(b"\n"))

    assert journal.intent("switch", 1, {}) == 2
    assert [entry["seq"] for entry in journal.entries()] == [1, 2]


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert Journal(Layout(tmp_path / "nowhere")).open_intents() == []
