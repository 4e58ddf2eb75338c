"""Verify that the record of a run is as whet wrote it: run.json, the journal, files of trials, results."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.errors import RecordChanged, StoreError
from whet.model import wire
from whet.model.arm import RecordedArm
from whet.model.run import Execution, Plan, RunInfo, Runner, SnapshotOutcome, TrialResult
from whet.model.suite import TRIGGERED, Case, Check, Limits, Suite, WorkspaceSpec
from whet.reading.text import shown
from whet.record.chain import Chain, Line, Reading, changed, counted, is_done, refuse_other_run
from whet.record.folder import JOURNAL_FILE, RESULTS_FILE, RUN_FILE, SOURCES_FILE, SPENT_FILE, file_hash
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
from whet.record.snapshots import SnapshotKey, snapshot_key

# The one check that a lift leaves out; no other check matters to results.
_ABOUT_SKILL = (Check(grader="answer", label=TRIGGERED, compared=False),)
_DIGITS = 64
_OLDER = "whet/results/1"
_SHOWN = 80
_NAMED = 3


class Verified(Struct, frozen=True, kw_only=True):
    """What was found: `problems` if the record was changed, and `notes` on what cannot be known."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]
    lines: int
    link: str | None


class _Case(CaseHead):
    executions: tuple[ExecutionHead, ...]


class _Run(RunHead):
    """What results.json says and the journal does not."""

    cases: tuple[_Case, ...]
    record: RecordFacts


class _Schema(Struct):
    schema: str | None = None


class _Sealed(Struct):
    """What every results.json with hashes has, also one that is not whole."""

    record: RecordFacts | None = None


def verify(run_dir: Path) -> Verified:
    """Check the whole record; changes nothing."""
    reading = Reading(Chain(required=is_chained(run_dir / RUN_FILE)))
    lines: list[Line] = []
    problems = list(_link_problems(run_dir))
    try:
        lines += _lines(run_dir, reading)
    except RecordChanged as error:
        # Nothing after the first line that does not fit can be checked.
        problems.append(_within(error, run_dir))
    else:
        problems += _end_problems(run_dir, lines, reading)
        problems += _results_problems(run_dir, lines)
        problems += _unnamed_problems(run_dir, lines)
    problems += _sources_problems(run_dir)
    problems += (problem for line in counted(lines) for problem in file_problems(run_dir, line))
    return Verified(
        problems=tuple(problems),
        notes=tuple(_notes(run_dir, lines, reading)),
        lines=reading.chain.lines,
        link=reading.chain.link,
    )


def check_journal(run_dir: Path) -> list[Line]:
    """Return the lines that count; raises `RecordChanged` if journal, run.json and results do not fit together."""
    reading = Reading(Chain(required=is_chained(run_dir / RUN_FILE)))
    _refuse(run_dir, _link_problems(run_dir))
    lines = list(_lines(run_dir, reading))
    _refuse(run_dir, _end_problems(run_dir, lines, reading))
    _refuse(run_dir, _results_problems(run_dir, lines))
    _refuse(run_dir, list_problems(run_dir, _shared_hashes(run_dir)))
    return counted(lines)


def check_files(run_dir: Path, lines: Iterable[Line]) -> None:
    """Refuse a record if a file has changed since its trial ended."""
    _refuse(run_dir, (problem for line in lines for problem in file_problems(run_dir, line)))


def _refuse(run_dir: Path, problems: Iterator[str]) -> None:
    problem = next(problems, None)
    if problem is not None:
        path, _, what = problem.partition(": ")
        raise changed(run_dir / path, what, run_dir)


def _within(error: StoreError, run_dir: Path) -> str:
    return error.message.removeprefix(f"{run_dir}/")


def _lines(run_dir: Path, reading: Reading) -> Iterator[Line]:
    path = run_dir / JOURNAL_FILE
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            for line in reading.lines(file, path):
                refuse_other_run(line, run_dir / RUN_FILE)
                yield line
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def _link_problems(run_dir: Path) -> Iterator[str]:
    """Yield the files that are links now: a link could lead to something else tomorrow."""
    for name in (RUN_FILE, SOURCES_FILE, JOURNAL_FILE, RESULTS_FILE, *FOLDERS):
        if (run_dir / name).is_symlink():
            yield f"{name}: has been replaced by a symbolic link"


