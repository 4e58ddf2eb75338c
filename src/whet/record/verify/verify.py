"""Verify that the record of a run is as whet wrote it: run.json, the journal, files of trials, results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from whet.errors import RecordChanged, StoreError
from whet.model import codec
from whet.reading.files import open_file
from whet.record.document import RecordFacts
from whet.record.file_hashes import (
    FOLDERS,
    file_problems,
    is_shared,
    list_problems,
    shared_problems,
    trial_folder,
    unnamed_trials,
    unnamed_workspaces,
)
from whet.record.folder import CONTENTS_FILE, JOURNAL_FILE, RESULTS_FILE, RUN_FILE, SOURCES_FILE, file_hash
from whet.record.journal.chain import ChainedLine, JournalLine, JournalReader, Reader, change_error, read_line
from whet.record.journal.index import JournalIndex
from whet.record.results_file import ResultsFile
from whet.record.run_file import FORMAT, RunFile, check_format, read_run_file
from whet.record.verify.recompute import Heads, journal_differences

_FILES = (RUN_FILE, SOURCES_FILE, CONTENTS_FILE, JOURNAL_FILE, RESULTS_FILE)
_MISFIT = "has changed: its content does not fit the hash that it ends in"
_NAMED = 3
L = TypeVar("L", bound=ChainedLine)


class Verification(Struct, frozen=True, kw_only=True):
    """What was found: `problems` if the record was changed, and `notes` on what cannot be known."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]
    lines: int
    link: str | None


class _ResultsTail(Struct):
    """What every results.json has, also one that is not whole."""

    record: Any = None


def verify(run_dir: Path) -> Verification:
    """Check the whole record; changes nothing."""
    record = _Record(run_dir)
    if obstacles := tuple(record.special_problems()):
        return Verification(problems=obstacles, notes=(), lines=0, link=None)
    _check_formats(run_dir)
    problems = [*record.link_problems()]
    try:
        record.read_lines(record.name)
    except RecordChanged as error:
        # Nothing after the first line that does not fit can be checked.
        problems.append(error.message.removeprefix(f"{run_dir}/"))
    else:
        problems += [*record.end_problems(), *record.results_problems(), *record.unnamed_problems()]
    problems += record.sources_problems()
    problems += (problem for line in record.counting_lines() for problem in file_problems(run_dir, line))
    journal = record.journal
    notes = tuple(record.notes())
    return Verification(problems=tuple(problems), notes=notes, lines=journal.lines, link=journal.last_link)


def check_journal(run_dir: Path, keep: Callable[[JournalLine], object] = lambda _: None) -> JournalIndex:
    """Return what the journal says of its trials; *keep* gets every line.

    Raises `RecordChanged` if journal, run.json and results do not fit together.
    """
    record = _Record(run_dir)
    _refuse(run_dir, record.link_problems())
    _check_formats(run_dir)
    record.read_lines(keep)
    _refuse(run_dir, record.end_problems())
    _refuse(run_dir, record.results_problems())
    _refuse(run_dir, list_problems(run_dir, record.shared_hashes))
    return record.journal


def check_each_line(run_dir: Path) -> Iterator[JournalLine]:
    """Yield every line, keeping none, so that a journal may have any length; raises `RecordChanged` as above.

    Results are held to the hash that they end in and to the line that they name. They are not computed again.
    """
    return check_each(run_dir, read_line)


def check_each(run_dir: Path, read: Reader[L]) -> Iterator[L]:
    """Yield what *read* makes of every line; raises `RecordChanged` as above."""
    record = _Record(run_dir)
    _refuse(run_dir, record.link_problems())
    _check_formats(run_dir)
    results = ResultsFile(run_dir)
    if results.exists() and not results.fits_digest():
        raise change_error(results.path, _MISFIT, run_dir)
    due, link = record.named_link, None
    for line in record.read_each(read):
        link = line.link if due and line.number == due[0] else link
        yield line
    if due and due[1] != link:
        raise change_error(results.path, f"names another hash for line {due[0]} of the journal", run_dir)


