"""The results of a run: read from its journal in declared order, and written as results.json."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from itertools import groupby
from typing import Any, BinaryIO, Protocol

from whet.errors import RecordUnwritten
from whet.grade.scores import arm_scores, combined_status, mean, rate_of
from whet.grade.statistics import lifts_of
from whet.model import wire
from whet.model.event import ExecutionSummary
from whet.model.grade import AS_EXPECTED, PASSED, STATUSES, Lift
from whet.model.run import Attempt, Execution, Plan, RunInfo, SnapshotOutcome, TrialKey, TrialResult
from whet.model.session import Usage
from whet.record.folder import RESULTS_FILE, open_new
from whet.record.journal import FREE_SPACE, Entry
from whet.record.snapshots import SnapshotKey, snapshot_key

SCHEMA = "whet/results/1"
# Around the hash that the document ends in.
DIGEST_OPENING, DIGEST_CLOSING = b',"digest":"', b'"}\n}\n'
_USAGE = tuple(item.name for item in fields(Usage))
_ATTEMPT = tuple(item.name for item in fields(Attempt))


class Kept(Protocol):
    """What results are made of: a journal, or the lines of one that is being verified."""

    @property
    def usage(self) -> Usage:
        """The usage of all attempts at all trials together."""

    @property
    def lines(self) -> int:
        """How many lines there are."""

    @property
    def last_link(self) -> str | None:
        """The hash that the last line ends in."""

    @property
    def run_hash(self) -> str | None:
        """The hash of run.json."""

    def entry(self, key: TrialKey) -> Entry | None:
        """Return the entry of a trial, if it has ended."""

    def read(self, entry: Entry) -> TrialResult:
        """Read the whole result."""


class JournalResults:
    """Implements `Results` for a journal."""

    def __init__(
        self,
        plan: Plan,
        journal: Kept,
        duration_s: float,
        snapshots: Mapping[SnapshotKey, SnapshotOutcome] | None = None,
        *,
        cut_short: Usage | None = None,
        workspaces: Mapping[str, str] | None = None,
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._duration_s = duration_s
        self._snapshots = snapshots or {}
        self.cut_short = cut_short or Usage()
        self._workspaces = workspaces or {}

    @property
    def plan(self) -> Plan:
        """What was planned."""
        return self._plan

    @property
    def duration_s(self) -> float:
        """Wall-clock time of the run so far."""
        return self._duration_s

    @property
    def total_usage(self) -> Usage:
        """The known usage of every attempt at every trial together, also of those that were interrupted."""
        return self._journal.usage + self.cut_short

    @property
    def record(self) -> dict[str, Any]:
        """The hashes of what the results were made of, for `whet verify`."""
        kept = self._journal
        facts = {"lines": kept.lines, "hash": kept.last_link, "run": kept.run_hash}
        return {**facts, "workspaces": self._workspaces}

    @property
    def counts(self) -> dict[str, int]:
        """How many trials ended with each status."""
        seen: Counter[str] = Counter()
        for execution in self._plan.executions:
            seen.update(entry.status for entry in self._entries(execution))
        total = self._plan.trial_count
        counts: dict[str, int] = {status: seen[status] for status in STATUSES}
        return counts | {"not-run": total - seen.total(), "total": total}

    @property
    def passed(self) -> bool:
        """Whether every planned trial ended as expected, and every snapshot holds."""
        counts = self.counts
        held = all(outcome.verdict is None for outcome in self._snapshots.values())
        return held and counts["total"] == sum(counts[status] for status in AS_EXPECTED)

    @property
    def exceeded(self) -> bool:
        """Whether an execution used more than its snapshot allows."""
        return any(outcome.verdict == "failed" for outcome in self._snapshots.values())

    def summaries(self) -> Iterator[ExecutionSummary]:
        """Every execution, in declared order."""
        for execution in self._plan.executions:
            outcome = self._snapshots.get(snapshot_key(execution))
            yield _held_to(_summary(execution, list(self._entries(execution))), outcome)

    def trials(self, execution: Execution) -> Iterator[TrialResult]:
        """The finished trials of one execution, in order."""
        for entry in self._entries(execution):
            yield self._journal.read(entry)

    def _entries(self, execution: Execution) -> Iterator[Entry]:
        for number in range(1, execution.trials + 1):
            entry = self._journal.entry(self._plan.key(execution, number))
            if entry is not None:
                yield entry


def _summary(execution: Execution, entries: list[Entry]) -> ExecutionSummary:
    counted = [entry for entry in entries if entry.status != "errored"]
    status = combined_status(entry.status for entry in entries)
    # A control may fail. Its rate still counts that as a failure, to be compared with the rate of the other variant.
    successes = PASSED if execution.control else AS_EXPECTED
    return ExecutionSummary(
        execution=execution,
        status=status or "not-run",
        passed=len(entries) == execution.trials and all(entry.status in AS_EXPECTED for entry in entries),
        score=mean(entry.score for entry in counted if entry.score is not None),
        rate=rate_of([(entry.status, entry.first) for entry in entries], successes),
        counts=dict(Counter(entry.status for entry in entries)),
        duration_s=mean(entry.duration_s for entry in entries) or 0.0,
    )


def _held_to(summary: ExecutionSummary, outcome: SnapshotOutcome | None) -> ExecutionSummary:
    """Return the summary with its snapshot, which may make it fail."""
    if outcome is None:
        return summary
    if outcome.verdict is None:
        return replace(summary, snapshot=outcome)
    return replace(summary, snapshot=outcome, status=outcome.verdict, passed=False)


def write_results(info: RunInfo, results: JournalResults, *, interrupted: bool, ended_at: str) -> None:
    """Write results.json, a trial at a time; it appears in one step."""
    path = info.run_dir / RESULTS_FILE
    fresh = path.with_name(f".{RESULTS_FILE}-new")
    try:
        with open_new(fresh) as file:
            write_document(file, info, results, interrupted=interrupted, ended_at=ended_at)
        fresh.replace(path)
    except OSError as error:
        raise RecordUnwritten(f"{path} cannot be written: {error.strerror}", hint=FREE_SPACE) from error


class _Hashing:
    """A file whose content is hashed on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.digest.update(data)


