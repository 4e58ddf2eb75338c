"""The document of a trial, the events of its sessions and its files: all that it left, from a record of anybody."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote
from weakref import finalize

from whet.errors import StoreError
from whet.model import codec
from whet.model.grade import AS_EXPECTED
from whet.model.run import AttemptResult, TrialResult
from whet.model.session import SessionSummary
from whet.reading.text import count
from whet.record.contents.keep import read_contents
from whet.record.document import WrittenTrial, to_document
from whet.record.file_hashes import file_problems, trial_folder
from whet.record.folder import JOURNAL_FILE
from whet.record.journal.chain import JournalLine, read_line
from whet.record.notes import Notes, read_notes
from whet.record.read.rows import RowKey, TrialRow
from whet.record.safe_open import RecordFolder, folder_inside, is_inside, open_inside
from whet.view._leads import commands_of, sources_of
from whet.view.documents import (
    SCHEMA,
    ShownAttempt,
    ShownChanges,
    ShownFile,
    ShownPrompt,
    Siblings,
    TrialDocument,
    address,
    trial_key,
)
from whet.view.live import begun_at, last_attempt, live_folder
from whet.view.run import RunView

_MOST_DIFF = 1 << 20
_MOST_STDERR = 20_000
_MOST_FILES = 1000
# An agent's own state may have very many files; then they are not compared with the record.
_MOST_LISTED = 20_000
_LARGEST_DOCUMENT = 64 << 20
_MOST_PROBLEMS = 3
# The most events, and about the most bytes of them, in one answer.
MOST_EVENTS, _MOST_EVENT_BYTES = 5000, 8 << 20
_LONGEST_EVENT, _LONGEST_TEXT = 1 << 20, 100_000
# Above this, counting lines would take longer than anybody waits.
_LARGEST_COUNTED = 1 << 30
T = TypeVar("T")
_Listed = list[tuple[str, os.stat_result]]
Look = Callable[[ShownAttempt, RecordFolder], None]
EVENT_FILES = ("events.jsonl", "transcript.jsonl")


class TrialViews:
    """The trials of a run; makes the document of each."""

    def __init__(self, view: RunView) -> None:
        self._view = view

    @cached_property
    def _order(self) -> dict[RowKey, int]:
        """The trials in declared order, each with its place."""
        places = {execution: place for place, execution in enumerate(self._view.executions)}
        ordered_keys = sorted(
            self._view.rows.rows,
            key=lambda key: (places.get((key.case, key.runner, key.arm), len(places)), key.case, key.number),
        )
        return {key: place for place, key in enumerate(ordered_keys)}

    @cached_property
    def keys(self) -> tuple[RowKey, ...]:
        """The trials in declared order."""
        return tuple(self._order)

    @cached_property
    def _near_failures(self) -> list[tuple[RowKey | None, RowKey | None]]:
        """For each trial the nearest one before and after it that did not go as expected."""
        failures = [self._view.rows.rows[key].status not in AS_EXPECTED for key in self.keys]
        before: list[RowKey | None] = []
        last: RowKey | None = None
        for key, wrong in zip(self.keys, failures, strict=True):
            before.append(last)
            last = key if wrong else last
        after: list[RowKey | None] = []
        last = None
        for key, wrong in zip(reversed(self.keys), reversed(failures), strict=True):
            after.append(last)
            last = key if wrong else last
        return list(zip(before, reversed(after), strict=True))

    @cached_property
    def _names(self) -> dict[RowKey, str]:
        return {key: trial_key(key) for key in self.keys}

    @cached_property
    def _of_case(self) -> dict[str, tuple[str, ...]]:
        names: dict[str, list[str]] = {}
        for key in self.keys:
            names.setdefault(key.case, []).append(self._names[key])
        return {case: tuple(keys) for case, keys in names.items()}

    @cached_property
    def _tags(self) -> dict[str, tuple[str, ...]]:
        return {case.id: case.tags for case in self._view.results.cases} if self._view.results else {}

    @cached_property
    def _notes(self) -> Notes:
        try:
            return read_notes(self._view.run_dir)
        except StoreError:
            # The document of the run says so.
            return {}

    def document(self, key: RowKey, look: Look | None = None) -> TrialDocument | None:
        """Return the document of a trial; None if it has not begun. *look* gets each attempt with its folder."""
        row = self._view.rows.rows.get(key)
        if row is None:
            return self._live_document(key)
        document = TrialDocument(
            run=self._view.id,
            suite=self._view.asked.suite,
            key=key,
            baseline=key.arm == self._view.baseline,
            case=ShownPrompt(id=key.case, tags=self._tags.get(key.case, ()), prompt=None),
            siblings=self._siblings(key),
            others=self._of_case[key.case],
            notes=self._notes.get(key, ()),
        )
        line = self._line(row)
        if line is None:
            document.problem = f"line {row.number} of the journal cannot be read any more"
            return document
        return self._filled(document, line, look)

    def _live_document(self, key: RowKey) -> TrialDocument | None:
        """Return the document of a trial under way, which its events fill; None if none is."""
        view = self._view
        folder = live_folder(key)
        number = last_attempt(view.run_dir / folder)
        if view.status != "running" or number is None or (key.case, key.runner, key.arm) not in view.executions:
            return None
        place, contents = f"{folder}/{number}", read_contents(view.run_dir)
        attempt = ShownAttempt(number=number, dir=place, events=events_address(view.id, place))
        prompt = contents.texts.get(contents.prompts.get(key.case, ""))
        return TrialDocument(
            run=view.id,
            suite=view.asked.suite,
            key=key,
            since=begun_at(view.run_dir / folder),
            case=ShownPrompt(id=key.case, tags=(), prompt=prompt),
            others=self._of_case.get(key.case, ()),
            attempts=(attempt,),
        )

    def _filled(self, document: TrialDocument, line: JournalLine, look: Look | None) -> TrialDocument:
        document.trial = to_document(line.result, WrittenTrial)
        document.sources = sources_of(document.trial, self._view.asked.suite_path, self._view.suite_text)
        if not self._view.private:
            document.commands = tuple(commands_of(document.key, document.trial, self._view.asked, self._view.run_dir))
        with folder_inside(self._view.run_dir, trial_folder(line.result)) as folder:
            if folder is None:
                document.problem = f"its folder {trial_folder(line.result)} is gone, or is not in the record"
                return document
            files = list(islice(folder.files(), _MOST_LISTED))
            document.attempts = tuple(self._attempts(line.result, folder, files, look))
        sessions = [attempt.session for attempt in document.attempts if attempt.session is not None]
        if sessions:
            document.case.prompt = sessions[-1].prompt
            document.case.turns = tuple(turn.prompt for turn in sessions[-1].turns)
        document.problem = self._problem(line, files)
        return document

    def _line(self, row: TrialRow) -> JournalLine | None:
        try:
            return read_line(os.pread(self._journal, row.size, row.offset), row.number, row.offset)
        except (OSError, codec.WireError):
            return None

    @cached_property
    def _journal(self) -> int:
        """The journal, open as long as we are: the documents of all trials read from it."""
        file = open_inside(self._view.run_dir, JOURNAL_FILE)
        if file is None:
            raise FileNotFoundError
        with file:
            descriptor = os.dup(file.fileno())
        finalize(self, os.close, descriptor)
        return descriptor

    def _problem(self, line: JournalLine, files: _Listed) -> str | None:
        """Return which files are not as the trial left them."""
        if len(files) == _MOST_LISTED:
            return None
        try:
            problems = file_problems(self._view.run_dir, line, workspaces=False, files=files)
            problems_shown = list(islice(problems, _MOST_PROBLEMS + 1))
        except OSError as error:
            return f"its files cannot be read: {error.strerror}"
        more = len(problems_shown) - _MOST_PROBLEMS
        sentences = [*problems_shown[:_MOST_PROBLEMS], *([f"and {count(more, 'more file')}"] if more > 0 else [])]
        return "; ".join(sentences) or None

    def _siblings(self, key: RowKey) -> Siblings:
        place = self._order[key]
        before = self.keys[place - 1] if place else None
        after = self.keys[place + 1] if place + 1 < len(self.keys) else None
        names = [
            None if place_of_sibling is None else self._names[place_of_sibling]
            for place_of_sibling in (before, after, *self._near_failures[place])
        ]
        return Siblings(before=names[0], after=names[1], before_failure=names[2], after_failure=names[3])

    def _attempts(
        self, result: TrialResult, folder: RecordFolder, files: _Listed, look: Look | None
    ) -> Iterator[ShownAttempt]:
        alone = AttemptResult(
            number=1, status=result.status, duration_s=result.duration_s, artifact_dir=result.artifact_dir
        )
        for attempt in result.attempts or (alone,):
            trial, _, name = attempt.artifact_dir.rpartition("/")
            # All attempts at a trial lie beside each other; another place is not one that whet wrote.
            if trial == trial_folder(result) and is_inside(attempt.artifact_dir):
                attempt_files = [(path, status) for path, status in files if path.startswith(f"{name}/")]
                shown_attempt = self._attempt(attempt, result, attempt_files)
                with folder.inner(name) as inner:
                    if inner is not None:
                        _read_files(shown_attempt, inner, {path.removeprefix(f"{name}/") for path, _ in attempt_files})
                        if look is not None:
                            look(shown_attempt, inner)
                is_deciding = attempt.artifact_dir == result.artifact_dir
                last = result.final_output if is_deciding else ""
                shown_attempt.final_output = shown_attempt.session.final_output if shown_attempt.session else last
                yield shown_attempt

    def _attempt(self, attempt: AttemptResult, result: TrialResult, attempt_files: _Listed) -> ShownAttempt:
        place, number = attempt.artifact_dir, attempt.artifact_dir.rpartition("/")[2]
        shown_attempt = ShownAttempt(number=attempt.number, dir=place)
        files = list(_shown_files(trial_folder(result), attempt_files))
        files += islice(self._kept(attempt), _MOST_FILES + 1)
        shown_attempt.files, shown_attempt.files_cut = tuple(files[:_MOST_FILES]), len(files) > _MOST_FILES
        names = {path.removeprefix(f"{number}/") for path, _ in attempt_files}
        if any(name in names for name in EVENT_FILES):
            shown_attempt.events = events_address(self._view.id, place)
        return shown_attempt

    def _kept(self, attempt: AttemptResult) -> Iterator[ShownFile]:
        """Yield the files of a kept workspace."""
        if attempt.workspace_dir is None:
            return
        with folder_inside(self._view.run_dir, attempt.workspace_dir) as folder:
            yield from _shown_files(attempt.workspace_dir, folder.files() if folder else ())


def _shown_files(folder: str, files: Iterable[tuple[str, os.stat_result]]) -> Iterator[ShownFile]:
    """Yield the regular files of a folder; nothing else is ever opened."""
    for path, status in files:
        if stat.S_ISREG(status.st_mode):
            yield ShownFile(path=f"{folder}/{path}", size=status.st_size)


def _read_files(attempt: ShownAttempt, folder: RecordFolder, names: set[str]) -> None:
    """Fill in what the files of an attempt say."""
    if "session.json" in names:
        attempt.session = _decode(folder, "session.json", SessionSummary)
        attempt.problem = None if attempt.session else f"{attempt.dir}/session.json cannot be read"
    if "changes.json" in names:
        attempt.changes = _decode(folder, "changes.json", ShownChanges) or ShownChanges()
    if "diff.patch" in names:
        attempt.diff, attempt.diff_cut = _text(folder, "diff.patch", _MOST_DIFF)
    if "stderr.log" in names:
        attempt.stderr, _ = _text(folder, "stderr.log", _MOST_STDERR, end=True)


def _decode(folder: RecordFolder, name: str, kind: type[T]) -> T | None:
    content = folder.read(name, _LARGEST_DOCUMENT)
    if content is None or content[1]:
        return None
    try:
        return codec.decode(content[0], kind)
    except codec.WireError:
        return None


def _text(folder: RecordFolder, name: str, most: int, *, end: bool = False) -> tuple[str, bool]:
    content = folder.read(name, most, end=end)
    return (content[0].decode("utf-8", "replace"), content[1]) if content else ("", False)


def events_address(run: str, folder: str) -> str:
    """Return the address of the events of an attempt."""
    return address("runs", run, "events", *folder.split("/"))


def file_address(run: str, path: str) -> str:
    """Return the address of a file of a run."""
    return f"runs/{quote(run, safe='')}/files/{quote(path)}"


def open_events(view: RunView, folder: str) -> BinaryIO | None:
    """Open the events of an attempt: normalized ones, or those that its agent printed itself."""
    with folder_inside(view.run_dir, folder) as inner_folder:
        return events_in(inner_folder) if inner_folder else None


def events_in(folder: RecordFolder) -> BinaryIO | None:
    """Open the events in the folder of an attempt."""
    files = (folder.open(name) for name in EVENT_FILES)
    return next((file for file in files if file is not None), None)


def events_document(view: RunView, folder: str, first: int, most: int) -> bytes | None:
    """Return the events of an attempt from place *first* on, as JSON; None if it has none."""
    file = open_events(view, folder)
    if file is None:
        return None
    with file:
        pieces: list[bytes] = []
        size = 0
        place = -1
        for line in _lines(file):
            if not line.endswith(b"\n") and view.status == "running":
                # The rest of it is being written.
                break
            place += 1
            if place < first:
                continue
            if len(pieces) == min(most, MOST_EVENTS) or size > _MOST_EVENT_BYTES:
                break
            pieces.append(_event(line, place))
            size += len(pieces[-1])
        else:
            place += 1
        is_end = len(pieces) < min(most, MOST_EVENTS) and size <= _MOST_EVENT_BYTES
        total = place if is_end else _count(file)
    head = codec.encode({"schema": SCHEMA, "from": first, "total": total}).removesuffix(b"}")
    return head + b',"events":[' + b",".join(pieces) + b"]}"


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines that hold something, each cut where it is too long to be an event that anybody reads."""
    while line := file.readline(_LONGEST_EVENT):
        if len(line) == _LONGEST_EVENT and not line.endswith(b"\n"):
            while (remainder := file.readline(_LONGEST_EVENT)) and not remainder.endswith(b"\n"):
                pass
        if line.strip():
            yield line


def _count(file: BinaryIO) -> int | None:
    """Return how many events a file has; None if it is too large to be counted."""
    if os.fstat(file.fileno()).st_size > _LARGEST_COUNTED:
        return None
    file.seek(0)
    return sum(1 for _ in _lines(file))


def _event(line: bytes, place: int) -> bytes:
    """Return an event with its place; what is none is shown as it is."""
    try:
        event = codec.decode(line, dict[str, Any])
    except (codec.WireError, RecursionError):
        text = line[:_LONGEST_TEXT].decode("utf-8", "replace")
        event = {"type": "unreadable", "text": text, "cut": len(line) > _LONGEST_TEXT}
    return codec.encode({**event, "i": place})
