"""Find the document at an address, among the runs of a project; the same addresses everywhere."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from msgspec import Struct

from whet.errors import UsageError, WhetError
from whet.model import codec
from whet.record.folder import JOURNAL_FILE, RESULTS_FILE, RUN_FILE, is_locked
from whet.record.notes import NOTES_FILE, Note, Notes, Verdict, add_note, agreement, new_note, read_notes, remove_note
from whet.record.read.rows import RowKey
from whet.record.safe_open import open_inside
from whet.view.case import case_document
from whet.view.compare import compare_document
from whet.view.documents import Agreement, NotesDocument, RunList, ShownRun, ViewDocument, trial_key
from whet.view.history.document import history_document, of_suite
from whet.view.history.documents import HistoryDocument
from whet.view.improve.page import ImproveRuns
from whet.view.run import RunView
from whet.view.search import search_document
from whet.view.trial import MOST_EVENTS, TrialViews, events_document

# More are not listed: they are too many to read, and each takes a moment.
MOST_RUNS = 1000
_KEPT_VIEWS = 4
_LARGEST = 1 << 53
_Stamp = tuple[object, ...]


class Missing(WhetError):
    """There is no such document."""

    code = "missing"


class NoteBody(Struct, forbid_unknown_fields=True):
    """A note as it is sent."""

    text: str = ""
    verdict: Verdict | None = None
    by: str | None = None


class _ViewEntry(Struct):
    stamp: _Stamp
    view: RunView
    trials: TrialViews


class Views:
    """The runs that were looked at last, so that each page of one does not read all of it again."""

    def __init__(self, *, running: bool | None = None, private: bool = False) -> None:
        self._running = running
        self._private = private
        # One at a time: two pages that ask for the same run must not both read it.
        self.lock = threading.RLock()
        self._kept: OrderedDict[str, _ViewEntry] = OrderedDict()
        self._heads: dict[str, tuple[_Stamp, ShownRun]] = {}

    def head(self, name: str, folder: Path) -> ShownRun:
        """Return a run as a list shows it."""
        stamp = _stamp(folder)
        entry = self._heads.get(name)
        if entry is None or entry[0] != stamp:
            if len(self._heads) > 2 * MOST_RUNS:
                self._heads.clear()
            view_entry = self._kept.get(name)
            view = view_entry.view if view_entry is not None and view_entry.stamp == stamp else self._new(name, folder)
            entry = self._heads[name] = (stamp, view.head)
        return entry[1]

    def find(self, name: str, folder: Path) -> tuple[RunView, TrialViews]:
        """Return a run and its trials, as the record is now."""
        stamp = _stamp(folder)
        entry = self._kept.get(name)
        if entry is None or entry.stamp != stamp:
            view = self._new(name, folder)
            entry = self._kept[name] = _ViewEntry(stamp, view, TrialViews(view))
        self._kept.move_to_end(name)
        while len(self._kept) > _KEPT_VIEWS:
            self._kept.popitem(last=False)
        return entry.view, entry.trials

    def _new(self, name: str, folder: Path) -> RunView:
        return RunView(folder, name=name, running=self._running, private=self._private)


class Runs:
    """The runs that can be looked at; *folders* lists their folders, oldest first, each time it is asked."""

    def __init__(
        self,
        project: str,
        folders: Callable[[], Sequence[Path]],
        *,
        running: bool | None = None,
        improve: ImproveRuns | None = None,
    ) -> None:
        self._project = project
        self._folders = folders
        self._improve = improve or ImproveRuns(project, tuple)
        self._views = Views(running=running)
        self._lock = self._views.lock

    def folders(self) -> dict[str, Path]:
        """Return the folder of each run by its id, oldest first; two folders with one name have two ids."""
        folders: dict[str, Path] = {}
        for folder in list(self._folders())[-MOST_RUNS:]:
            name, number = folder.name, 2
            while name in folders:
                name, number = f"{folder.name}~{number}", number + 1
            folders[name] = folder
        return folders

    def list(self) -> RunList:
        """Return the runs, newest first."""
        with self._lock:
            heads = [self._views.head(name, folder) for name, folder in self.folders().items()]
        return RunList(project=self._project, runs=tuple(reversed(heads)), improve_runs=len(self._improve.folders()))

    def view(self, name: str) -> RunView:
        """Return the run with that id."""
        return self._find(name)[0]

    def trials(self, name: str) -> TrialViews:
        """Return the trials of the run with that id."""
        return self._find(name)[1]

    def _find(self, name: str) -> tuple[RunView, TrialViews]:
        folder = self.folders().get(name) or self._improve.run_folder(name)
        if folder is None:
            raise Missing(f'there is no run "{name}"')
        return self._views.find(name, folder)

    def previous(self, name: str) -> str | None:
        """Return the run of the same suite before that one."""
        folders = self.folders()
        if name not in folders:
            # A run of an improve run is compared with none but its own arms.
            return None
        path = self.view(name).asked.suite_path
        earlier = list(folders)[: list(folders).index(name)]
        return next(
            (run for run in reversed(earlier) if path and self._views.head(run, folders[run]).suite_path == path), None
        )

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the document at an address as JSON; raises `Missing`."""
        parts = [unquote(part, errors="replace") for part in path.split("/")]
        parameters = query or {}
        match parts:
            case ["runs", run, "events", *folder] if folder:
                with self._lock:
                    view = self.view(run)
                count = _number(parameters.get("count"), MOST_EVENTS)
                events = events_document(view, "/".join(folder), _number(parameters.get("from"), 0), count)
                if events is None:
                    raise Missing("there are no such events")
                return events
            case ["runs", run, "search"]:
                with self._lock:
                    view = self.view(run)
                return codec.encode(search_document(view, parameters.get("q", "")))
            case _:
                with self._lock:
                    return codec.encode(self._document(parts, parameters))

    def _document(self, parts: Sequence[str], query: Mapping[str, str]) -> ViewDocument:  # noqa: PLR0911 - a table
        match parts:
            case ["runs"]:
                return self.list()
            case ["runs", run]:
                return self.view(run).document(previous=self.previous(run))
            case ["runs", run, "rows"]:
                return self.view(run).rows_after(_number(query.get("offset"), 0))
            case ["runs", run, "notes"]:
                return self.notes(run)
            case ["runs", run, "trials", case, runner, arm, number]:
                return _found(
                    self.trials(run).document(_key(case, runner, arm, number)),
                    "there is no such trial, or it has not ended",
                )
            case ["runs", run, "cases", case]:
                return _found(
                    case_document(self.view(run), case), "there is no such case, or none of its trials has ended"
                )
            case ["compare", before, after]:
                return compare_document(self.view(before), self.view(after))
            case ["history", suite]:
                return self.history(suite)
            case ["improve", *run]:
                return _found(self._improve.document(run), "there is no such improve run")
        raise Missing("there is no such document")

    def notes(self, run: str) -> NotesDocument:
        """Return the notes on a run."""
        view = self.view(run)
        return notes_document(view, read_notes(view.run_dir))

    def history(self, suite: str) -> HistoryDocument:
        """Return the history of a suite."""
        views = [RunView(folder, name=name) for name, folder in self.folders().items()]
        suite_views = of_suite(views, suite)
        if not suite_views:
            raise Missing(f'there is no run of the suite "{suite}"')
        return history_document(suite, suite_views, self._improve.accepted())

    def file(self, path: str) -> BinaryIO:
        """Open the file at an address; raises `Missing`."""
        parts = [unquote(part, errors="replace") for part in path.split("/")]
        match parts:
            case ["runs", run, "files", *inner] if inner:
                with self._lock:
                    root = self.view(run).run_dir
                file = open_inside(root, "/".join(inner))
                if file is not None:
                    return file
        raise Missing("there is no such file")

    def add(self, path: str, body: bytes) -> Note:
        """Keep a note on the trial at an address; raises `Missing`, or `UsageError` if it is none."""
        with self._lock:
            match [unquote(part) for part in path.split("/")]:
                case ["runs", run, "trials", case, runner, arm, number, "notes"]:
                    key, view = _key(case, runner, arm, number), self.view(run)
                    if key not in view.rows.rows:
                        raise Missing("there is no such trial, or it has not ended")
                    note = read_note(body)
                    add_note(view.run_dir, key, note)
                    return note
        raise Missing("there is no such document")

    def remove(self, path: str) -> None:
        """Remove the note at an address; raises `Missing`."""
        with self._lock:
            match [unquote(part) for part in path.split("/")]:
                case ["runs", run, "trials", case, runner, arm, number, "notes", note]:
                    if remove_note(self.view(run).run_dir, _key(case, runner, arm, number), note):
                        return
        raise Missing("there is no such note")


