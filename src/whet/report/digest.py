"""What people want to know at the end of a run, gathered in one pass and bounded, however many trials there were."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from math import sqrt
from pathlib import Path

from whet.dataclass import dataclass
from whet.grade.statistics import lifts_of
from whet.model.event import ExecutionSummary, Results
from whet.model.grade import AS_EXPECTED, Lift, Rate
from whet.model.run import RunInfo, Runner, TrialResult
from whet.reading.text import count, one_line
from whet.report.evaluation import Words
from whet.report.finding import (
    Finding,
    ShownStatus,
    class_of,
    execution_name,
    finding_of,
    likeness,
    snapshot_finding,
    trial_name,
)

FAILURES_SHOWN = 50
NAMES_SHOWN = 50
CLASSES_APART = 100


@dataclass(slots=True)
class Spread:
    """A mean and standard deviation, kept without keeping the values (Welford)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float | None) -> None:
        """Take *value* in; what nobody told does not count."""
        if value is None:
            return
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.squares += delta * (value - self.mean)

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the sample; none of fewer than two values."""
        return sqrt(self.squares / (self.count - 1)) if self.count > 1 else None

    @property
    def sum(self) -> float:
        """All values together."""
        return self.mean * self.count


@dataclass(slots=True)
class Figures:
    """What trials took, with all of their attempts."""

    attempts: int = 0
    seconds: Spread = field(default_factory=Spread)
    input_tokens: Spread = field(default_factory=Spread)
    output_tokens: Spread = field(default_factory=Spread)
    cost_usd: Spread = field(default_factory=Spread)

    def add(self, result: TrialResult) -> None:
        """Take one trial in."""
        usage = result.total_usage
        self.attempts += max(1, len(result.attempts))
        self.seconds.add(result.duration_s)
        self.input_tokens.add(usage.told("input_tokens"))
        self.output_tokens.add(usage.told("output_tokens"))
        self.cost_usd.add(usage.cost_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One execution, as a line of a table."""

    case: str
    status: ShownStatus
    trials: int
    rate: Rate | None
    figures: Figures
    # Run to be compared with: its rate counts what really passed, and it may fail.
    control: bool = False


@dataclass(slots=True)
class RunnerTable:
    """The executions of one runner; where there are too many, those that went as expected are left off first."""

    runner: Runner
    rows: list[Row] = field(default_factory=list)
    left_off: int = 0
    trials: int = 0
    as_expected: int = 0
    errored: int = 0
    # How many went as expected at the first attempt, and how many only at a later one.
    first: int = 0
    flaky: int = 0
    figures: Figures = field(default_factory=Figures)
    # Cases may name their own.
    models: dict[str, None] = field(default_factory=dict)

    def take(self, result: TrialResult) -> None:
        """Count one trial in."""
        self.figures.add(result)
        self.as_expected += result.passed
        self.errored += result.status == "errored"
        self.first += result.first_status in AS_EXPECTED
        self.flaky += result.flaky

    def add(self, row: Row, limit: int) -> None:
        """Take *row* in, at the cost of one that nobody would look for."""
        self.rows.append(row)
        if len(self.rows) > limit:
            self.left_off += 1
            dull = (place for place in range(limit, -1, -1) if self.rows[place].status in AS_EXPECTED)
            self.rows.pop(next(dull, limit))

    @property
    def title(self) -> str:
        """The runner, with its agent and models where they say more."""
        first, *others = self.models or [None]
        model = f"{first} and {count(len(others), 'other model')}" if others else first
        parts = [part for part in (self.runner.agent, model) if part and part != self.runner.id]
        return one_line(self.runner.id + (f" ({', '.join(parts)})" if parts else ""), 80)


@dataclass(frozen=True, slots=True)
class Block:
    """Findings that say the same: the first in full, the others by what is their own."""

    first: Finding
    again: list[Finding] = field(default_factory=list)

    def own_facts(self, finding: Finding) -> dict[str, str]:
        """What one of the others tells that the first does not."""
        where = {"at": finding.where} if finding.where and finding.where != self.first.where else {}
        ask = {"to ask": finding.ask} if finding.ask else {}
        seen = {"last seen": finding.seen} if finding.seen and finding.seen != self.first.seen else {}
        notes = {"note": "; ".join(finding.notes)} if finding.notes and finding.notes != self.first.notes else {}
        return {**where, **seen, **notes, "artifacts": finding.artifacts, **ask}


@dataclass(slots=True)
class Group:
    """The findings of one failure class: what each says once, and those that are not shown counted."""

    title: str
    count: int = 0
    shown: int = 0
    # What is counted.
    noun: str = "trial"
    _blocks: dict[str, Block] = field(default_factory=dict)

    def add(self, finding: Finding, likeness: str) -> None:
        """Take *finding* in; what another one says already is not said again."""
        self.shown += 1
        block = self._blocks.setdefault(likeness, Block(finding))
        if block.first is not finding:
            block.again.append(finding)

    @property
    def blocks(self) -> Iterable[Block]:
        """What was found, in the order in which it was first said."""
        return self._blocks.values()

    @property
    def hidden(self) -> int:
        """How many are not shown."""
        return self.count - self.shown


