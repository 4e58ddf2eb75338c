"""The results of a run: read from its journal in declared order, and written as results.json."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Protocol

from msgspec import convert
from msgspec.structs import replace

from whet.decide.loads.figures import figures_of
from whet.decide.scores import arm_scores, combined_status, mean, rate_of
from whet.errors import RecordUnwritten
from whet.model import codec
from whet.model.comparison import Comparison, PairFigures, RoundAnalysis, Stop
from whet.model.grade import AS_EXPECTED, PASSED, STATUSES, QueryLoads, TriggerFigures
from whet.model.run import Execution, ExecutionKey, Plan, RunInfo, SnapshotOutcome, TrialResult
from whet.model.run_events import ExecutionSummary, Results
from whet.model.session import Usage
from whet.model.skills import SkillLoads
from whet.model.spending import Spending
from whet.record.document import (
    CASES_OPENING,
    DIGEST_CLOSING,
    DIGEST_OPENING,
    RECORD_OPENING,
    RecordFacts,
    RunFigures,
    WrittenArm,
    WrittenCase,
    WrittenCounts,
    WrittenExecution,
    WrittenLift,
    WrittenSpending,
    WrittenTrial,
    WrittenUsage,
    round_seconds,
    to_document,
)
from whet.record.folder import RESULTS_FILE, open_new
from whet.record.journal.index import IndexEntry, JournalIndex
from whet.record.journal.journal import FREE_SPACE


class JournalResults:
    """Implements `Results` for a journal."""

    def __init__(
        self,
        plan: Plan,
        journal: JournalIndex,
        duration_s: float,
        snapshots: Mapping[ExecutionKey, SnapshotOutcome] | None = None,
        *,
        beside: Spending | None = None,
        workspaces: Mapping[str, str] | None = None,
        money_over: bool = False,
        pairwise: tuple[PairFigures, ...] = (),
    ) -> None:
        self.plan = plan
        self.duration_s = duration_s
        self._journal = journal
        self._snapshots = snapshots or {}
        # What was paid for and is in no line of the journal.
        self._beside = beside or Spending()
        self._workspaces = dict(workspaces or {})
        self._money_over = money_over
        # What a judge said of pairs of answers, which is beside the journal.
        self.pairwise = pairwise

    @property
    def looks(self) -> tuple[RoundAnalysis, ...]:
        """What was seen after each round of a run until decided."""
        return self._journal.rounds.looks

    @property
    def stopped(self) -> Stop | None:
        """Why a run until decided has ended."""
        reason = self.looks[-1].stop if self.looks else None
        return reason or ("money" if self._money_over and self.plan.until else None)

    @property
    def user_usage(self) -> Usage:
        """The known usage of the models that played users."""
        return self._journal.user_usage

    @property
    def total_usage(self) -> Usage:
        """The known usage of every attempt at every trial together, also of those that were interrupted."""
        return self._journal.usage + self.cut_short

    @property
    def cut_short(self) -> Usage:
        """The part of it of attempts that were interrupted."""
        return self._beside.interrupted.usage

    @property
    def spending(self) -> Spending:
        """What was paid for, by who asked for it."""
        return self._journal.spending + self._beside

    @property
    def skill_loads(self) -> tuple[SkillLoads, ...]:
        """How often skills were loaded, in the order of arms and runners."""
        pairs = dict.fromkeys((execution.arm, execution.runner.id) for execution in self.plan.executions)
        return tuple(self._journal.loads[pair] for pair in pairs if pair in self._journal.loads)

    @property
    def triggers(self) -> tuple[TriggerFigures, ...]:
        """How well skills were loaded, in the order of arms and runners."""
        queries_by_pair: dict[tuple[str, str], list[QueryLoads]] = {}
        for execution in self.plan.executions:
            query = self._journal.queries.get(execution.key)
            if query is not None and execution.case.id not in self.plan.voided:
                queries_by_pair.setdefault((execution.arm, execution.runner.id), []).append(query)
        return tuple(figures_of(arm, runner, queries) for (arm, runner), queries in queries_by_pair.items())

    @property
    def unpaid_usage(self) -> Usage:
        """The part of it that no provider was asked for, because cassettes answered."""
        journal = self._journal
        return Usage() if journal.usage == journal.paid_usage else journal.usage - journal.paid_usage

    @property
    def record(self) -> RecordFacts:
        """The hashes of what the results were made of, for `whet verify`."""
        journal = self._journal
        return RecordFacts(
            lines=journal.lines, hash=journal.last_link, run=journal.run_hash, workspaces=self._workspaces
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many trials ended with each status."""
        statuses: Counter[str] = Counter()
        void = 0
        for execution in self.plan.executions:
            if execution.case.id in self.plan.voided:
                void += execution.trials
            else:
                statuses.update(entry.status for entry in self._entries(execution))
        total = self.plan.trial_count
        counts: dict[str, int] = {status: statuses[status] for status in STATUSES}
        return counts | {"not-run": total - void - statuses.total(), "void": void, "total": total}

    @property
    def passed(self) -> bool:
        """Whether every planned trial ended as expected, and every snapshot holds."""
        counts = self.counts
        snapshots_hold = all(outcome.verdict is None for outcome in self._counting_snapshots())
        counting = counts["total"] - counts["void"]
        return snapshots_hold and counting > 0 and counting == sum(counts[status] for status in AS_EXPECTED)

    @property
    def check_mistakes(self) -> int:
        """How many trials failed by a mistake in a check."""
        counting = (item for item in self.plan.executions if item.case.id not in self.plan.voided)
        return sum(entry.mistaken for execution in counting for entry in self._entries(execution))

    @property
    def exceeded(self) -> bool:
        """Whether an execution used more than its snapshot allows."""
        return any(outcome.verdict == "failed" for outcome in self._counting_snapshots())

    def _counting_snapshots(self) -> Iterator[SnapshotOutcome]:
        return (outcome for (case, *_), outcome in self._snapshots.items() if case not in self.plan.voided)

    def summaries(self) -> Iterator[ExecutionSummary]:
        """Every execution, in declared order."""
        for execution in self.plan.executions:
            outcome = self._snapshots.get(execution.key)
            summary = _summary(execution, list(self._entries(execution)))
            if execution.case.id in self.plan.voided:
                yield replace(summary, status="void", score=None, rate=None)
            else:
                yield _apply_snapshot(summary, outcome)

    def trials(self, execution: Execution) -> Iterator[TrialResult]:
        """The finished trials of one execution, in order."""
        for entry in self._entries(execution):
            yield self._journal.read(entry)

    def _entries(self, execution: Execution) -> Iterator[IndexEntry]:
        for number in range(1, execution.trials + 1):
            entry = self._journal.entry(self.plan.key(execution, number))
            if entry is not None:
                yield entry


