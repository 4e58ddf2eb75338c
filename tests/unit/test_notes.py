"""Notes of people on trials: kept beside the record, by several at once, and counted against the verdicts."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from whet.errors import StoreError, UsageError
from whet.record.notes import NOTES_FILE, add_note, agreement, new_note, read_notes, remove_note
from whet.record.read.rows import RowKey

A, B, C = (RowKey(case, "r", "default", 1) for case in "abc")


def test_notes_of_many_at_once_are_all_kept_in_order(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: new_note(f"{number}", None, "me"), range(40)))
        list(threads.map(lambda note: add_note(tmp_path, A, note), made))

    kept = read_notes(tmp_path)[A]
    assert sorted(note.id for note in kept) == sorted(note.id for note in made)
    assert (tmp_path / NOTES_FILE).stat().st_mode & 0o777 == 0o600


def test_a_removed_note_is_gone_and_one_that_is_not_there_is_not(tmp_path: Path) -> None:
    note = new_note("x", "passed", None)
    add_note(tmp_path, A, note)

    assert not remove_note(tmp_path, B, note.id)
    assert remove_note(tmp_path, A, note.id)
    assert not remove_note(tmp_path, A, note.id)
    assert read_notes(tmp_path) == {}


def test_half_a_line_of_a_crash_is_dropped_by_the_next_note(tmp_path: Path) -> None:
    first, second = new_note("1", None, None), new_note("2", None, None)
    add_note(tmp_path, A, first)
    with (tmp_path / NOTES_FILE).open("ab") as file:
        file.write(b'{"key":{"case":"a"')

    before = read_notes(tmp_path)
    add_note(tmp_path, A, second)

    assert before == {A: (first,)}
    assert read_notes(tmp_path) == {A: (first, second)}


def test_notes_that_cannot_be_read_are_said_to_be_and_never_written_through_a_link(tmp_path: Path) -> None:
    path = tmp_path / NOTES_FILE
    path.write_bytes(b"nonsense\n")
    with pytest.raises(StoreError, match="line 1 is not a note"):
        read_notes(tmp_path)

    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        add_note(tmp_path, A, new_note("x", None, None))
    assert not (tmp_path / "elsewhere").exists()

    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="is not a file"):
        read_notes(tmp_path)


@pytest.mark.parametrize(
    "given", [("", None, None), ("  ", None, "me"), ("x" * 20_001, None, None), ("x", None, "y" * 201)]
)
def test_a_note_says_something_and_not_too_much(given: tuple[str, None, str | None]) -> None:
    with pytest.raises(UsageError):
        new_note(*given)


def test_agreement_counts_the_last_verdict_on_each_trial_that_did_not_error() -> None:
    passed, failed, word = (new_note("", "passed", None), new_note("", "failed", None), new_note("hm", None, None))
    notes = {A: (failed, passed, word), B: (passed,), C: (passed,), RowKey("d", "r", "default", 1): (word,)}

    found = agreement(notes, {A: "passed", B: "failed", C: "errored"})

    assert found
    assert (found.passed, found.total) == (1, 2)
    assert 0 < found.low < 0.5 < found.high < 1
    assert agreement({A: (word,)}, {A: "passed"}) is None
    assert agreement({A: (passed,)}, {}) is None
