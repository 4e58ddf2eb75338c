"""What people want to know at the end of a run or an evaluation, gathered in one pass and of bounded size."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path

from whet.dataclass import dataclass
from whet.errors import JudgeRefused, KeyRefused, ProviderUnreachable, UserRefused
from whet.model.arm import DEFAULT
from whet.model.benchmark import CompletionReport
from whet.model.comparison import Comparison
from whet.model.event import ExecutionSummary, Results
from whet.model.grade import AS_EXPECTED, Lift
from whet.model.run import RunInfo, TrialResult
from whet.model.skills import SkillLoads
from whet.model.spending import Spending
from whet.reading.text import aligned, count, one_line, path_for_people
from whet.report.finding import Finding, class_of, execution_name, finding_of, likeness, snapshot_finding, trial_name
from whet.report.spent import spending_text
from whet.report.table import Figures, Row, RunnerTable

FAILURES_SHOWN = 50
NAMES_SHOWN = 50
CLASSES_APART = 100

# The headings of what a digest holds.
FAILURES = "Failures"
ERRORED = "Errored, and not counted as failed"
LOADS = "Skill loads"
FLAKY = "Flaky: went as expected only on a later attempt"
VACUOUS = "Vacuous: every expectation held before the agent started"
VOID = "Void: counts nowhere, because an agent that solves nothing passes it"


_REFUSED = frozenset(error.code for error in (KeyRefused, ProviderUnreachable, JudgeRefused, UserRefused))


@dataclass(frozen=True, slots=True)
class Block:
    """Findings that say the same: the first in full, and of the others what differs."""

    first: Finding
    again: list[Finding] = field(default_factory=list)

    def own_facts(self, finding: Finding) -> Iterator[tuple[str, str]]:
        """Yield what *finding*, one of the others, says that the first does not, each fact with its label."""
        first = self.first
        facts = (
            ("at", finding.where if finding.where != first.where else None),
            ("last seen", finding.seen if finding.seen != first.seen else None),
            ("note", "; ".join(finding.notes) if finding.notes != first.notes else None),
            ("artifacts", finding.artifacts),
            ("to ask", finding.ask),
        )
        yield from ((label, fact) for label, fact in facts if fact)


@dataclass(slots=True)
class Group:
    """The findings of one failure class, each text once, and how many there are."""

    title: str
    count: int = 0
    shown: int = 0
    # What `count` counts.
    noun: str = "trial"
    _blocks: dict[str, Block] = field(default_factory=dict)

    def add(self, finding: Finding, likeness: str) -> None:
        """Add *finding*; those with the same *likeness* share a block."""
        self.shown += 1
        block = self._blocks.setdefault(likeness, Block(finding))
        if block.first is not finding:
            block.again.append(finding)

    @property
    def blocks(self) -> Iterable[Block]:
        """The blocks, in the order of their first findings."""
        return self._blocks.values()

    @property
    def hidden(self) -> int:
        """How many findings are not shown."""
        return self.count - self.shown


@dataclass(slots=True)
class Names:
    """As many names as are shown under a title, and how many there are."""

    title: str
    shown: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, name: str) -> None:
        """Count *name*, and show it if it is one of the first."""
        self.count += 1
        if self.count <= NAMES_SHOWN:
            self.shown.append(name)

    @property
    def hidden(self) -> int:
        """How many names are not shown."""
        return self.count - len(self.shown)


@dataclass(slots=True)
class Digest:
    """The end of a run in a few facts."""

    counts: dict[str, int]
    duration_s: float
    # What was paid for, also for attempts that were interrupted, which are in no table.
    spending: Spending = field(default_factory=Spending)
    tables: list[RunnerTable] = field(default_factory=list)
    failed: list[Group] = field(default_factory=list)
    errored: list[Group] = field(default_factory=list)
    flaky: Names = field(default_factory=lambda: Names(FLAKY))
    vacuous: Names = field(default_factory=lambda: Names(VACUOUS))
    void: Names = field(default_factory=lambda: Names(VOID))
    snapshots: int = 0
    # How many trials failed by a mistake in a check.
    mistakes: int = 0
    # How often the skill of each arm was loaded.
    loads: tuple[SkillLoads, ...] = ()
    lifts: tuple[Lift, ...] = ()
    # What was decided about arms.
    comparisons: tuple[Comparison, ...] = ()
    # Why a run until decided ended.
    stopped: str = ""
    # How many trials a provider let nobody in for, which a resumed run tries again.
    refused: int = 0

    @property
    def total(self) -> int:
        """How many trials were planned."""
        return self.counts.get("total", 0)

    @property
    def spent(self) -> str:
        """What was spent in all, if the only table does not say so already."""
        said = [spending_text(table.figures.spending) for table in self.tables]
        spent = spending_text(self.spending)
        return "" if said == [spent] else spent

    @property
    def counting(self) -> int:
        """How many of them are not void."""
        return self.total - self.counts.get("void", 0)

    @property
    def as_expected(self) -> int:
        """How many trials went as expected."""
        return sum(self.counts.get(status, 0) for status in AS_EXPECTED)

    @property
    def missing(self) -> int:
        """How many planned trials did not run."""
        return self.counts.get("not-run", 0)


def read_digest(results: Results, info: RunInfo, *, cwd: Path, rows: int) -> Digest:
    """Read the record once, a trial at a time, and keep what is shown."""
    return _Reader(results, info, cwd, rows).read()


class _Reader:
    """Gathers a digest while it reads the record."""

    def __init__(self, results: Results, info: RunInfo, cwd: Path, rows: int) -> None:
        self._results = results
        self._info = info
        self._cwd = cwd
        self._rows = rows
        self._tables: dict[str, RunnerTable] = {}
        self._groups: dict[tuple[bool, str], Group] = {}
        self._shown = 0
        self._digest = Digest(counts=dict(results.counts), duration_s=results.duration_s, spending=results.spending)

    def read(self) -> Digest:
        for summary in self._results.summaries():
            self._execution(summary)
        digest = self._digest
        for name, controls in self._results.plan.voided.items():
            digest.void.add(f"{one_line(name)}: passes with {', '.join(controls)}")
        digest.tables = list(self._tables.values())
        digest.loads = self._results.skill_loads
        if self._results.plan.baseline is not None:
            from whet.grade.comparison import comparisons_in, lifts_of  # noqa: PLC0415 - most runs compare nothing
            from whet.report.comparison import why_stopped  # noqa: PLC0415

            digest.lifts = lifts_of(self._results)
            digest.comparisons = comparisons_in(self._results)
            digest.stopped = why_stopped(self._results)
        # The most frequent class first. Sorting keeps the order of equals.
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
        void = execution.case.id in self._results.plan.voided
        for result in self._results.trials(execution):
            figures.add(result)
            vacuous = vacuous or result.vacuous
            if void:
                # It was paid for all the same.
                table.figures.add(result)
            else:
                table.take(result)
                self._trial(result)
        table.trials += 0 if void else execution.trials
        self._snapshot(summary)
        case = execution_name(execution.case.id, execution.arm)
        if vacuous:
            self._digest.vacuous.add(f"{case} on {one_line(execution.runner.id)}")
        row = Row(
            case=case,
            status=summary.status,
            trials=execution.trials,
            rate=summary.rate,
            figures=figures,
            baseline=execution.baseline,
        )
        table.add(row, self._rows)

    def _snapshot(self, summary: ExecutionSummary) -> None:
        finding = snapshot_finding(summary, self._results, self._info, self._cwd)
        if finding is not None:
            self._digest.snapshots += 1
            key = (finding.status == "errored", "\0snapshot")
            group = self._groups.setdefault(key, Group("Usage snapshot", noun="execution"))
            if self._counts_and_shows(group):
                group.add(finding, finding.key)

    def _trial(self, result: TrialResult) -> None:
        self._digest.mistakes += result.mistaken
        if result.flaky:
            self._digest.flaky.add(f"{trial_name(result.key)} (attempt {len(result.attempts)})")
        self._digest.refused += result.failure is not None and result.failure.code in _REFUSED
        if not result.passed and self._counts_and_shows(group := self._group(result)):
            finding = finding_of(result, self._info, self._cwd)
            group.add(finding, likeness(result, finding))

    def _counts_and_shows(self, group: Group) -> bool:
        """Count one more of *group*, and return whether to show it: at least one, even if the limit is reached."""
        group.count += 1
        shows = self._shown < FAILURES_SHOWN or not group.shown
        self._shown += shows
        return shows

    def _group(self, result: TrialResult) -> Group:
        errored = result.status == "errored"
        ident, title = class_of(result)
        if len(self._groups) >= CLASSES_APART and (errored, ident) not in self._groups:
            ident, title = "\0rest", "Other classes"
        return self._groups.setdefault((errored, ident), Group(title))


@dataclass(frozen=True, slots=True)
class Words:
    """What a command calls the nouns of a run."""

    suite: str = "suite"
    case: str = "case"
    runner: str = "runner"
    trial: str = "trial"
    sample: str = "trial"
    passed: str = "went as expected"


_RUN = Words()
_EVAL = Words(suite="benchmark", case="task", runner="skill", trial="call", sample="run", passed="passed")


def words_of(command: str) -> Words:
    """Return the words of `whet COMMAND`."""
    return _EVAL if command == "eval" else _RUN


def load_lines(loads: Sequence[SkillLoads]) -> list[str]:
    """Return a line for each runner and arm with a skill, such as "codex  skill  loaded in 4 of 6 sessions"."""
    alone = {each.arm for each in loads} == {DEFAULT}
    arms = ["" if alone else one_line(each.arm, 80) for each in loads]
    return aligned([(one_line(each.runner, 80), arm, each.text) for each, arm in zip(loads, arms, strict=True)])


def outcome(digest: Digest, words: Words = _RUN) -> str:
    """Such as "11 of 12 trials went as expected; 1 failed"."""
    counts = digest.counts
    rest = [f"{counts[status]:,} {word}" for status, word in _OTHERWISE.items() if counts.get(status)]
    if digest.snapshots:
        broken = "snapshot does not hold" if digest.snapshots == 1 else "snapshots do not hold"
        rest.append(f"{digest.snapshots:,} {broken}")
    share = f"{digest.as_expected:,} of {count(digest.counting, words.trial)} {words.passed}"
    said = f"{share}; {', '.join(rest)}" if rest else share
    if not digest.mistakes:
        return said
    return f"{said}; {count(digest.mistakes, words.trial)} failed by a mistake in a check, not by the agent"


_OTHERWISE = {
    "failed": "failed",
    "unexpected-passed": "passed unexpectedly",
    "errored": "errored",
    "not-run": "not run",
    "void": "void",
}


def resume_command(info: RunInfo, place: str) -> str:
    """Return the command that resumes the run at *place*."""
    return shlex.join(("whet", info.command, *info.going_on, "--resume", place))


def last_failed_command(info: RunInfo, cwd: Path) -> str:
    """Return the command that repeats what did not go as expected, with the options that were typed."""
    words = list(info.again)
    if not words:
        # A program started this run: name its suite, and its place if it is not the usual.
        words = [path_for_people(info.suite_path, cwd)]
        if info.run_dir.parent.parts[-2:] != (".whet", "runs"):
            words += ["--output-dir", path_for_people(info.run_dir.parent, cwd)]
    # What follows "--" is not an option.
    words.insert(words.index("--") if "--" in words else len(words), "--last-failed")
    return shlex.join(("whet", info.command, *words))


def ranked(reports: Sequence[CompletionReport]) -> list[CompletionReport]:
    """Return *reports* with the best composite first."""
    return sorted(reports, key=lambda report: -(report.summary.composite or 0))