def _summary(execution: Execution, entries: list[IndexEntry]) -> ExecutionSummary:
    statuses = [entry.status for entry in entries]
    ends = [(entry.status, entry.first) for entry in entries]
    scores = [entry.score for entry in entries if entry.status != "errored" and entry.score is not None]
    durations = [entry.duration_s for entry in entries]
    # The baseline may fail. Its rate still counts that as a failure, to be compared with the rate of the other arm.
    successes = PASSED if execution.baseline else AS_EXPECTED
    return ExecutionSummary(
        execution=execution,
        status=combined_status(statuses) or "not-run",
        passed=len(entries) == execution.trials and AS_EXPECTED.issuperset(statuses),
        score=mean(scores),
        rate=rate_of(ends, successes),
        counts=dict(Counter(statuses)),
        duration_s=mean(durations) or 0.0,
    )


def _apply_snapshot(summary: ExecutionSummary, outcome: SnapshotOutcome | None) -> ExecutionSummary:
    """Return the summary with its snapshot, which may make it fail."""
    if outcome is None:
        return summary
    if outcome.verdict is None:
        return replace(summary, snapshot=outcome)
    return replace(summary, snapshot=outcome, status=outcome.verdict, passed=False)


class FullResults(Results, Protocol):
    """Results with all that results.json says."""

    @property
    def check_mistakes(self) -> int:
        """How many trials failed by a mistake in a check."""

    @property
    def total_usage(self) -> Usage:
        """The known usage of every attempt at every trial."""

    @property
    def user_usage(self) -> Usage:
        """The known usage of the models that played users."""

    @property
    def unpaid_usage(self) -> Usage:
        """What no provider was asked for."""

    @property
    def cut_short(self) -> Usage:
        """What was used by trials that were interrupted."""

    @property
    def record(self) -> RecordFacts:
        """What the results were made of."""


def write_results(info: RunInfo, results: FullResults, *, interrupted: bool, ended_at: str) -> None:
    """Write results.json, a trial at a time; it appears in one step."""
    path = info.run_dir / RESULTS_FILE
    fresh = path.with_name(f".{RESULTS_FILE}-new")
    try:
        with open_new(fresh) as file:
            write_document(file, info, results, interrupted=interrupted, ended_at=ended_at)
        fresh.replace(path)
    except OSError as error:
        raise RecordUnwritten(f"{path} cannot be written: {error.strerror}", hint=FREE_SPACE) from error


class Writable(Protocol):
    """What a document is written to."""

    def write(self, data: bytes, /) -> object:
        """Take the next piece."""


