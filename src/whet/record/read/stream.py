"""Read the trials of a run one at a time and in declared order, so that it may have any number of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from itertools import count
from pathlib import Path

from msgspec import Struct

from whet.errors import StoreError
from whet.grade.evidence import events_path, read_events
from whet.model import codec
from whet.model.events import Event
from whet.model.run import AttemptResult, TrialResult
from whet.model.session import SessionSummary
from whet.reading.files import open_file
from whet.record.document import ResultsPart
from whet.record.folder import JOURNAL_FILE
from whet.record.journal.chain import JournalLine, change_error, is_done, read_line
from whet.record.read.run import read_session
from whet.record.results_file import ResultsFile
from whet.record.run_file import RunFile, read_run_file
from whet.record.verify.verify import check_each_line, check_files

_READ = frozenset(("session.json", "events.jsonl", "transcript.jsonl"))


class RecordedAttempt(Struct, frozen=True, kw_only=True):
    """One attempt and its session, if there was one; events are read when you use them."""

    attempt: AttemptResult
    folder: Path
    session: SessionSummary | None

    def events(self) -> Iterator[Event]:
        """Yield what was seen in the session; raises `StoreError` at what is not an event."""
        path = events_path(self.folder)
        if path is None:
            return
        try:
            yield from read_events(path)
        except codec.WireError as error:
            # A program that prints something else than events leaves such a transcript, and its trial has failed.
            if path.name == "events.jsonl":
                raise StoreError(f"{path} cannot be read: {error}") from error


class RecordedTrial(Struct, frozen=True, kw_only=True):
    """How a trial ended, and what is known of its case and runner."""

    run: str
    result: TrialResult
    tags: tuple[str, ...]
    weight: float | None
    agent: str | None
    model: str | None
    run_dir: Path

    def attempts(self) -> Iterator[RecordedAttempt]:
        """Yield every attempt, in order."""
        for attempt in self.result.attempts:
            folder = self.run_dir / attempt.artifact_dir
            yield RecordedAttempt(attempt=attempt, folder=folder, session=read_session(folder))


class _ExecutionFacts(Struct):
    runner: str
    arm: str
    agent: str | None = None
    model: str | None = None


class _CaseFacts(Struct):
    id: str
    tags: tuple[str, ...] = ()
    weight: float | None = None
    executions: tuple[_ExecutionFacts, ...] = ()


class _CaseHeads(ResultsPart):
    """What results.json says and the journal does not; trials are passed over."""

    cases: tuple[_CaseFacts, ...] = ()


class _LinePosition(Struct, frozen=True):
    """Where a line is; its hash, because it is read later than it was checked."""

    order: tuple[int, int]
    number: int
    offset: int
    size: int
    digest: bytes
    done: bool


class TrialStream:
    """The ended trials of a run folder; raises `RecordChanged` if its record does not fit together."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.asked: RunFile = read_run_file(run_dir)
        self.added = 0
        self._places = self._find()

    def __len__(self) -> int:
        return len(self._places)

    @property
    def missing(self) -> int:
        """How many of its trials have not ended."""
        due = (self.asked.trials or 0) + self.added * len(self.asked.plan)
        return max(0, due - sum(place.done for place in self._places))

    def __iter__(self) -> Iterator[RecordedTrial]:
        """Yield each trial; raises `RecordChanged` if a file that is read has changed since its trial ended."""
        if not self._places:
            return
        path = self.run_dir / JOURNAL_FILE
        with open_file(path) as file:
            for place in self._places:
                file.seek(place.offset)
                raw = file.read(place.size)
                if hashlib.sha256(raw).digest() != place.digest:
                    raise change_error(path, f"line {place.number} changes while it is read", self.run_dir)
                yield self._trial(read_line(raw, place.number, place.offset))

    def _find(self) -> list[_LinePosition]:
        """Check the journal, and return the line that counts for each trial, in declared order."""
        executions = {line.rpartition(" x")[0]: number for number, line in enumerate(self.asked.plan)}
        next_numbers = count(len(executions))
        places: dict[str, _LinePosition] = {}
        for line in check_each_line(self.run_dir):
            self.added += line.grown or 0
            key = line.result.key
            name = str(key)
            if name in places and places[name].done:
                continue
            execution = f"{key.case}@{key.runner}/{key.arm}"
            if execution not in executions:
                executions[execution] = next(next_numbers)
            places[name] = _LinePosition(
                order=(executions[execution], key.number),
                number=line.number,
                offset=line.offset,
                size=len(line.raw),
                digest=hashlib.sha256(line.raw).digest(),
                done=is_done(line.result),
            )
        return sorted(places.values(), key=lambda place: place.order)

    def _trial(self, line: JournalLine) -> RecordedTrial:
        check_files(self.run_dir, (line,), lambda path: path.rpartition("/")[2] in _READ, workspaces=False)
        key = line.result.key
        case, execution = self._heads.get((key.case, key.runner, key.arm), (None, None))
        return RecordedTrial(
            run=self.run_dir.name,
            result=line.result,
            tags=case.tags if case else (),
            weight=case.weight if case else self.asked.weights.get(key.case),
            agent=execution.agent if execution else None,
            model=execution.model if execution else None,
            run_dir=self.run_dir,
        )

    @cached_property
    def _heads(self) -> dict[tuple[str, str, str], tuple[_CaseFacts, _ExecutionFacts]]:
        """What is known of each execution; nothing if the run was killed, because it has no results."""
        heads = ResultsFile(self.run_dir).read(_CaseHeads)
        if heads is None:
            return {}
        return {
            (case.id, execution.runner, execution.arm): (case, execution)
            for case in heads.cases
            for execution in case.executions
        }