def _is_over(run_dir: Path, lines: list[Line]) -> bool:
    """Return whether every trial that was asked for is done, so that a resume adds nothing."""
    run = _asked(run_dir)
    added = sum(line.grown or 0 for line in lines) * len(run.plan)
    asked = None if run.trials is None else run.trials + added
    return asked is not None and sum(is_done(line.result) for line in counted(lines)) >= asked


def _asked(run_dir: Path) -> RunFile:
    """Return what run.json says, or nothing of it if it cannot be read: the first line has its hash."""
    try:
        return read_run_file(run_dir)
    except StoreError:
        return RunFile()


def _end_problems(run_dir: Path, lines: list[Line], reading: Reading) -> Iterator[str]:
    """Report half a line at the end of a run that is over: a crash leaves one only before the last trial."""
    if reading.torn and _is_over(run_dir, lines):
        where = f"line {reading.chain.lines + 1}"
        yield f"{JOURNAL_FILE}: {where} is new: {reading.torn} bytes come after the line of the last trial"


def _unnamed_problems(run_dir: Path, lines: list[Line]) -> Iterator[str]:
    """Yield what is in the folder and neither a line nor results name, or what results name with another hash."""
    over = _is_over(run_dir, lines)
    hashes = _shared_hashes(run_dir)
    yield from list_problems(run_dir, hashes)
    yield from shared_problems(run_dir, hashes, over=over)
    if over and is_chained(run_dir / RUN_FILE):
        yield from _unnamed(run_dir, lines)


def _unnamed(run_dir: Path, lines: list[Line]) -> list[str]:
    """Return what belongs to no trial; a shared workspace may be there before results name it."""
    record = _record(run_dir)
    current = record is not None and record.lines == len(lines)
    workspaces = unnamed_workspaces(run_dir, lines, _shared_hashes(run_dir)) if current else []
    return unnamed_trials(run_dir, lines) + workspaces


def _shared_hashes(run_dir: Path) -> dict[str, str]:
    """Return the hashes of shared workspaces in results, as far as they can be read."""
    record = _record(run_dir)
    return {path: due for path, due in record.workspaces.items() if is_shared(path)} if record else {}


def _record(run_dir: Path) -> RecordFacts | None:
    results = _results(run_dir)
    return results.record if results else None


def _results(run_dir: Path) -> _Sealed | None:
    """Return what results.json says of the record; None if it cannot be read."""
    try:
        return wire.decode((run_dir / RESULTS_FILE).read_bytes(), _Sealed)
    except (OSError, wire.WireError):
        return None


def _notes(run_dir: Path, lines: list[Line], reading: Reading) -> Iterator[str]:
    bare = sum(line.link is None for line in lines)
    if bare:
        which = "no line" if bare == len(lines) else f"none of the first {bare} lines"
        yield f"{which} has a hash, because an older whet wrote them: a change of them would not show"
    over = _is_over(run_dir, lines)
    if reading.torn and not over:
        yield f"the journal ends in a line that was cut off ({reading.torn} bytes); --resume drops it and does it again"
    unnamed = [] if over else _unnamed(run_dir, lines)
    if unnamed:
        named = ", ".join(problem.partition(": ")[0] for problem in unnamed[:_NAMED])
        more = f" and {len(unnamed) - _NAMED} more" if len(unnamed) > _NAMED else ""
        yield f"no line of the journal names {named}{more}: a trial that did not end leaves such a folder"
    results = _results(run_dir)
    if not (run_dir / RESULTS_FILE).exists():
        yield "there is no results.json, so that a missing end of the journal would not show"
    elif results and results.record is None:
        yield "results.json is of an older whet, and was not compared"
    elif results and results.record and results.record.lines < len(lines):
        yield f"results.json is of the first {results.record.lines} lines: the run was resumed since"


