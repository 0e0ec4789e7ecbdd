import fcntl
import time
from concurrent.futures import ThreadPoolExecutor
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


def test_room_for_what_comes_next_is_there_beforehand(tmp_path: Path) -> None:
    journal = Journal(Layout(tmp_path), HandClock())
    for _ in range(3):
        journal.done(journal.intent("stop", 1, {"why": "x" * 10_000}))
        info = Layout(tmp_path).journal.stat()
        assert info.st_blocks * 512 >= info.st_size + (32 << 10)
    assert len(Layout(tmp_path).journal.read_bytes().splitlines()) == 6


def grown(layout: Layout) -> Journal:
    """A journal of many records that are done, and one that is not."""
    journal = Journal(layout, HandClock())
    journal.done(journal.intent("transit-end", 1, {"end": "confirmed"}))
    journal.done(journal.intent("transit-end", 1, {"end": "proven"}))
    journal.failed(journal.intent("transit-end", 2, {"end": "unproven"}))
    journal.intent("stop", 2, {"why": "cut short"})
    for number in range(300):
        journal.done(journal.intent("stage", 3, {"number": number, "why": "x" * 1000}))
    return journal


def test_a_long_journal_begins_anew_with_what_may_still_be_asked_for(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    journal = grown(layout)
    before, size = journal.entries(), layout.journal.stat().st_size
    journal.shorten()

    assert [(entry["seq"], entry["op"], entry["phase"]) for entry in journal.entries()] == [
        (2, "transit-end", "intent"),
        (2, "transit-end", "done"),
        (3, "transit-end", "intent"),
        (3, "transit-end", "failed"),
        (4, "stop", "intent"),
        (304, "stage", "intent"),
        (304, "stage", "done"),
    ]
    assert [entry["op"] for entry in journal.open_intents()] == ["stop"]
    assert journal.entries()[-2] == before[-2]
    assert layout.older_journal.stat().st_size == size
    assert journal.intent("switch", 4, {}) == 305
    journal.failed(4)
    assert [entry["seq"] for entry in journal.open_intents()] == [305]


def test_a_short_journal_stays_as_it_is(tmp_path: Path) -> None:
    journal = Journal(Layout(tmp_path), HandClock())
    for _ in range(5):
        journal.done(journal.intent("stage", 1, {}))
    journal.shorten()
    assert len(journal.entries()) == 10
    assert not Layout(tmp_path).older_journal.exists()


def test_who_waited_while_it_was_shortened_writes_into_the_new_one(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    journal = grown(layout)
    with ThreadPoolExecutor() as pool, layout.journal.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = [pool.submit(call) for call in (journal.shorten, lambda: journal.intent("switch", 5, {}))]
        time.sleep(0.2)  # both have opened the old file
        fcntl.flock(held, fcntl.LOCK_UN)
        for each in waiting:
            each.result()
    journal.shorten()
    assert journal.open_intents()[-1]["op"] == "switch"