def _found(document: ViewDocument | None, problem: str) -> ViewDocument:
    """Return a document that is there; raises `Missing`."""
    if document is None:
        raise Missing(problem)
    return document


def read_note(body: bytes) -> Note:
    """Return the note in the body of a request."""
    try:
        note_body = codec.decode(body, NoteBody)
    except codec.WireError as error:
        raise UsageError(f"this is not a note: {error.message}") from error
    return new_note(note_body.text, note_body.verdict, note_body.by)


def notes_document(view: RunView, notes: Notes) -> NotesDocument:
    """Return the *notes* on the trials of a run, and how often people agree with whet."""
    rate = agreement(notes, {key: row.status for key, row in view.rows.rows.items()})
    return NotesDocument(
        notes={trial_key(key): trial_notes for key, trial_notes in notes.items()},
        agreement=Agreement(judged=0, agreed=0)
        if rate is None
        else Agreement(judged=rate.total, agreed=rate.passed, value=rate.value, low=rate.low, high=rate.high),
    )


def _key(case: str, runner: str, arm: str, number: str) -> RowKey:
    return RowKey(case, runner, arm, _number(number, 0))


def _number(text: str | None, default: int) -> int:
    """Return a number in an address; a query that is none asks for nothing special."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > len(str(_LARGEST)):
        return default
    return min(int(text), _LARGEST)


def _stamp(folder: Path) -> _Stamp:
    """Return what changes whenever the record does."""
    parts: list[object] = [is_locked(folder)]
    for name in (RUN_FILE, JOURNAL_FILE, RESULTS_FILE, NOTES_FILE):
        try:
            status = (folder / name).lstat()
            parts.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            parts.append(None)
    return tuple(parts)
