"""Verify that the record of a run is as whet wrote it: run.json, the journal, files of trials, results."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from msgspec import Struct

from whet.errors import RecordChanged, StoreError
from whet.model import wire
from whet.model.arm import Arm
from whet.model.run import Execution, ExecutionKey, Plan, RunInfo, Runner, SnapshotOutcome, TrialResult
from whet.model.suite import TRIGGERED, Case, Check, Limits, Suite, WorkspaceSpec
from whet.reading.text import shown
from whet.record.chain import (
    LONGEST_LINE,
    Chain,
    Line,
    Linked,
    Reader,
    Reading,
    changed,
    counted,
    is_done,
    read_line,
    refuse_other_run,
)
from whet.record.folder import JOURNAL_FILE, RESULTS_FILE, RUN_FILE, SKILLS_FILE, SOURCES_FILE, SPENT_FILE, file_hash
from whet.record.journal import Entry, TrialLines
from whet.record.results import DIGEST_CLOSING, DIGEST_OPENING, JournalResults, write_document
from whet.record.results_document import CaseHead, ExecutionHead, RecordFacts, RunHead
from whet.record.run_file import RunFile, is_chained, read_run_file
from whet.record.sealing import (
    FOLDERS,
    file_problems,
    is_shared,
    list_problems,
    shared_problems,
    unnamed_trials,
    unnamed_workspaces,
)
from whet.version import __version__

# The one check that a lift leaves out; no other check matters to results.
_ABOUT_SKILL = (Check(grader="answer", label=TRIGGERED, compared=False),)
_DIGITS = 64
_OLDER = "whet/results/1"
_SHOWN = 80
_MISFIT = "has changed: its content does not fit the hash that it ends in"
_NAMED = 3
L = TypeVar("L", bound=Linked)


class Verified(Struct, frozen=True, kw_only=True):
    """What was found: `problems` if the record was changed, and `notes` on what cannot be known."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]
    lines: int
    link: str | None


class HeadOfCase(CaseHead):
    """A case, with what the journal does not say of its executions."""

    executions: tuple[ExecutionHead, ...]


class Heads(RunHead):
    """What results.json says and the journal does not."""

    cases: tuple[HeadOfCase, ...]
    record: RecordFacts


class _Sealed(Struct):
    """What every results.json with hashes has, also one that is not whole."""

    record: RecordFacts | None = None


def verify(run_dir: Path) -> Verified:
    """Check the whole record; changes nothing."""
    record = _Record(run_dir)
    problems = [*record.link_problems()]
    try:
        record.read_lines()
    except RecordChanged as error:
        # Nothing after the first line that does not fit can be checked.
        problems.append(error.message.removeprefix(f"{run_dir}/"))
    else:
        problems += [*record.end_problems(), *record.results_problems(), *record.unnamed_problems()]
    problems += record.sources_problems()
    problems += (problem for line in counted(record.lines) for problem in file_problems(run_dir, line))
    chain = record.reading.chain
    return Verified(problems=tuple(problems), notes=tuple(record.notes()), lines=chain.lines, link=chain.link)


def check_journal(run_dir: Path) -> list[Line]:
    """Return the lines that count; raises `RecordChanged` if journal, run.json and results do not fit together."""
    record = _Record(run_dir)
    _refuse(run_dir, record.link_problems())
    record.read_lines()
    _refuse(run_dir, record.end_problems())
    _refuse(run_dir, record.results_problems())
    _refuse(run_dir, list_problems(run_dir, record.shared_hashes))
    return counted(record.lines)


def check_each_line(run_dir: Path) -> Iterator[Line]:
    """Yield every line, keeping none, so that a journal may have any length; raises `RecordChanged` as above.

    Results are held to the hash that they end in and to the line that they name. They are not computed again.
    """
    return check_each(run_dir, read_line)