def check_files(
    run_dir: Path,
    lines: Iterable[JournalLine],
    is_checked: Callable[[str], bool] = lambda _: True,
    *,
    workspaces: bool = True,
) -> None:
    """Refuse a record if a file has changed since its trial ended; only paths that *is_checked* accepts are checked."""
    problems = (
        problem for line in lines for problem in file_problems(run_dir, line, is_checked, workspaces=workspaces)
    )
    _refuse(run_dir, problems)


def _check_formats(run_dir: Path) -> None:
    """Refuse a record that another version of whet wrote in another format."""
    check_format(run_dir / RUN_FILE, FORMAT)
    ResultsFile(run_dir).check_format()


def _refuse(run_dir: Path, problems: Iterator[str]) -> None:
    problem = next(problems, None)
    if problem is not None:
        path, _, what = problem.partition(": ")
        raise change_error(run_dir / path, what, run_dir)


class _Record:
    """The record in a run folder, and what does not fit in it, as sentences that begin with a path."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._results = ResultsFile(run_dir)
        self.journal = JournalIndex(run_dir / JOURNAL_FILE)
        # The hash of the line that results name, as the journal has it.
        self._named_link: str | None = None
        # The folders of trials, and the workspaces, that lines name.
        self._trials: set[str] = set()
        self._workspaces: set[str] = set()

    def read_lines(self, keep: Callable[[JournalLine], object]) -> None:
        """Read the journal, and give each line to *keep*; raises `RecordChanged` at the first that does not fit."""
        last = self.named_link[0] if self.named_link else 0
        with _readable(self._run_dir / JOURNAL_FILE), self.journal.keep_open():
            for line in self.journal.load():
                if line.number == last:
                    self._named_link = line.link
                keep(line)

    def name(self, line: JournalLine) -> None:
        """Note what *line* names."""
        self._trials.add(trial_folder(line.result))
        self._workspaces.update(attempt.workspace_dir for attempt in line.result.attempts if attempt.workspace_dir)

    def counting_lines(self) -> Iterator[JournalLine]:
        """Yield the lines that count, one for each trial; only those that fit."""
        for line in islice(self.read_each(read_line), self.journal.lines):
            entry = self.journal.entry(line.result.key)
            if entry is not None and entry.offset == line.offset:
                yield line

    def read_each(self, read: Reader[L]) -> Iterator[L]:
        """Yield what *read* makes of each line of the journal."""
        path = self._run_dir / JOURNAL_FILE
        if not path.exists():
            return
        with _readable(path), open_file(path) as file:
            yield from JournalReader().read(file, path, read)

    @cached_property
    def _run_file(self) -> RunFile:
        """What run.json says, or nothing of it if it cannot be read: the first line has its hash."""
        try:
            return read_run_file(self._run_dir)
        except StoreError:
            return RunFile()

    @cached_property
    def _tail(self) -> _ResultsTail | None:
        """What results.json says of the record; None if it cannot be read."""
        try:
            return self._results.decode(_ResultsTail)
        except (OSError, codec.WireError):
            return None

    @cached_property
    def _made_of(self) -> RecordFacts | None:
        try:
            return convert(self._tail.record, RecordFacts) if self._tail else None
        except ValidationError:
            return None

    @property
    def named_link(self) -> tuple[int, str | None] | None:
        """The last line that results were made of, and its hash."""
        return (self._made_of.lines, self._made_of.hash) if self._made_of and self._made_of.lines else None

    @property
    def shared_hashes(self) -> dict[str, str]:
        """The hashes of shared workspaces in results, as far as they can be read."""
        made_of = self._made_of
        return {path: due for path, due in made_of.workspaces.items() if is_shared(path)} if made_of else {}

    @property
    def _is_over(self) -> bool:
        """Whether every trial that was asked for is done, so that a resume adds nothing."""
        rounds, trials = self.journal.rounds, self._run_file.trials
        if rounds.stop:
            return True
        return trials is not None and self.journal.done >= trials + rounds.added * len(self._run_file.plan)

    def special_problems(self) -> Iterator[str]:
        """Yield what is in the place of a file: reading a pipe may take for ever, and a device never ends."""
        for name in _FILES:
            if (self._run_dir / name).exists() and not (self._run_dir / name).is_file():
                yield f"{name}: has been replaced by something that is not a file"

    def link_problems(self) -> Iterator[str]:
        """Yield the files that are links now: a link could lead to something else tomorrow."""
        yield from self.special_problems()
        for name in (*_FILES, *FOLDERS):
            if (self._run_dir / name).is_symlink():
                yield f"{name}: has been replaced by a symbolic link"

    def end_problems(self) -> Iterator[str]:
        """Report half a line at the end of a run that is over: a crash leaves one only before the last trial."""
        torn = self.journal.torn
        if torn and self._is_over:
            where = f"line {self.journal.lines + 1}"
            yield f"{JOURNAL_FILE}: {where} is new: {torn} bytes come after the line of the last trial"

    def unnamed_problems(self) -> Iterator[str]:
        """Yield what neither a line nor results name, and what results name with another hash."""
        yield from list_problems(self._run_dir, self.shared_hashes)
        yield from shared_problems(self._run_dir, self.shared_hashes, over=self._is_over)
        if self._is_over:
            yield from self._find_unnamed()

    def _find_unnamed(self) -> list[str]:
        """Return what belongs to no trial; a shared workspace may be there before results name it."""
        problems = unnamed_trials(self._run_dir, self._trials)
        if self._made_of and self._made_of.lines == self.journal.lines:
            problems += unnamed_workspaces(self._run_dir, {*self._workspaces, *self.shared_hashes})
        return problems

    def sources_problems(self) -> Iterator[str]:
        """Report a list of sources, or texts, that are not those that run.json names."""
        for name, due in ((SOURCES_FILE, self._run_file.sources), (CONTENTS_FILE, self._run_file.contents)):
            if due is not None and file_hash(self._run_dir / name) != due:
                yield f"{name}: has changed since the run began"

    def results_problems(self) -> Iterator[str]:
        """Yield what results.json says that is not true."""
        if not self._results.exists():
            return
        if self._tail is None:
            yield f"{RESULTS_FILE}: has changed: it is not a document any more"
        else:
            yield from (f"{RESULTS_FILE}: {what}" for what in self._differences())

    def _differences(self) -> Iterator[str]:
        if not self._results.fits_digest():
            yield _MISFIT
        try:
            results = self._results.decode(Heads)
        except codec.WireError as error:
            yield f"has changed: it is not the document of a run any more ({error})"
            return
        length, link = results.record.lines, results.record.hash
        if length > self.journal.lines:
            yield f"is of {length} lines of the journal, which has {self.journal.lines}"
        elif link != self._named_link:
            yield f"names another hash for line {length} of the journal"
        else:
            yield from self._unlike_journal(results)

    def _unlike_journal(self, results: Heads) -> Iterator[str]:
        """Yield where results.json is not what the journal says, up to the line that results name."""
        journal = self.journal
        if results.record.lines < journal.lines:
            journal = JournalIndex(self._run_dir / JOURNAL_FILE)
        with journal.keep_open():
            for _ in islice(journal.load(), results.record.lines - journal.lines):
                pass
            yield from journal_differences(self._results, results, journal)

    def notes(self) -> Iterator[str]:
        """Yield what cannot be known."""
        lines, torn = self.journal.lines, self.journal.torn
        if torn and not self._is_over:
            yield f"the journal ends in a line that was cut off ({torn} bytes); --resume drops it and does it again"
        problems = [] if self._is_over else self._find_unnamed()
        if problems:
            names = ", ".join(problem.partition(": ")[0] for problem in problems[:_NAMED])
            more = f" and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
            yield f"no line of the journal names {names}{more}: a trial that did not end leaves such a folder"
        if not self._results.exists():
            yield "there is no results.json, so that a missing end of the journal would not show"
        elif self._made_of and self._made_of.lines < lines:
            yield f"results.json is of the first {self._made_of.lines} lines: the run was resumed since"


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
