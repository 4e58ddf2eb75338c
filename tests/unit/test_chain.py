"""The chain of a journal: whatever is changed in it shows, and a crash is not taken for a change."""

from __future__ import annotations

import os
import random
from io import BytesIO
from pathlib import Path

import pytest
from msgspec.structs import replace

from whet.errors import RecordChanged, RecordLost
from whet.model import codec
from whet.model.grade import Failure
from whet.model.run import TrialKey, TrialResult
from whet.model.session import Usage
from whet.record.journal.chain import Chain, JournalLine, JournalReader, read_line
from whet.record.journal.journal import Journal
from whet.record.read.rows import read_rows
from whet.record.read.run import read_run
from whet.record.run_file import RunFile, write_run_file

LINES = 4


def result(number: int, output: str = "") -> TrialResult:
    key = TrialKey(suite="s", case="c", runner="r", arm="default", number=number)
    return TrialResult(
        key=key, status="failed", score=1.0, duration_s=0.5, started_at="t", artifact_dir="a/1", final_output=output
    )


def stopped(number: int, code: str = "disk") -> TrialResult:
    """A trial that a full disk ended, or the money of its run."""
    failure = Failure(phase="workspace", code=code, cause="infrastructure", message="no space left")
    return replace(result(number), status="errored", failure=failure, usage=Usage(cost_usd=0.1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_run_file(tmp_path, RunFile())
    return tmp_path / "journal.jsonl"


def filled(path: Path, count: int = LINES) -> bytes:
    journal = Journal(path)
    for number in range(1, count + 1):
        journal.append(result(number, "é" * number), {"a/1/transcript.txt": "0" * 64})
    journal.close()
    return path.read_bytes()


def split(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


def read(reading: JournalReader, data: bytes, path: Path) -> list[JournalLine]:
    return list(reading.read(BytesIO(data), path, read_line))


def test_every_single_bit_of_every_line_counts(path: Path) -> None:
    whole = filled(path)

    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            reading = JournalReader()
            with pytest.raises(RecordChanged, match=r"line \d has changed"):
                read(reading, flipped, path)


def test_a_line_that_is_gone_doubled_moved_or_made_up_shows_with_its_number(path: Path) -> None:
    one, two, three, four = split(filled(path))

    for number, lines in (
        (2, [one, three, four]),
        (1, [two, three, four]),
        (3, [one, two, two, three, four]),
        (2, [one, three, two, four]),
        (4, [one, two, three, codec.encode(result(9)) + b"\n"]),
        (3, [one, two, three[:40] + b"\n", four]),
    ):
        with pytest.raises(RecordChanged, match=f"line {number} has changed"):
            read(JournalReader(), b"".join(lines), path)


def test_a_line_cut_anywhere_by_a_crash_is_torn_and_not_changed(path: Path) -> None:
    *before, last = split(filled(path))

    for end in range(1, len(last)):
        reading = JournalReader()
        found = read(reading, b"".join(before) + last[:end], path)
        assert len(found) == LINES - 1
        assert reading.torn == end


def test_hashes_that_were_all_taken_away_are_missed(path: Path) -> None:
    filled(path)
    path.write_bytes(b"".join(codec.encode(result(number)) + b"\n" for number in range(1, 3)))

    with pytest.raises(RecordChanged, match="line 1 has changed: it does not end in a hash"):
        Journal(path)


def test_what_was_asked_cannot_be_changed_later(path: Path) -> None:
    filled(path)
    run_file = path.with_name("run.json")
    run_file.write_bytes(run_file.read_bytes().replace(b"whet/run/3", b"whet/run/4"))

    with pytest.raises(RecordChanged, match=r"run\.json: has changed since line 1"):
        Journal(path)


@pytest.mark.parametrize("forged", [True, False])
def test_a_change_behind_the_back_of_a_run_is_noticed_at_the_next_line(path: Path, forged: bool) -> None:
    journal = Journal(path)
    journal.append(result(1))
    journal.append(result(2))
    found = path.read_bytes()
    changed = found.replace(b'"status":"failed"', b'"status":"passed"')
    if forged:
        chain = Chain()
        for number, line in enumerate(split(changed)):
            body = codec.decode(line, TrialResult)
            chain.accept(chain.forge(body, {}, codec.decode(line, dict)["run"] if number == 0 else None))
        changed = changed[: -len(chain.link or "") - 3] + (chain.link or "").encode() + b'"}\n'
    with path.open("r+b") as file:
        file.write(changed)

    with pytest.raises(RecordLost, match="was changed by something else"):
        journal.append(result(3))


def test_a_change_that_keeps_size_times_and_last_line_is_noticed_before_results_are_written(path: Path) -> None:
    journal = Journal(path)
    for number in range(1, 4):
        journal.append(result(number))
    entry = journal.entry(result(1).key)
    assert entry is not None
    seen = journal._last_stamp
    with path.open("r+b") as file:
        file.write(path.read_bytes().replace(b'"score":1.0', b'"score":9.0', 1))
    # As if the clock of the file system were too coarse to show it.
    journal._stamp = lambda: seen  # type: ignore[method-assign]

    journal.check()
    with pytest.raises(RecordLost, match="line 1 has changed"):
        journal.check(whole=True)
    with pytest.raises(RecordLost, match="line 1 has changed"):
        journal.read(entry)


def test_a_file_that_was_only_touched_is_not_called_changed(path: Path) -> None:
    journal = Journal(path)
    journal.append(result(1))
    os.utime(path, (1, 1))
    path.chmod(0o640)

    journal.append(result(2))

    assert len(journal) == 2
    journal.close()


def test_a_trial_that_a_disk_stopped_is_done_again_and_what_it_took_still_counts(path: Path) -> None:
    journal = Journal(path)
    journal.append(stopped(1))
    before = journal.is_done(result(1).key)
    journal.append(replace(result(1), usage=Usage(cost_usd=0.2)))
    journal.append(result(1, "a third time"))
    journal.close()

    again = Journal(path)
    entry = again.entry(result(1).key)

    assert not before
    assert again.is_done(result(1).key)
    assert entry is not None
    assert again.read(entry).failure is None
    assert again.usage.cost_usd == pytest.approx(0.3)
    again.close()


def test_a_run_stays_longer_if_a_disk_stopped_the_first_trial_that_was_added(path: Path) -> None:
    """Else the look before it would be forgotten, and the trials that are missing too."""
    journal = Journal(path)
    journal.append(result(1))
    journal.grow(2)
    for added in (stopped(2), result(2), result(3)):
        journal.append(added)
    journal.close()

    run = read_run(path.parent)

    assert [line.result.failure for line in run.lines] == [None] * 3
    assert (run.rounds.added, run.rounds.grown_from, run.rounds.last) == (2, (1,), 3)


@pytest.mark.parametrize("code", ["disk", "max-cost"])
def test_pages_and_comparisons_take_the_same_line_of_a_trial_that_was_stopped(path: Path, code: str) -> None:
    journal = Journal(path)
    for each in (stopped(1, code), replace(result(1), status="passed"), result(2)):
        journal.append(each)
    journal.close()

    compared = {line.result.key.number: line.result.status for line in read_run(path.parent).lines}
    shown = {key.number: row.status for key, row in read_rows(path.parent).rows.items()}

    assert compared == shown == {1: "passed", 2: "failed"}


def test_random_bytes_for_a_journal_are_refused_and_raise_nothing_else(path: Path) -> None:
    chance = random.Random(7)

    for _ in range(200):
        path.write_bytes(chance.randbytes(chance.randrange(1, 400)) + b"\n")
        with pytest.raises(RecordChanged):
            Journal(path)
