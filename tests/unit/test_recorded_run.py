"""Reading run folders: run.json as values, and the journal of a run that is under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.errors import StoreError, UsageError
from whet.record.recorded_run import journal_lines, newest_run, read_run, run_folders
from whet.record.run_file import read_run_file


def write_run(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(text)
    return folder


def test_what_an_older_whet_did_not_write_has_a_default(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", '{"suite_path": "/s.py", "selection": {"cases": ["a"], "shard": [1, 2]}}')

    asked = read_run_file(folder)

    assert (asked.suite_path, asked.selection.cases, asked.selection.shard) == ("/s.py", ("a",), (1, 2))
    assert (asked.flags, asked.typed.again, asked.eval, asked.sources) == ({}, (), None, None)


def test_what_a_newer_whet_may_write_is_left_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", '{"trials": 3, "new": {"a": 1}}')

    assert read_run_file(folder).trials == 3


@pytest.mark.parametrize("text", ["", "[]", "{", '{"trials": "many"}', '{"flags": 3}', '{"selection": {"cases": 1}}'])
def test_a_file_that_is_not_the_record_of_a_run_is_one_error_with_its_path(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / "run", text)

    with pytest.raises(StoreError, match=r"run\.json is not the record of a run"):
        read_run_file(folder)


def test_a_run_without_a_suite_says_so_only_when_the_suite_is_needed(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", "{}"))

    assert run.results == {}
    with pytest.raises(StoreError, match="it names no suite"):
        _ = run.suite
    with pytest.raises(UsageError, match="no trial of run has ended"):
        run.refuse_empty()


def test_the_folders_of_runs_are_sorted_and_leave_the_link_to_the_latest_out(tmp_path: Path) -> None:
    second, first = (write_run(tmp_path / name, "{}") for name in ("2", "1"))
    (tmp_path / "latest").symlink_to("2")
    (tmp_path / "other").mkdir()

    assert run_folders(tmp_path) == [first, second]
    assert run_folders(tmp_path / "missing") == []


def test_the_newest_run_of_a_suite_is_found_among_others_and_broken_ones(tmp_path: Path) -> None:
    write_run(tmp_path / "1", '{"suite_path": "/s.py"}')
    wanted = write_run(tmp_path / "2", '{"suite_path": "/s.py"}')
    write_run(tmp_path / "3", '{"suite_path": "/other.py"}')
    write_run(tmp_path / "4", "{")

    assert newest_run(tmp_path, Path("/s.py")).run_dir == wanted
    with pytest.raises(UsageError, match="has not been run"):
        newest_run(tmp_path, Path("/never.py"))


def test_a_journal_that_grows_is_read_by_whole_lines(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(b"one\ntwo\nthr")

    lines, offset = journal_lines(journal, 0)
    journal.write_bytes(b"one\ntwo\nthree\nfour\n")
    more, end = journal_lines(journal, offset, 1)

    assert (lines, more, end) == ([b"one\n", b"two\n"], [b"three\n"], 14)
