"""The journal: a line per trial, whole or not at all, found again after any end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from whet.errors import StoreError, UsageError
from whet.model.run import AttemptResult, TrialKey, TrialResult
from whet.model.session import Usage
from whet.record.folder import create_run_folder, find_run_folder, lock, point_latest
from whet.record.journal.index import JournalIndex
from whet.record.journal.journal import Journal
from whet.record.run_file import RunFile, write_run_file


def result(number: int, output: str = "") -> TrialResult:
    key = TrialKey(suite="s", case="c", runner="r", arm="default", number=number)
    return TrialResult(
        key=key, status="passed", score=1.0, duration_s=0.5, started_at="t", artifact_dir="a", final_output=output
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def filled(path: Path, count: int) -> bytes:
    journal = Journal(path)
    for number in range(1, count + 1):
        journal.append(result(number, "x" * number))
    journal.close()
    return path.read_bytes()


def known_lines(path: Path) -> JournalIndex:
    known = JournalIndex(path)
    with known.keep_open():
        assert [line.number for line in known.load()] == list(range(1, known.lines + 1))
    return known


def test_results_come_back_by_key_and_from_a_second_opening(path: Path) -> None:
    filled(path, 3)

    journal = Journal(path)

    assert len(journal) == 3
    assert [key.number for key in journal] == [1, 2, 3]
    entry = journal.entry(result(2).key)
    assert entry is not None
    assert journal.read(entry) == result(2, "xx")
    assert journal.entry(result(9).key) is None
    journal.close()


def test_a_line_cut_anywhere_is_cut_away_and_what_follows_stands_on_its_own_line(path: Path) -> None:
    whole = filled(path, 2)
    first = whole.index(b"\n") + 1

    for end in (*range(first, len(whole), 23), len(whole) - 1):
        path.write_bytes(whole[:end])
        journal = Journal(path)
        assert len(journal) == 1
        journal.append(result(3))
        journal.close()
        again = Journal(path)
        assert [key.number for key in again] == [1, 3]
        again.close()


def test_a_line_that_is_no_result_is_refused_with_its_place(path: Path) -> None:
    first = filled(path, 1)
    path.write_bytes(first + b'{"key": 3}\n')

    with pytest.raises(StoreError, match="line 2 has changed"):
        Journal(path)


def test_a_trial_that_stands_there_twice_counts_once_and_the_first_time(path: Path) -> None:
    journal = Journal(path)
    journal.append(result(1, "first"))
    journal.append(result(1, "second"))

    entry = journal.entry(result(1).key)
    assert entry is not None
    assert len(journal) == 1
    assert journal.read(entry).final_output == "first"
    journal.close()


def test_a_journal_that_cannot_be_opened_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        Journal(tmp_path / "missing" / "journal.jsonl")


def test_the_names_of_run_folders_sort_by_time(tmp_path: Path) -> None:
    made = [create_run_folder(tmp_path) for _ in range(20)]

    assert sorted(made) == made


def test_a_run_is_found_by_name_by_path_and_as_the_latest(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path)
    write_run_file(folder, RunFile())
    point_latest(folder)

    found = [find_run_folder(name, tmp_path) for name in (folder.name, str(folder), "latest")]

    assert found == [folder.resolve()] * 3


def test_a_run_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    held = lock(tmp_path)

    with pytest.raises(UsageError, match="in use by another whet"):
        lock(tmp_path)
    os.close(held)
    os.close(lock(tmp_path))


def test_what_all_attempts_took_is_known_again_from_a_second_opening(path: Path) -> None:
    def spent(cost: float, source: str) -> Usage:
        return Usage(input_tokens=10, cost_usd=cost, cost_source=source)

    first = AttemptResult(number=1, status="failed", duration_s=1, artifact_dir="a/1", usage=spent(0.1, "prices"))
    last = AttemptResult(number=2, status="passed", duration_s=1, artifact_dir="a/2", usage=spent(0.2, "agent"))
    journal = Journal(path)
    journal.append(replace(result(1), usage=last.usage, attempts=(first, last)))
    # A trial is done once: what is there a second time was not paid for a second time.
    journal.append(replace(result(1), usage=last.usage, attempts=(first, last)))
    journal.append(result(2))
    journal.close()

    found = Journal(path)

    assert found.usage == Usage(input_tokens=20, cost_usd=0.3, cost_source="prices")
    found.close()


def test_a_journal_that_knows_its_lines_is_the_same_and_still_refuses_a_change(path: Path) -> None:
    filled(path, 3)
    known = known_lines(path)

    again = Journal(path, known)
    path.write_bytes(path.read_bytes().replace(b'"number":2', b'"number":7'))

    assert [key.number for key in again] == [1, 2, 3]
    with pytest.raises(StoreError, match="line 2 has changed"):
        Journal(path, known)


def test_a_journal_goes_on_after_known_lines_with_what_came_since_and_drops_what_was_cut_off(path: Path) -> None:
    whole = filled(path, 4)
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    known = known_lines(path)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:30])

    again = Journal(path, known)
    again.append(result(4, "xxxx"))

    assert path.read_bytes() == whole
    assert (known.lines, again.lines, again.torn, again.done) == (4, 4, 30, 4)
    assert again.last_link == Journal(path).last_link
    again.close()


def test_known_lines_do_not_hide_another_run_file(path: Path) -> None:
    write_run_file(path.parent, RunFile())
    filled(path, 2)
    known = known_lines(path)
    write_run_file(path.parent, RunFile(trials=3))

    with pytest.raises(StoreError, match=r"run\.json: has changed since line 1"):
        Journal(path, known)


def test_trials_may_have_any_number_and_come_back_by_their_keys(path: Path) -> None:
    journal = Journal(path)
    numbers = (3, 1, 2_000_000_000, 500, 0)

    for number in numbers:
        journal.append(result(number))

    assert {key.number for key in journal} == set(numbers)
    assert len(journal) == len(numbers)
    for key in journal:
        entry = journal.entry(key)
        assert entry is not None
        assert journal.read(entry).key == key
    assert journal.entry(result(2).key) is None