class _HashingFile:
    """A file whose content is hashed on the way."""

    def __init__(self, file: Writable) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.digest.update(data)


def write_document(file: Writable, info: RunInfo, results: FullResults, *, interrupted: bool, ended_at: str) -> None:
    """Write the document, one trial per line, so that not all of it is in memory; it ends in a hash of all above."""
    hashing = _HashingFile(file)
    head = codec.encode_pretty(_figures(info, results, interrupted=interrupted, ended_at=ended_at))
    hashing.write(head.removesuffix(b"\n}\n") + CASES_OPENING)
    cases = groupby(results.summaries(), key=lambda summary: summary.execution.case.id)
    for number, (_, summaries) in enumerate(cases):
        hashing.write(b"," if number else b"")
        _write_case(hashing, list(summaries), results)
    hashing.write(RECORD_OPENING + codec.encode(results.record).removesuffix(b"}"))
    file.write(DIGEST_OPENING + hashing.digest.hexdigest().encode() + DIGEST_CLOSING)


def _read_comparisons(results: FullResults) -> tuple[tuple[WrittenLift, ...], tuple[Comparison, ...]]:
    """Return what arms say about each other; nothing if there is one."""
    if results.plan.baseline is None:
        return (), ()
    from whet.decide.comparison import comparisons_in, lifts_of  # most runs compare nothing

    return tuple(to_document(lift, WrittenLift) for lift in lifts_of(results)), comparisons_in(results)


def _figures(info: RunInfo, results: FullResults, *, interrupted: bool, ended_at: str) -> RunFigures:
    lift, comparisons = _read_comparisons(results)
    return RunFigures(
        run_id=info.run_id,
        suite=info.suite,
        suite_path=str(info.suite_path),
        whet_version=info.version,
        sandbox=info.sandbox,
        started_at=info.started_at,
        ended_at=ended_at,
        duration_s=round_seconds(results.duration_s),
        interrupted=interrupted,
        schedule=results.plan.schedule,
        max_parallel=results.plan.max_parallel,
        arms=tuple(WrittenArm(name=arm.name, commit=arm.commit, differs_by=arm.facts()) for arm in results.plan.arms),
        baseline=results.plan.baseline,
        compares=results.plan.compares,
        seed=results.plan.seed,
        grown_from=results.plan.grown_from,
        until=results.plan.until,
        stopped=results.stopped,
        looks=results.looks,
        voided=dict(results.plan.voided),
        judge_error=results.plan.suite.judge.get("error"),
        warnings=results.plan.warnings,
        passed=results.passed,
        counts=convert({name.replace("-", "_"): count for name, count in results.counts.items()}, WrittenCounts),
        check_mistakes=results.check_mistakes,
        total_usage=to_document(results.total_usage, WrittenUsage),
        interrupted_usage=to_document(results.cut_short, WrittenUsage),
        unpaid_usage=to_document(results.unpaid_usage, WrittenUsage),
        user_usage=to_document(results.user_usage, WrittenUsage),
        spending=to_document(results.spending, WrittenSpending),
        skill_loads=results.skill_loads,
        triggers=results.triggers,
        scores=arm_scores(results),
        lift=lift,
        comparisons=comparisons,
        pairwise=results.pairwise,
    )


def _write_case(file: _HashingFile, summaries: list[ExecutionSummary], results: FullResults) -> None:
    case = summaries[0].execution.case
    case_passes = all(summary.passed for summary in summaries)
    written_case = WrittenCase(
        id=case.id,
        tags=case.tags,
        weight=case.weight,
        lost_checks=case.lost_checks,
        split=case.split,
        source=case.source,
        edited=case.edited,
        passed=case_passes,
    )
    head = codec.encode(written_case)
    file.write(b"\n    " + head.removesuffix(b"]}"))
    for number, summary in enumerate(summaries):
        file.write(b"," if number else b"")
        _write_execution(file, summary, results)
    file.write(b"\n    ]}")


def _write_execution(file: _HashingFile, summary: ExecutionSummary, results: FullResults) -> None:
    execution = summary.execution
    head = WrittenExecution(
        runner=execution.runner.id,
        arm=execution.arm,
        agent=execution.runner.agent,
        model=execution.runner.model,
        planned_trials=execution.trials,
        snapshot=summary.snapshot,
        status=summary.status,
        passed=summary.passed,
        score=summary.score,
        rate=summary.rate,
    )
    file.write(b"\n      " + codec.encode(head).removesuffix(b"]}"))
    for number, result in enumerate(results.trials(execution)):
        file.write((b"," if number else b"") + b"\n        " + codec.encode(to_document(result, WrittenTrial)))
    file.write(b"\n      ]}")