def write_document(file: BinaryIO, info: RunInfo, results: JournalResults, *, interrupted: bool, ended_at: str) -> None:
    """Write the document; it ends in a hash of all that is above."""
    hashing = _Hashing(file)
    _write_cases(hashing, _head(info, results, interrupted=interrupted, ended_at=ended_at), results)
    hashing.write(b'\n  ],\n  "record": ' + wire.encode(results.record)[:-1])
    file.write(DIGEST_OPENING + hashing.digest.hexdigest().encode() + DIGEST_CLOSING)


def _head(info: RunInfo, results: JournalResults, *, interrupted: bool, ended_at: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "run_id": info.run_id,
        "suite": info.suite,
        "suite_path": str(info.suite_path),
        "whet_version": info.version,
        "sandbox": info.sandbox,
        "started_at": info.started_at,
        "ended_at": ended_at,
        "duration_s": _seconds(results.duration_s),
        "interrupted": interrupted,
        "passed": results.passed,
        "counts": {name.replace("-", "_"): count for name, count in results.counts.items()},
        "total_usage": _usage(results.total_usage),
        "interrupted_usage": _usage(results.cut_short),
        "schedule": results.plan.schedule,
        "max_parallel": results.plan.max_parallel,
        "scores": arm_scores(results),
        "lift": [_lift(lift) for lift in lifts_of(results)],
    }


def _lift(lift: Lift) -> dict[str, Any]:
    return {
        "runner": lift.runner,
        "value": lift.value,
        "low": lift.low,
        "high": lift.high,
        "skill": lift.skill,
        "no_skill": lift.no_skill,
        "better": lift.better,
        "worse": lift.worse,
        "same": lift.same,
        "unpaired": lift.unpaired,
        "triggered": lift.triggered,
        "asked": lift.asked,
        "cases": [
            {
                "case": case.case,
                "skill": case.skill,
                "no_skill": case.no_skill,
                "value": case.value,
                "weight": case.weight,
            }
            for case in lift.cases
        ],
    }


def _write_cases(file: _Hashing, head: dict[str, Any], results: JournalResults) -> None:
    """One trial per line: readable, greppable, and never all of it in memory."""
    file.write(wire.encode_pretty(head).rstrip()[:-1].rstrip() + b',\n  "cases": [')
    cases = groupby(results.summaries(), key=lambda summary: summary.execution.case.id)
    for number, (identifier, group) in enumerate(cases):
        summaries = list(group)
        case = summaries[0].execution.case
        tags, weight = wire.encode(case.tags), wire.encode(case.weight)
        passed = wire.encode(all(summary.passed for summary in summaries))
        file.write(b"," if number else b"")
        file.write(
            b'\n    {"id": %s, "tags": %s, "weight": %s, "passed": %s, "executions": ['
            % (wire.encode(identifier), tags, weight, passed)
        )
        for index, summary in enumerate(summaries):
            file.write(b"," if index else b"")
            _write_execution(file, summary, results)
        file.write(b"\n    ]}")


def _write_execution(file: _Hashing, summary: ExecutionSummary, results: JournalResults) -> None:
    execution = summary.execution
    facts = {
        "runner": execution.runner.id,
        "variant": execution.variant,
        "agent": execution.runner.agent,
        "model": execution.runner.model,
        "status": summary.status,
        "passed": summary.passed,
        "score": summary.score,
        "rate": summary.rate,
        "planned_trials": execution.trials,
        "snapshot": summary.snapshot,
    }
    file.write(b"\n      " + wire.encode(facts)[:-1] + b',"trials":[')
    trials = (wire.encode(_trial(result)) for result in results.trials(execution))
    for number, trial in enumerate(trials):
        file.write((b"," if number else b"") + b"\n        " + trial)
    file.write(b"\n      ]}")


def _trial(result: TrialResult) -> dict[str, Any]:
    return {
        "number": result.number,
        "status": result.status,
        "passed": result.passed,
        "score": result.score,
        "flaky": result.flaky,
        "failure": result.failure,
        "failure_class": result.failure_class,
        "grades": result.grades,
        "usage": _usage(result.usage),
        "cost_usd": result.usage.cost_usd,
        "total_usage": _usage(result.total_usage),
        "steps": result.steps,
        "detected_skills": result.detected_skills,
        "started_at": result.started_at,
        "duration_s": _seconds(result.duration_s),
        "session_s": None if result.session_s is None else _seconds(result.session_s),
        "final_output": result.final_output,
        "changed_files": result.changed_files,
        "vacuous": result.vacuous,
        "artifact_dir": result.artifact_dir,
        "workspace_dir": result.workspace_dir,
        "attempts": [_attempt(attempt) for attempt in result.attempts],
        "notes": result.notes,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {"total_tokens": usage.total_tokens, **{name: getattr(usage, name) for name in _USAGE}}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    kept = {name: getattr(attempt, name) for name in _ATTEMPT}
    return {**kept, "duration_s": _seconds(attempt.duration_s), "usage": _usage(attempt.usage)}


def _seconds(value: float) -> float:
    """Round a duration to microseconds, as it is written everywhere."""
    return round(value, 6)
