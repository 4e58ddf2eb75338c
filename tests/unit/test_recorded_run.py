"""Reading run folders: run.json as values, and the journal of a run that is under way."""

from __future__ import annotations

import sys
import tracemalloc
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

from whet.errors import RecordChanged, StoreError, UsageError
from whet.model.grade import Failure
from whet.model.run import TrialKey, TrialResult
from whet.record.document import DIGEST_CLOSING, DIGEST_OPENING
from whet.record.journal.journal import Journal
from whet.record.read.run import journal_lines, newest_run, read_resumable, read_run, run_folders
from whet.record.run_file import FORMAT, read_run_file

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from large_run import make_run


def write_run(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(text.replace("{", f'{{"schema": "{FORMAT}", ', 1).replace(", }", "}"))
    return folder


def test_what_was_not_asked_has_a_default(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", '{"suite_path": "/s.py", "selection": {"cases": ["a"], "shard": [1, 2]}}')

    asked = read_run_file(folder)

    assert (asked.suite_path, asked.selection.cases, asked.selection.shard) == ("/s.py", ("a",), (1, 2))
    assert (asked.flags, asked.typed.again, asked.eval, asked.sources) == ({}, (), None, None)


def test_a_field_that_nobody_asks_for_is_left_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", '{"trials": 3, "new": {"a": 1}}')

    assert read_run_file(folder).trials == 3


@pytest.mark.parametrize("text", ["", "[]", "{", '{"trials": "many"}', '{"flags": 3}', '{"selection": {"cases": 1}}'])
def test_a_file_that_is_not_the_record_of_a_run_is_one_error_with_its_path(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / "run", text)

    with pytest.raises(StoreError, match=r"run\.json is not the record of a run"):
        read_run_file(folder)


@pytest.mark.parametrize(
    "text", ['{"trials": 3}', '{"schema": null}', '{"schema": "whet/run/4", "trials": "as many as"}']
)
def test_a_record_of_another_format_is_refused_before_anything_else_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)

    with pytest.raises(StoreError, match=rf"run\.json is of .*, and this whet reads {FORMAT}"):
        read_run_file(tmp_path)


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


@pytest.mark.slow
def test_a_run_is_read_for_a_resume_without_holding_its_lines_or_its_results(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", trials=2000, events=1)
    size = (folder / "journal.jsonl").stat().st_size
    read_resumable(folder)

    tracemalloc.start()
    try:
        found = read_resumable(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert (found.journal.done, found.journal.lines) == (2000, 2000)
    # Held, they would be five times as much.
    assert peak < size


def test_results_that_were_written_anew_are_compared_with_the_journal_and_named_by_the_field(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", trials=40, events=1)
    path = folder / "results.json"
    data = path.read_bytes().replace(b'"steps":99', b'"steps":98', 1)
    body = data[: data.rindex(DIGEST_OPENING)]
    path.write_bytes(body + DIGEST_OPENING + sha256(body).hexdigest().encode() + DIGEST_CLOSING)

    with pytest.raises(RecordChanged, match=r"trials\[0\].steps is 98, and the journal says 99"):
        read_resumable(folder)


def test_a_run_that_grew_before_its_disk_was_full_knows_its_rounds(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", '{"trials": 1, "plan": ["c x1"]}')
    key = TrialKey(suite="s", case="c", runner="r", arm="default", number=1)
    done = TrialResult(key=key, status="passed", score=1.0, duration_s=0.5, started_at="t", artifact_dir="a/1")
    full = Failure(phase="workspace", code="disk", cause="infrastructure", message="no space left")
    second = replace(done, key=replace(key, number=2))
    journal = Journal(folder / "journal.jsonl")
    journal.append(done)
    journal.grow(1)
    journal.append(replace(second, status="errored", failure=full))
    journal.append(second)
    journal.close()

    resumed, looked = read_resumable(folder).journal.rounds, read_run(folder)

    assert resumed == looked.rounds
    assert (resumed.last, resumed.added, resumed.grown_from, looked.missing) == (2, 1, (1,), 0)