def check_each(run_dir: Path, read: Reader[L]) -> Iterator[L]:
    """Yield what *read* makes of every line; raises `RecordChanged` as above."""
    record = _Record(run_dir)
    _refuse(run_dir, record.link_problems())
    path = run_dir / RESULTS_FILE
    if path.exists() and record.has_digest and not _file_fits_digest(path):
        raise changed(path, _MISFIT, run_dir)
    named, found = record.named_link, None
    for line in record.each(read):
        found = line.link if named and line.number == named[0] else found
        yield line
    if named and named[1] != found:
        raise changed(path, f"names another hash for line {named[0]} of the journal", run_dir)


def check_files(
    run_dir: Path, lines: Iterable[Line], wanted: Callable[[str], bool] = lambda _: True, *, workspaces: bool = True
) -> None:
    """Refuse a record if a file has changed since its trial ended; only *wanted* paths are checked."""
    found = (problem for line in lines for problem in file_problems(run_dir, line, wanted, workspaces=workspaces))
    _refuse(run_dir, found)


def _refuse(run_dir: Path, problems: Iterator[str]) -> None:
    problem = next(problems, None)
    if problem is not None:
        path, _, what = problem.partition(": ")
        raise changed(run_dir / path, what, run_dir)


class _Record:
    """The record in a run folder, and what does not fit in it, as sentences that begin with a path."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._chained = is_chained(run_dir / RUN_FILE)
        self.reading = Reading(Chain(required=self._chained))
        self.lines: list[Line] = []

    def read_lines(self) -> None:
        """Read the journal; raises `RecordChanged` at the first line that does not fit."""
        for line in self.each(read_line):
            self.lines.append(line)

    def each(self, read: Reader[L]) -> Iterator[L]:
        """Yield what *read* makes of each line of the journal."""
        path = self._run_dir / JOURNAL_FILE
        if not path.exists():
            return
        try:
            with path.open("rb") as file:
                for line in self.reading.read(_bounded(file, path), path, read):
                    refuse_other_run(line, self._run_dir / RUN_FILE)
                    yield line
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error

    @cached_property
    def _asked(self) -> RunFile:
        """What run.json says, or nothing of it if it cannot be read: the first line has its hash."""
        try:
            return read_run_file(self._run_dir)
        except StoreError:
            return RunFile()

    @cached_property
    def _results(self) -> _Sealed | None:
        """What results.json says of the record; None if it cannot be read."""
        try:
            return wire.decode_file(self._run_dir / RESULTS_FILE, _Sealed)
        except (OSError, wire.WireError):
            return None

    @property
    def _made_of(self) -> RecordFacts | None:
        return self._results.record if self._results else None

    @property
    def has_digest(self) -> bool:
        """Whether results have to end in a hash."""
        return self._chained or self._made_of is not None

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
        if any(line.look is not None and line.look.stop for line in self.lines):
            return True
        added = sum(line.grown or 0 for line in self.lines) * len(self._asked.plan)
        asked = self._asked.trials
        return asked is not None and sum(is_done(line.result) for line in counted(self.lines)) >= asked + added

    def link_problems(self) -> Iterator[str]:
        """Yield the files that are links now: a link could lead to something else tomorrow."""
        for name in (RUN_FILE, SOURCES_FILE, SKILLS_FILE, JOURNAL_FILE, RESULTS_FILE, *FOLDERS):
            if (self._run_dir / name).is_symlink():
                yield f"{name}: has been replaced by a symbolic link"

    def end_problems(self) -> Iterator[str]:
        """Report half a line at the end of a run that is over: a crash leaves one only before the last trial."""
        if self.reading.torn and self._is_over:
            where = f"line {self.reading.chain.lines + 1}"
            yield f"{JOURNAL_FILE}: {where} is new: {self.reading.torn} bytes come after the line of the last trial"

    def unnamed_problems(self) -> Iterator[str]:
        """Yield what neither a line nor results name, and what results name with another hash."""
        yield from list_problems(self._run_dir, self.shared_hashes)
        yield from shared_problems(self._run_dir, self.shared_hashes, over=self._is_over)
        if self._is_over and self._chained:
            yield from self._unnamed()

    def _unnamed(self) -> list[str]:
        """Return what belongs to no trial; a shared workspace may be there before results name it."""
        found = unnamed_trials(self._run_dir, self.lines)
        if self._made_of and self._made_of.lines == len(self.lines):
            found += unnamed_workspaces(self._run_dir, self.lines, self.shared_hashes)
        return found

    def sources_problems(self) -> Iterator[str]:
        """Report a list of sources, or skills, that are not those that run.json names."""
        for name, due in ((SOURCES_FILE, self._asked.sources), (SKILLS_FILE, self._asked.skills)):
            if due is not None and file_hash(self._run_dir / name) != due:
                yield f"{name}: has changed since the run began"

    def results_problems(self) -> Iterator[str]:
        """Yield what results.json says that is not true."""
        path = self._run_dir / RESULTS_FILE
        if not path.exists():
            return
        data = path.read_bytes()
        try:
            found = wire.decode(data, dict[str, Any])
        except wire.WireError:
            yield f"{RESULTS_FILE}: has changed: it is not a document any more"
            return
        if "record" in found or self._chained:
            yield from (f"{RESULTS_FILE}: {what}" for what in self._differences(data, found))

    def _differences(self, data: bytes, found: dict[str, Any]) -> Iterator[str]:
        if not _fits_digest(data):
            yield _MISFIT
        if found.get("schema") == _OLDER:
            # An older whet computed figures in another way, so that only the hash says whether it is whole.
            return
        try:
            results = wire.decode(data, Heads)
        except wire.WireError as error:
            yield f"has changed: it is not the document of a run any more ({error})"
            return
        length, link = results.record.lines, results.record.hash
        if length > len(self.lines):
            yield f"is of {length} lines of the journal, which has {len(self.lines)}"
        elif link != (self.lines[length - 1].link if length else None):
            yield f"names another hash for line {length} of the journal"
        else:
            yield from _unlike(found, _recomputed(self._run_dir, results, self.lines[:length]))

    def notes(self) -> Iterator[str]:
        """Yield what cannot be known."""
        bare, torn = sum(line.link is None for line in self.lines), self.reading.torn
        if bare:
            which = "no line" if bare == len(self.lines) else f"none of the first {bare} lines"
            yield f"{which} has a hash, because an older whet wrote them: a change of them would not show"
        if torn and not self._is_over:
            yield f"the journal ends in a line that was cut off ({torn} bytes); --resume drops it and does it again"
        unnamed = [] if self._is_over else self._unnamed()
        if unnamed:
            named = ", ".join(problem.partition(": ")[0] for problem in unnamed[:_NAMED])
            more = f" and {len(unnamed) - _NAMED} more" if len(unnamed) > _NAMED else ""
            yield f"no line of the journal names {named}{more}: a trial that did not end leaves such a folder"
        if not (self._run_dir / RESULTS_FILE).exists():
            yield "there is no results.json, so that a missing end of the journal would not show"
        elif self._results and self._made_of is None:
            yield "results.json is of an older whet, and was not compared"
        elif self._made_of and self._made_of.lines < len(self.lines):
            yield f"results.json is of the first {self._made_of.lines} lines: the run was resumed since"


def _bounded(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the lines of a journal; refuses one that no whet writes."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise changed(path, "has a line that is too long to be read")
        yield line


def _fits_digest(data: bytes) -> bool:
    """Return whether a document fits the hash that it ends in."""
    body = data[: -(len(DIGEST_OPENING) + _DIGITS + len(DIGEST_CLOSING))]
    return data == body + DIGEST_OPENING + hashlib.sha256(body).hexdigest().encode() + DIGEST_CLOSING


def _file_fits_digest(path: Path) -> bool:
    """Return the same for a file, piece by piece."""
    size = path.stat().st_size - (len(DIGEST_OPENING) + _DIGITS + len(DIGEST_CLOSING))
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(max(0, min(1 << 20, size - file.tell()))):
            digest.update(piece)
        return file.read() == DIGEST_OPENING + digest.hexdigest().encode() + DIGEST_CLOSING


def _unlike(found: Any, due: Any, where: str = "") -> Iterator[str]:
    """Yield where two documents differ in a field that both have: the field, its value, and what the journal says."""
    if isinstance(found, dict) and isinstance(due, dict):
        for name in found:
            if name in due and name != "digest":
                yield from _unlike(found[name], due[name], f"{where}.{name}" if where else name)
    elif isinstance(found, list) and isinstance(due, list) and len(found) == len(due):
        for index, (one, other) in enumerate(zip(found, due, strict=True)):
            yield from _unlike(one, other, f"{where}[{index}]")
    elif found != due:
        yield f"{where} is {shown(found, _SHOWN)}, and the journal says {shown(due, _SHOWN)}"


def _recomputed(run_dir: Path, results: Heads, lines: list[Line]) -> dict[str, Any]:
    """Compute results.json again from the first *lines* of the journal."""
    plan, snapshots = plan_of(results)
    held = JournalResults(
        plan,
        _ReadLines(lines, file_hash(run_dir / RUN_FILE)),
        results.duration_s,
        snapshots,
        # These are not in the journal; they are compared with the disk.
        workspaces=results.record.workspaces,
        # Nor is this: only the settings say what money there was.
        money_over=results.stopped == "money",
    )
    info = RunInfo(
        run_id=results.run_id,
        run_dir=run_dir,
        suite=results.suite,
        suite_path=Path(results.suite_path),
        started_at=results.started_at,
        sandbox=results.sandbox,
        version=results.whet_version,
    )
    file = io.BytesIO()
    write_document(file, info, held, interrupted=results.interrupted, ended_at=results.ended_at)
    document = wire.decode(file.getvalue(), dict[str, Any])
    if results.whet_version != __version__:
        # Another version may have compared in another way.
        del document["lift"], document["comparisons"]
    if (run_dir / SPENT_FILE).exists():
        # The usage of interrupted attempts is not in the journal.
        del document["total_usage"], document["interrupted_usage"]
    return document


def plan_of(results: Heads) -> tuple[Plan, dict[ExecutionKey, SnapshotOutcome]]:
    """Return the plan, as far as results depend on it, and the outcomes of snapshots."""
    found = [(case, execution) for case in results.cases for execution in case.executions]
    beside = {case.id for case, execution in found if execution.arm != results.baseline}
    executions = tuple(
        Execution(
            case=Case(id=case.id, prompt="", checks=_ABOUT_SKILL, tags=case.tags, weight=case.weight),
            runner=Runner(id=execution.runner, agent=execution.agent, model=execution.model),
            arm=execution.arm,
            limits=Limits(),
            workspace=WorkspaceSpec(),
            trials=execution.planned_trials,
            baseline=execution.arm == results.baseline and case.id in beside,
        )
        for case, execution in found
    )
    cases = {execution.case.id: execution.case for execution in executions}
    plan = Plan(
        suite=Suite(name=results.suite, source=Path(results.suite_path), cases=tuple(cases.values()), digest=""),
        executions=executions,
        schedule=results.schedule,
        max_parallel=results.max_parallel,
        retries=0,
        check_timeout_s=0,
        arms=tuple(Arm(name=arm.name, commit=arm.commit, recorded=arm.differs_by) for arm in results.arms),
        baseline=results.baseline,
        seed=results.seed,
        grown_from=results.grown_from,
        until=results.until,
        voided=results.voided,
    )
    snapshots = {
        execution.key: written.snapshot
        for execution, (_, written) in zip(executions, found, strict=True)
        if written.snapshot is not None
    }
    return plan, snapshots


class _ReadLines(TrialLines):
    """The lines of a journal that was read as a whole."""

    def __init__(self, lines: list[Line], run: str | None) -> None:
        super().__init__(run)
        self._results = {line.offset: line.result for line in lines}
        for line in lines:
            self.note(line.result, line.offset, line.raw, line.link, line.look)

    def read(self, entry: Entry) -> TrialResult:
        """Return the whole result."""
        return self._results[entry.offset]