def _results_problems(run_dir: Path, lines: list[Line]) -> Iterator[str]:
    """Yield what results.json says that is not true."""
    path = run_dir / RESULTS_FILE
    if not path.exists():
        return
    data = path.read_bytes()
    try:
        is_sealed = "record" in wire.decode(data, dict[str, Any])
    except wire.WireError:
        yield f"{RESULTS_FILE}: has changed: it is not a document any more"
        return
    if is_sealed or is_chained(run_dir / RUN_FILE):
        yield from (f"{RESULTS_FILE}: {what}" for what in _differences(run_dir, data, lines))


def _differences(run_dir: Path, data: bytes, lines: list[Line]) -> Iterator[str]:
    if not _fits_digest(data):
        yield "has changed: its content does not fit the hash that it ends in"
    if wire.decode(data, _Schema).schema == _OLDER:
        # An older whet computed figures in another way, so that only the hash says whether it is whole.
        return
    try:
        results = wire.decode(data, _Run)
    except wire.WireError as error:
        yield f"has changed: it is not the document of a run any more ({error})"
        return
    length, link = results.record.lines, results.record.hash
    if length > len(lines):
        yield f"is of {length} lines of the journal, which has {len(lines)}"
    elif link != (lines[length - 1].link if length else None):
        yield f"names another hash for line {length} of the journal"
    else:
        due = _recomputed(run_dir, results, lines[:length])
        yield from _unlike(wire.decode(data, dict[str, Any]), due)


def _sources_problems(run_dir: Path) -> Iterator[str]:
    """Report a list of sources that is not the one that run.json names."""
    named = _asked(run_dir).sources
    if named is not None and file_hash(run_dir / SOURCES_FILE) != named:
        yield f"{SOURCES_FILE}: has changed since the run began"


def _fits_digest(data: bytes) -> bool:
    """Return whether a document fits the hash that it ends in."""
    body, tail = data[: -(len(DIGEST_OPENING) + _DIGITS + len(DIGEST_CLOSING))], DIGEST_CLOSING
    return data == body + DIGEST_OPENING + hashlib.sha256(body).hexdigest().encode() + tail


def _unlike(found: Any, due: Any, where: str = "") -> Iterator[str]:
    """Yield where two documents differ in a field that both have: the field, its value, and what the journal says."""
    if isinstance(found, dict) and isinstance(due, dict):
        for name in found.keys() & due.keys() - {"digest"}:
            yield from _unlike(found[name], due[name], f"{where}.{name}" if where else name)
    elif isinstance(found, list) and isinstance(due, list) and len(found) == len(due):
        for index, (one, other) in enumerate(zip(found, due, strict=True)):
            yield from _unlike(one, other, f"{where}[{index}]")
    elif found != due:
        yield f"{where} is {shown(found, _SHOWN)}, and the journal says {shown(due, _SHOWN)}"


def _recomputed(run_dir: Path, results: _Run, lines: list[Line]) -> dict[str, Any]:
    """Compute results.json again from the first *lines* of the journal."""
    plan, snapshots = _plan_of(results)
    held = JournalResults(
        plan,
        _ReadLines(lines, file_hash(run_dir / RUN_FILE)),
        results.duration_s,
        snapshots,
        # These are not in the journal; they are compared with the disk.
        workspaces=results.record.workspaces,
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
    if (run_dir / SPENT_FILE).exists():
        # The usage of interrupted attempts is not in the journal.
        del document["total_usage"], document["interrupted_usage"]
    return document


def _plan_of(results: _Run) -> tuple[Plan, dict[SnapshotKey, SnapshotOutcome]]:
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
            control=execution.arm == results.baseline and case.id in beside,
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
        arms=tuple(RecordedArm(name=arm.name, commit=arm.commit, known=arm.differs_by) for arm in results.arms),
        baseline=results.baseline,
        seed=results.seed,
        grown_from=results.grown_from,
    )
    snapshots = {
        snapshot_key(execution): written.snapshot
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
            self.note(line.result, line.offset, line.raw, line.link)

    def read(self, entry: Entry) -> TrialResult:
        """Return the whole result."""
        return self._results[entry.offset]