@dataclass(slots=True)
class Digest:
    """The end of a run in a few facts."""

    counts: dict[str, int]
    duration_s: float
    tables: list[RunnerTable] = field(default_factory=list)
    failed: list[Group] = field(default_factory=list)
    errored: list[Group] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    flaky_count: int = 0
    # Executions whose checks held before the agent began.
    vacuous: list[str] = field(default_factory=list)
    vacuous_count: int = 0
    snapshots: int = 0
    lifts: tuple[Lift, ...] = ()

    @property
    def total(self) -> int:
        """How many trials were planned."""
        return self.counts.get("total", 0)

    @property
    def as_expected(self) -> int:
        """How many trials went as expected."""
        return sum(self.counts.get(status, 0) for status in AS_EXPECTED)

    @property
    def missing(self) -> int:
        """How many trials never ended."""
        return self.counts.get("not-run", 0)


def read_digest(results: Results, info: RunInfo, *, cwd: Path, rows: int) -> Digest:
    """Read the record once, a trial at a time, and keep what is worth showing."""
    return _Reader(results, info, cwd, rows).read()


class _Reader:
    """Gathers a digest."""

    def __init__(self, results: Results, info: RunInfo, cwd: Path, rows: int) -> None:
        self._results = results
        self._info = info
        self._cwd = cwd
        self._rows = rows
        self._tables: dict[str, RunnerTable] = {}
        self._groups: dict[tuple[bool, str], Group] = {}
        self._shown = 0
        self._digest = Digest(counts=dict(results.counts), duration_s=results.duration_s)

    def read(self) -> Digest:
        for summary in self._results.summaries():
            self._execution(summary)
        digest = self._digest
        digest.tables = list(self._tables.values())
        digest.lifts = lifts_of(self._results)
        # The most frequent first: it is where looking pays most. Sorting keeps the order of equals.
        ordered = sorted(self._groups.items(), key=lambda item: -item[1].count)
        digest.failed = [group for (errored, _), group in ordered if not errored]
        digest.errored = [group for (errored, _), group in ordered if errored]
        return digest

    def _execution(self, summary: ExecutionSummary) -> None:
        execution = summary.execution
        table = self._tables.setdefault(execution.runner.id, RunnerTable(execution.runner))
        if execution.runner.model is not None:
            table.models[execution.runner.model] = None
        figures = Figures()
        vacuous = False
        for result in self._results.trials(execution):
            figures.add(result)
            vacuous = vacuous or result.vacuous
            table.take(result)
            self._trial(result)
        table.trials += execution.trials
        self._snapshot(summary)
        case = execution_name(execution.case.id, execution.variant)
        if vacuous:
            self._vacuous(f"{case} on {one_line(execution.runner.id)}")
        row = Row(
            case=case,
            status=summary.status,
            trials=execution.trials,
            rate=summary.rate,
            figures=figures,
            control=execution.control,
        )
        table.add(row, self._rows)

    def _snapshot(self, summary: ExecutionSummary) -> None:
        finding = snapshot_finding(summary, self._results, self._info, self._cwd)
        if finding is None:
            return
        self._digest.snapshots += 1
        key = (finding.status == "errored", "\0snapshot")
        group = self._groups.setdefault(key, Group("Usage snapshot", noun="execution"))
        group.count += 1
        if self._shown < FAILURES_SHOWN or not group.shown:
            self._shown += 1
            group.add(finding, finding.key)

    def _vacuous(self, name: str) -> None:
        self._digest.vacuous_count += 1
        if len(self._digest.vacuous) < NAMES_SHOWN:
            self._digest.vacuous.append(name)

    def _trial(self, result: TrialResult) -> None:
        if result.flaky:
            self._digest.flaky_count += 1
            if len(self._digest.flaky) < NAMES_SHOWN:
                self._digest.flaky.append(f"{trial_name(result.key)} (attempt {len(result.attempts)})")
        if result.passed:
            return
        group = self._group(result)
        group.count += 1
        # Every class shows at least one, even where another class was there first and often.
        if self._shown < FAILURES_SHOWN or not group.shown:
            self._shown += 1
            finding = finding_of(result, self._info, self._cwd)
            group.add(finding, likeness(result, finding))

    def _group(self, result: TrialResult) -> Group:
        errored = result.status == "errored"
        ident, title = class_of(result)
        if len(self._groups) >= CLASSES_APART and (errored, ident) not in self._groups:
            ident, title = "\0rest", "Other classes"
        return self._groups.setdefault((errored, ident), Group(title))


def outcome(digest: Digest, words: Words | None = None) -> str:
    """Such as "11 of 12 trials went as expected; 1 failed"."""
    words = words or Words()
    told = f"{digest.as_expected:,} of {count(digest.total, words.trial)} {words.passed}"
    rest = ", ".join((*_rest(digest.counts), *_broken(digest.snapshots)))
    return f"{told}; {rest}" if rest else told


def _broken(snapshots: int) -> Iterable[str]:
    if snapshots:
        yield "1 snapshot does not hold" if snapshots == 1 else f"{snapshots:,} snapshots do not hold"


def _rest(counts: dict[str, int]) -> Iterable[str]:
    words = {
        "failed": "failed",
        "unexpected-passed": "passed unexpectedly",
        "errored": "errored",
        "not-run": "not run",
    }
    return (f"{counts[status]:,} {word}" for status, word in words.items() if counts.get(status))
