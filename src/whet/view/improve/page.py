"""Make the documents of the pages about improve runs, and report.html of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from whet.errors import StoreError
from whet.model import codec
from whet.record.folder import is_locked
from whet.record.improve.document import FILE, REPORT_HTML, ImproveDocument, RoundRecord
from whet.record.improve.folder import ImproveFolder
from whet.report.files.json import replacing
from whet.report.improve.steps import sealed_text
from whet.report.improve.words import (
    accepted_version,
    decision_text,
    effort_text,
    headline,
    like_these_text,
    moved_text,
    parent_text,
    spent_rows,
)
from whet.view.documents import ViewDocument, address
from whet.view.improve.documents import ImproveList, ImprovePage, RoundWords, ShownImprove
from whet.view.pages import page_with

# More are not listed: they are too many to read, and each takes a moment.
_MOST_RUNS = 1000
_Stamp = tuple[object, ...]


class ImproveRuns:
    """The improve runs that can be looked at; *folders* lists their folders, newest first, each time it is asked."""

    def __init__(self, project: str, folders: Callable[[], Sequence[ImproveFolder]]) -> None:
        self._project = project
        self._folders = folders
        self._shown: dict[str, tuple[_Stamp, ShownImprove]] = {}

    def folders(self) -> dict[str, ImproveFolder]:
        """Return the folder of each run by its id, newest first."""
        return {folder.id: folder for folder in list(self._folders())[:_MOST_RUNS]}

    def list(self) -> ImproveList:
        """Return the runs, newest first."""
        return ImproveList(project=self._project, runs=tuple(map(self._head, self.folders().values())))

    def _head(self, folder: ImproveFolder) -> ShownImprove:
        stamp = _stamp(folder)
        kept = self._shown.get(folder.id)
        if kept is None or kept[0] != stamp:
            kept = self._shown[folder.id] = (stamp, _read_head(folder))
        return kept[1]

    def accepted(self) -> dict[str, str]:
        """Return by which improve run each version was accepted, by the digest of the version."""
        heads = (self._head(folder) for folder in reversed(self.folders().values()))
        return {head.accepted.digest: head.id for head in heads if head.accepted is not None and head.accepted.digest}

    def document(self, names: Sequence[str]) -> ViewDocument | None:
        """Return the list, or the page of the run that is named; None if there is no such run."""
        return self._page("/".join(names)) if names else self.list()

    def _page(self, name: str) -> ImprovePage | None:
        folder = self.folders().get(name)
        if folder is None:
            return None
        return improve_page(folder.read(), runs=inner_runs(folder), running=is_locked(folder.path))

    def run_folder(self, name: str) -> Path | None:
        """Return the folder of a run of a phase; None if there is none."""
        improve_run, colon, _ = name.partition(":")
        folder = self.folders().get(improve_run) if colon else None
        if folder is None:
            return None
        return next((folder.path / place for place, run in inner_runs(folder).items() if run == name), None)


def inner_runs(folder: ImproveFolder) -> dict[str, str]:
    """Return the ids of the runs of all phases, by where they are in the folder of the improve run."""
    places = (run.relative_to(folder.path) for run in folder.run_folders())
    return {place.as_posix(): f"{folder.id}:{':'.join(place.parts[1:])}" for place in places}


def improve_page(
    document: ImproveDocument, *, runs: Mapping[str, str] | None = None, running: bool = False
) -> ImprovePage:
    """Return the document of the page of a run."""
    sealed = None
    if document.sealed is not None:
        sealed = sealed_text(document.sealed)
    return ImprovePage(
        shown=_head_of(document, running=running),
        record=document,
        rounds=tuple(_words_of(round_record, document) for round_record in document.rounds),
        spent=tuple(spent_rows(document)),
        sealed=sealed,
        runs=dict(runs or {}),
    )


def _read_head(folder: ImproveFolder) -> ShownImprove:
    try:
        return _head_of(folder.read(), running=is_locked(folder.path))
    except StoreError as error:
        return ShownImprove(id=folder.id, problem=error.message)


def _head_of(document: ImproveDocument, *, running: bool) -> ShownImprove:
    return ShownImprove(
        id=document.id,
        skill=document.skill_name,
        suite=document.suite_name,
        runner=document.runner,
        outcome=document.outcome,
        phase=document.phase,
        running=running and document.outcome is None,
        headline=headline(document, is_running=running),
        began_at=document.began_at,
        ended_at=document.ended_at,
        candidates=sum(len(round_record.candidates) for round_record in document.rounds),
        accepted=accepted_version(document),
        cost_usd=document.cost_usd,
    )


def _words_of(round_record: RoundRecord, document: ImproveDocument) -> RoundWords:
    words = RoundWords(number=round_record.number, parent=parent_text(round_record, document))
    confirm = round_record.confirm
    if confirm is not None:
        words.decision = decision_text(round_record.chosen or "", confirm, document.options.goal)
        words.like_these = like_these_text(confirm)
        words.moved = moved_text(confirm)
        words.effort = effort_text(confirm)
    return words


def _stamp(folder: ImproveFolder) -> _Stamp:
    """Return what changes whenever the record does."""
    try:
        status = (folder.path / FILE).lstat()
    except OSError:
        return (None,)
    return is_locked(folder.path), status.st_mtime_ns, status.st_size, status.st_ino


def write_report(document: ImproveDocument, folder: Path) -> Path:
    """Write report.html into *folder*: the page of the run in one file, which opens from disk."""
    target = folder / REPORT_HTML
    page = improve_page(document)
    with replacing(target) as file:
        file.writelines(page_with(_documents(page)))
    return target


def _documents(page: ImprovePage) -> Iterator[tuple[str, bytes]]:
    yield "improve", codec.encode(ImproveList(project="", runs=(page.shown,)))
    yield address("improve", page.shown.id), codec.encode(page)
