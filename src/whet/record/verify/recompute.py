"""Compute results.json again from the journal of a run, and say where the document differs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct, field

from whet.model import codec
from whet.model.arm import Arm
from whet.model.comparison import PairFigures
from whet.model.run import Execution, ExecutionKey, Plan, RunInfo, Runner, SnapshotOutcome
from whet.model.spending import Bill, Spending
from whet.model.suite import TRIGGERED, Case, Check, Limits, Suite, WorkspaceSpec
from whet.reading.text import shown
from whet.record.document import CaseHead, ExecutionHead, RecordFacts, RunHead
from whet.record.folder import SPENT_FILE
from whet.record.journal.index import JournalIndex
from whet.record.journal.journal import SpendingFile
from whet.record.results import JournalResults, Writable, write_document
from whet.record.results_file import ResultsFile
from whet.version import __version__

# The one check that a lift leaves out; no other check matters to results.
_ABOUT_SKILL = (Check(grader="answer", label=TRIGGERED, compared=False),)
_SHOWN = 80


class HeadOfCase(CaseHead):
    """A case, with what the journal does not say of its executions."""

    executions: tuple[ExecutionHead, ...]


class SpendingBeside(Struct):
    """What was paid for and is in no line of the journal."""

    interrupted: Bill = field(default_factory=Bill)
    explain: Bill = field(default_factory=Bill)


class Heads(RunHead):
    """What results.json says and the journal does not."""

    cases: tuple[HeadOfCase, ...]
    record: RecordFacts
    pairwise: tuple[PairFigures, ...] = ()
    spending: SpendingBeside = field(default_factory=SpendingBeside)


def journal_differences(document: ResultsFile, results: Heads, journal: JournalIndex) -> Iterator[str]:
    """Yield where *document* is not what the open *journal*, of the lines that it names, says."""
    run_dir = document.path.parent
    with document.open() as file:
        again = _ComparingFile(file)
        _write_again(again, run_dir, results, journal)
        if again.same and not file.read(1):
            return
    # Only now as a whole: of a large run, that takes much memory.
    try:
        content = document.decode(dict[str, Any])
    except codec.WireError:
        yield "has changed: it is not a document any more"
        return
    yield from _differences(content, _recompute(run_dir, results, journal))


class _ComparingFile:
    """Compares what is written with what a file holds."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.same = True

    def write(self, data: bytes) -> object:
        """Compare the next piece."""
        self.same = self.same and self._file.read(len(data)) == data
        return None


def _differences(document: Any, due: Any, where: str = "") -> Iterator[str]:
    """Yield where two documents differ in a field that both have: the field, its value, and what the journal says."""
    if isinstance(document, dict) and isinstance(due, dict):
        for name in document:
            if name in due and name != "digest":
                yield from _differences(document[name], due[name], f"{where}.{name}" if where else name)
    elif isinstance(document, list) and isinstance(due, list) and len(document) == len(due):
        for index, (item, due_item) in enumerate(zip(document, due, strict=True)):
            yield from _differences(item, due_item, f"{where}[{index}]")
    elif document != due:
        yield f"{where} is {shown(document, _SHOWN)}, and the journal says {shown(due, _SHOWN)}"


def _write_again(file: Writable, run_dir: Path, results: Heads, journal: JournalIndex) -> None:
    plan, snapshots = plan_of(results)
    journal_results = JournalResults(
        plan,
        journal,
        results.duration_s,
        snapshots,
        # Attempts that were interrupted have no line, nor have questions that were asked afterwards.
        beside=_beside(results, run_dir) if (run_dir / SPENT_FILE).exists() else Spending(),
        # Workspaces are not in the journal either; they are compared with the disk.
        workspaces=results.record.workspaces,
        # Nor is this: only the settings say what money there was.
        money_over=results.stopped == "money",
        # Nor what a judge said of pairs, which is beside it.
        pairwise=results.pairwise,
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
    write_document(file, info, journal_results, interrupted=results.interrupted, ended_at=results.ended_at)


def _beside(results: Heads, run_dir: Path) -> Spending:
    judge = SpendingFile(run_dir / SPENT_FILE).spending.judge
    return Spending(interrupted=results.spending.interrupted, explain=results.spending.explain, judge=judge)


def _recompute(run_dir: Path, results: Heads, journal: JournalIndex) -> dict[str, Any]:
    """Return the document that *journal* makes, without what it cannot know."""
    file = io.BytesIO()
    _write_again(file, run_dir, results, journal)
    document = codec.decode(file.getvalue(), dict[str, Any])
    if results.whet_version != __version__:
        # Another version may have compared in another way.
        del document["lift"], document["comparisons"]
    if (run_dir / SPENT_FILE).exists():
        # The usage of interrupted attempts is not in the journal.
        del document["total_usage"], document["interrupted_usage"]
        names = ["cost_usd", "unknown", "interrupted", "explain"]
        if SpendingFile(run_dir / SPENT_FILE).spending.judge != Bill():
            names.append("judge")
        for name in names:
            del document["spending"][name]
    return document


def plan_of(results: Heads) -> tuple[Plan, dict[ExecutionKey, SnapshotOutcome]]:
    """Return the plan, as far as results depend on it, and the outcomes of snapshots."""
    pairs = [(case, execution) for case in results.cases for execution in case.executions]
    beside = {case.id for case, execution in pairs if execution.arm != results.baseline}
    executions = tuple(
        Execution(
            case=_case_of(case),
            runner=Runner(id=execution.runner, agent=execution.agent, model=execution.model),
            arm=execution.arm,
            limits=Limits(),
            workspace=WorkspaceSpec(),
            trials=execution.planned_trials,
            baseline=execution.arm == results.baseline and case.id in beside,
        )
        for case, execution in pairs
    )
    cases = {execution.case.id: execution.case for execution in executions}
    plan = Plan(
        suite=Suite(
            name=results.suite,
            source=Path(results.suite_path),
            cases=tuple(cases.values()),
            digest="",
            judge={"error": results.judge_error},
        ),
        executions=executions,
        schedule=results.schedule,
        max_parallel=results.max_parallel,
        retries=0,
        check_timeout_s=0,
        arms=tuple(
            Arm(name=arm.name, commit=arm.commit, recorded=arm.differs_by, defined=results.compares)
            for arm in results.arms
        ),
        baseline=results.baseline,
        seed=results.seed,
        grown_from=results.grown_from,
        until=results.until,
        voided=results.voided,
        warnings=results.warnings,
    )
    snapshots = {
        execution.key: head.snapshot
        for execution, (_, head) in zip(executions, pairs, strict=True)
        if head.snapshot is not None
    }
    return plan, snapshots


def _case_of(head: CaseHead) -> Case:
    return Case(
        id=head.id,
        prompt="",
        checks=_ABOUT_SKILL,
        tags=head.tags,
        weight=head.weight,
        lost_checks=head.lost_checks,
        split=head.split,
        source=head.source,
        edited=head.edited,
    )
