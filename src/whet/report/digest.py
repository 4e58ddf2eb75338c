"""What people want to know at the end of a run or an evaluation, gathered in one pass and of bounded size."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from whet.errors import JudgeRefused, KeyRefused, ProviderUnreachable, UserRefused
from whet.model.arm import DEFAULT
from whet.model.callable import CompletionReport
from whet.model.comparison import Comparison, PairFigures
from whet.model.grade import AS_EXPECTED, UNEXPECTED, Lift
from whet.model.run import RunInfo, TrialResult
from whet.model.run_events import ExecutionSummary, Results
from whet.model.skills import SkillLoads
from whet.model.spending import Spending
from whet.model.suite import Case
from whet.reading.text import aligned, count, one_line, path_for_people
from whet.report.failed_cases import reason_of
from whet.report.finding import Finding, class_of, execution_name, finding_of, likeness, snapshot_finding, trial_name
from whet.report.spent import spending_text
from whet.report.table import Figures, RunnerTable, TableRow
from whet.report.triggers import SessionCost, TriggerReport, read_triggers

FAILURES_SHOWN = 50
NAMES_SHOWN = 50
CLASSES_APART = 100

# The headings of what a digest holds.
FAILURES = "Failures"
ERRORED = "Errored, and not counted as failed"
LOADS = "Skill loads"
FLAKY = "Flaky: went as expected only on a later attempt"
VACUOUS = "Vacuous: every expectation held before the agent started"
LOST_CHECKS = "Checks not carried over: these cases pass with less than their suite asks for"
VOID = "Void: counts nowhere, because an agent that solves nothing passes it"
# Tasks are the sample of a report, while `compare`, `gate` and the history go by the trials of these tasks.
LIKE_THESE = "in parentheses: 95 % intervals for tasks like these"


_REFUSED = frozenset(error.code for error in (KeyRefused, ProviderUnreachable, JudgeRefused, UserRefused))


class Block(Struct, frozen=True):
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


class FindingGroup(Struct):
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


class Names(Struct):
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


class Digest(Struct):
    """The end of a run in a few facts."""

    counts: dict[str, int]
    duration_s: float
    # What was paid for, also for attempts that were interrupted, which are in no table.
    spending: Spending = field(default_factory=Spending)
    tables: list[RunnerTable] = field(default_factory=list)
    failed: list[FindingGroup] = field(default_factory=list)
    errored: list[FindingGroup] = field(default_factory=list)
    flaky: Names = field(default_factory=lambda: Names(FLAKY))
    vacuous: Names = field(default_factory=lambda: Names(VACUOUS))
    void: Names = field(default_factory=lambda: Names(VOID))
    lost_checks: Names = field(default_factory=lambda: Names(LOST_CHECKS))
    snapshots: int = 0
    # How many trials failed by a mistake in a check.
    mistakes: int = 0
    # How often the skill of each arm was loaded.
    loads: tuple[SkillLoads, ...] = ()
    triggers: TriggerReport = TriggerReport()
    lifts: tuple[Lift, ...] = ()
    # What was decided about arms.
    comparisons: tuple[Comparison, ...] = ()
    # What a judge said of pairs of answers.
    pairwise: tuple[PairFigures, ...] = ()
    # Why the cases of each runner failed in each arm: the reason of the first trial that did.
    reasons: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)
    # Why a run until decided ended.
    stopped: str = ""
    # How many trials a provider refused, which a resumed run tries again.
    refused: int = 0

    def compared(self, runner: str) -> frozenset[str]:
        """Return the cases on *runner* that a comparison has."""
        return frozenset(
            case.case
            for comparison in self.comparisons
            if comparison.runner in (None, runner)
            for case in comparison.cases
        )

    @property
    def total(self) -> int:
        """How many trials were planned."""
        return self.counts.get("total", 0)

    @property
    def spent(self) -> str:
        """What was spent in all, if the only table does not say so already."""
        texts = [spending_text(table.figures.spending) for table in self.tables]
        total = spending_text(self.spending)
        return "" if texts == [total] else total

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
    return _DigestBuilder(results, info, cwd, rows).read()


class _DigestBuilder:
    """Gathers a digest while it reads the record."""

    def __init__(self, results: Results, info: RunInfo, cwd: Path, rows: int) -> None:
        self._results = results
        self._info = info
        self._cwd = cwd
        self._rows = rows
        self._tables: dict[str, RunnerTable] = {}
        self._groups: dict[tuple[bool, str], FindingGroup] = {}
        # What sessions took that were ended early.
        self._early: list[SessionCost] = []
        self._shown = 0
        self._digest = Digest(counts=dict(results.counts), duration_s=results.duration_s, spending=results.spending)

    def read(self) -> Digest:
        for summary in self._results.summaries():
            self._execution(summary)
        digest = self._digest
        for name, controls in self._results.plan.voided.items():
            digest.void.add(f"{one_line(name)}: passes with {', '.join(controls)}")
        cases = {execution.case.id: execution.case for execution in self._results.plan.executions}
        for case in cases.values():
            if case.lost_checks:
                digest.lost_checks.add(_lost_checks_line(case))
        digest.tables = list(self._tables.values())
        digest.loads, triggers = self._results.skill_loads, self._results.triggers
        digest.pairwise = self._results.pairwise
        if triggers or self._early:
            digest.triggers = read_triggers(self._results, triggers, self._early, self._info.run_dir)
        if self._results.plan.baseline is not None:
            from whet.report.decisions.words import read_decisions  # most runs compare nothing

            digest.lifts, digest.comparisons, digest.stopped = read_decisions(self._results, self._info)
        # The most frequent class first. Sorting keeps the order of equals.
        groups = sorted(self._groups.items(), key=lambda item: -item[1].count)
        digest.failed = [group for (is_error, _), group in groups if not is_error]
        digest.errored = [group for (is_error, _), group in groups if is_error]
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
            if result.ended_early is not None:
                self._early.append(SessionCost.of(result))
            vacuous = vacuous or result.vacuous
            if void:
                # A void trial was paid for all the same.
                table.figures.add(result)
            else:
                table.take(result)
                self._trial(result)
        table.trials += 0 if void else execution.trials
        self._snapshot(summary)
        case = execution_name(execution.case.id, execution.arm)
        if vacuous:
            self._digest.vacuous.add(f"{case} on {one_line(execution.runner.id)}")
        row = TableRow(
            case=case,
            status=summary.status,
            trials=execution.trials,
            rate=summary.rate,
            figures=figures,
            baseline=execution.baseline,
            case_id=execution.case.id,
        )
        table.add(row, self._rows)

    def _snapshot(self, summary: ExecutionSummary) -> None:
        finding = snapshot_finding(summary, self._results, self._info, self._cwd)
        if finding is not None:
            self._digest.snapshots += 1
            key = (finding.status == "errored", "\0snapshot")
            group = self._groups.setdefault(key, FindingGroup("Usage snapshot", noun="execution"))
            if self._counts_and_shows(group):
                group.add(finding, finding.key)

    def _trial(self, result: TrialResult) -> None:
        self._digest.mistakes += result.mistaken
        if result.status in UNEXPECTED:
            self._digest.reasons.setdefault(result.key.runner, {}).setdefault(
                (result.key.arm, result.key.case), reason_of(result)
            )
        if result.flaky:
            self._digest.flaky.add(f"{trial_name(result.key)} (attempt {len(result.attempts)})")
        self._digest.refused += result.failure is not None and result.failure.code in _REFUSED
        if not result.passed and self._counts_and_shows(group := self._group(result)):
            finding = finding_of(result, self._info, self._cwd)
            group.add(finding, likeness(result, finding))

    def _counts_and_shows(self, group: FindingGroup) -> bool:
        """Count one more of *group*, and return whether to show it: at least one, even if the limit is reached."""
        group.count += 1
        shows = self._shown < FAILURES_SHOWN or not group.shown
        self._shown += shows
        return shows

    def _group(self, result: TrialResult) -> FindingGroup:
        is_error = result.status == "errored"
        ident, title = class_of(result)
        if len(self._groups) >= CLASSES_APART and (is_error, ident) not in self._groups:
            ident, title = "\0rest", "Other classes"
        return self._groups.setdefault((is_error, ident), FindingGroup(title))


def _lost_checks_line(case: Case) -> str:
    """Return how many checks a case lost, and the first of them with its reason."""
    more = f", and {count(len(case.lost_checks) - 1, 'more check')}" if len(case.lost_checks) > 1 else ""
    return f"{one_line(case.id, 120)}: {one_line(case.lost_checks[0], 200)}{more}"


class RunNouns(Struct, frozen=True):
    """What a command calls the nouns of a run."""

    suite: str = "suite"
    case: str = "case"
    runner: str = "runner"
    trial: str = "trial"
    sample: str = "trial"
    passed: str = "went as expected"


_RUN = RunNouns()
_EVAL = RunNouns(suite="benchmark", case="task", runner="skill", trial="call", sample="run", passed="passed")


def words_of(command: str) -> RunNouns:
    """Return the words of `whet COMMAND`."""
    return _EVAL if command == "eval" else _RUN


def load_lines(loads: Sequence[SkillLoads]) -> list[str]:
    """Return a line for each runner and arm with a skill, such as "codex  skill  loaded in 4 of 6 sessions"."""
    alone = {load.arm for load in loads} == {DEFAULT}
    arms = ["" if alone else one_line(load.arm, 80) for load in loads]
    return aligned([(one_line(load.runner, 80), arm, load.text) for load, arm in zip(loads, arms, strict=True)])


def outcome(digest: Digest, words: RunNouns = _RUN) -> str:
    """How the run went: "11 of 12 trials went as expected; 1 failed", or for arms "12 trials: 8 passed, 4 failed"."""
    # What was expected of arms is no verdict: the decision is.
    named = _ENDED if digest.comparisons else _OTHERWISE
    amounts: Counter[str] = Counter()
    for status, word in named.items():
        amounts[word] += digest.counts.get(status, 0)
    parts = [f"{amount:,} {word}" for word, amount in amounts.items() if amount]
    if digest.snapshots:
        snapshot_text = "snapshot does not hold" if digest.snapshots == 1 else "snapshots do not hold"
        parts.append(f"{digest.snapshots:,} {snapshot_text}")
    if digest.comparisons:
        text = f"{count(digest.total, words.trial)}: {', '.join(parts)}"
    else:
        share = f"{digest.as_expected:,} of {count(digest.counting, words.trial)} {words.passed}"
        text = f"{share}; {', '.join(parts)}" if parts else share
    if not digest.mistakes:
        return text
    return f"{text}; {count(digest.mistakes, words.trial)} failed by a mistake in a check, not by the agent"


# A trial of an arm has passed or failed, whatever was expected of the arm.
_ENDED = {
    "passed": "passed",
    "unexpected-passed": "passed",
    "failed": "failed",
    "expected-failed": "failed",
    "errored": "errored",
    "not-run": "not run",
    "void": "void",
}

_OTHERWISE = {
    "failed": "failed",
    "unexpected-passed": "passed unexpectedly",
    "errored": "errored",
    "not-run": "not run",
    "void": "void",
}


def run_argument(info: RunInfo, cwd: Path) -> str:
    """Return how a command names this run: not at all if it finds the newest one by itself."""
    # Settings beside the suite may put the run where commands do not look.
    usual = path_for_people(info.run_dir.parent, cwd) == ".whet/runs"
    return "" if usual else f" {shlex.quote(path_for_people(info.run_dir, cwd))}"


def resume_command(info: RunInfo, place: str) -> str:
    """Return the command that resumes the run at *place*."""
    return shlex.join(("whet", info.command, *info.resume_options, "--resume", place))


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
