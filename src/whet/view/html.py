"""The HTML reporter: the pages of a run in one file that opens from disk, or in a folder if the run is large."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import IO, Self
from urllib.parse import quote

import msgspec

from whet.errors import StoreError
from whet.model import codec
from whet.model.run_events import RunEnded, RunEvent
from whet.record.batches import read_batch
from whet.record.folder import BATCH_FILE
from whet.record.safe_open import RecordFolder
from whet.report.contract import NotWritten, ReporterContext
from whet.report.files.json import replacing
from whet.report.screen import Screen, printing
from whet.view.addresses import Runs
from whet.view.case import case_document
from whet.view.documents import SCHEMA, ShownAttempt, address, trial_parts
from whet.view.pages import INDEX, MARK, file_page, page_with, source_hash, without_markup
from whet.view.trial import events_document, events_in

# A larger run becomes a folder: a browser would take long to open it as one file, and mail would not take it.
MOST_TRIALS, MOST_BYTES = 2000, 20 * 1024 * 1024
# About what a browser loads to show one trial.
_PART_BYTES = 512 * 1024
# Of a longer session, a file holds the beginning; the folder of the run has all of it.
_LARGEST_EVENTS = 32 * 1024 * 1024
_FILE = "whet.html"
_GO_ON = 'location.replace(document.querySelector("a").href + location.hash);'
_objects = msgspec.json.Decoder(list[msgspec.Raw])


class HtmlReporter:
    """Writes the pages when the run ends."""

    def __init__(self, context: ReporterContext) -> None:
        self._context = context
        self._target = context.target or context.cwd / _FILE

    def __call__(self, event: RunEvent) -> None:
        """At the end, write them."""
        if not isinstance(event, RunEnded):
            return
        try:
            path = write_pages(self._target, runs_at(event.info.run_dir), running=False)
        except OSError as error:
            raise NotWritten(f"could not write {self._target}: {error.strerror or error}") from error
        with printing(self._context.stdout):
            screen = Screen(self._context.stdout, self._context.environ)
            self._context.stdout.write(screen.text([f"wrote {screen.path(path, self._context.cwd)}"]))


def runs_at(folder: Path) -> list[Path]:
    """Return the run in *folder*, or the runs of the batch that it holds."""
    return [run for _, run in read_batch(folder)] if (folder / BATCH_FILE).exists() else [folder]


def write_pages(target: Path, folders: Sequence[Path], *, running: bool | None = None) -> Path:
    """Write the pages of the runs in *folders* to *target*, and return what to open.

    If there is too much for one file, *target* only leads to a folder beside it, which has the same name.
    """
    runs = Runs(folders[0].parent.parent.parent.name, lambda: folders, running=running)
    if _fits(runs):
        with suppress(_TooLarge), replacing(target) as file:
            _write_file(file, runs)
            return target
    folder = target.with_suffix("") if target.suffix else target.with_name(f"{target.name}-pages")
    _replace_folder(folder, runs)
    with replacing(target) as file:
        file.write(_leading_to(folder))
    return folder / INDEX


class _TooLarge(Exception):
    """There is too much for one file."""


def _fits(runs: Runs) -> bool:
    return sum(len(runs.view(name).rows.rows) for name in runs.folders()) <= MOST_TRIALS


def _write_file(file: IO[bytes], runs: Runs) -> None:
    size = 0
    for piece in page_with(_documents(runs)):
        size += len(piece)
        if size > MOST_BYTES:
            raise _TooLarge
        file.write(piece)


def _documents(runs: Runs) -> Iterator[tuple[str, bytes]]:
    """Yield every document with its address, trials with the events that belong to them."""
    yield "runs", codec.encode(runs.list())
    for name in runs.folders():
        yield address("runs", name), codec.encode(runs.view(name).document(previous=runs.previous(name)))
        for case in runs.view(name).rows_by_case:
            shown = case_document(runs.view(name), case)
            if shown is not None:
                yield address("runs", name, "cases", case), codec.encode(shown)
        with suppress(StoreError):
            yield address("runs", name, "notes"), codec.encode(runs.notes(name))
        yield from _trials(runs, name)


def _trials(runs: Runs, name: str) -> Iterator[tuple[str, bytes]]:
    view, trials = runs.view(name), runs.trials(name)
    for key in trials.keys:
        events: dict[str, bytes] = {}

        def look(attempt: ShownAttempt, folder: RecordFolder, events: dict[str, bytes] = events) -> None:
            if attempt.events is not None:
                document = _splice(folder) or events_document(view, attempt.dir, 0, 1 << 30)
                events |= {} if document is None else {attempt.events: document}

        trial_document = trials.document(key, look)
        if trial_document is not None:
            yield address("runs", name, "trials", *trial_parts(key)), codec.encode(trial_document)
            yield from events.items()


def _splice(folder: RecordFolder) -> bytes | None:
    """Return the events of an attempt as JSON, put together from the lines of their file; None if they are not that.

    Events say nothing of their places: all of them are there, so the pages count them.
    """
    file = events_in(folder)
    if file is None:
        return None
    with file:
        if os.fstat(file.fileno()).st_size > _LARGEST_EVENTS:
            return None
        lines = file.read(_LARGEST_EVENTS).rstrip(b"\n")
    events = b"[" + lines.replace(b"\n", b",") + b"]"
    try:
        total = len(_objects.decode(events))
    except (msgspec.DecodeError, RecursionError):
        return None
    if not lines.startswith(b"{") or lines.count(b"\n{") + 1 != total:
        # A line that is no object, or more than one.
        return None
    head = codec.encode({"schema": SCHEMA, "from": 0, "total": total}).removesuffix(b"}")
    return head + b',"events":' + events + b"}"


# The folder of a large run: a page, and parts that it loads when somebody looks at them.


def _replace_folder(folder: Path, runs: Runs) -> None:
    """Write the folder beside its place and move it there; only a folder of ours is replaced."""
    if folder.exists() and not _is_ours(folder):
        raise OSError(0, f"{folder} is there already, and holds something else than pages of whet")
    mark = os.urandom(4).hex()
    fresh, old = (folder.with_name(f".whet-{mark}-{what}") for what in ("new", "old"))
    try:
        _write_folder(fresh, runs)
        if folder.exists():
            folder.replace(old)
        fresh.replace(folder)
    finally:
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    try:
        with (folder / INDEX).open("rb") as file:
            return MARK.encode() in file.read(1 << 16)
    except OSError:
        return folder.is_dir() and not any(folder.iterdir())


def _write_folder(folder: Path, runs: Runs) -> None:
    folder.mkdir(mode=0o700, parents=True)
    (folder / "parts").mkdir()
    first: dict[str, bytes] = {}
    parts = _Parts(folder)
    with parts:
        for where, document in _documents(runs):
            # What the first page needs is in it.
            if where.count("/") <= 1:
                first[where] = document
            else:
                parts.add(where, document)
    page = file_page(parts=True)
    with (folder / INDEX).open("wb") as file:
        file.write(page.beginning)
        file.write(b'<script type="application/json" id="whet-documents">{\n"parts":')
        file.write(without_markup(codec.encode(parts.places)))
        for where, document in first.items():
            file.write(b",\n" + without_markup(codec.encode(where) + b":" + document))
        file.write(b"\n}</script>\n")
        file.write(page.end)


class _Parts:
    """Writes documents to scripts that each hold about as much as a browser loads at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._size = 0
        self._number = 0
        self.places: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, where: str, document: bytes) -> None:
        """Add the document at an address; as a text, which a browser parses quicker than a script."""
        # Events follow their trial into its part.
        if self._file is None or (self._size > _PART_BYTES and where.split("/")[2] != "events"):
            self.__exit__()
            self._number, self._size = self._number + 1, 0
            self._file = (self._folder / "parts" / f"{self._number}.js").open("wb")
        text = codec.encode(document.decode("utf-8", "replace"))
        self._size += self._file.write(b"whetPart(" + codec.encode(where) + b"," + text + b");\n")
        self.places[where] = f"parts/{self._number}.js"


def _leading_to(folder: Path) -> bytes:
    """Return a page that leads to a folder beside it, to the same view: a fragment that somebody sent stays."""
    place, script = escape(quote(f"{folder.name}/{INDEX}")), _GO_ON
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; script-src {source_hash(script)}">'
        f'<noscript><meta http-equiv="refresh" content="0; url={place}"></noscript><title>whet</title></head>\n'
        f'<body><p>This run is large: its pages are in the folder <a href="{place}">{escape(folder.name)}</a>.</p>'
        f"<script>{script}</script></body></html>\n"
    ).encode()
