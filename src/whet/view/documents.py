"""The documents that pages show, as JSON: the same for `whet view`, for files, and for the service.

Addresses and fields are in docs/reference/view.md. An unknown figure is null, never 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct, field

from whet.decide.scores import ArmScore
from whet.model.callable import Interval
from whet.model.comparison import Comparison, Decision, PairFigures, RoundAnalysis, Stop, Until
from whet.model.grade import Rate, Status, TriggerFigures
from whet.model.run import RunWarning, SnapshotOutcome
from whet.model.session import SessionSummary
from whet.model.skills import SkillLoads
from whet.model.spending import Spender, Spending
from whet.model.suite import Part
from whet.record.contents.differences import ContentDifference
from whet.record.document import WrittenLift, WrittenTrial
from whet.record.judging.tries import JudgeTry
from whet.record.notes import Note
from whet.record.read.ratings import ItemRating
from whet.record.read.rows import RowKey
from whet.report.decisions.verdicts import VerdictWord

Schema = Literal["whet/view/1"]
SCHEMA: Schema = "whet/view/1"
# A run of the service may also wait, fail to start, or be cancelled.
RunStatus = Literal["running", "completed", "interrupted", "unfinished", "unreadable", "queued", "failed", "cancelled"]


def address(*parts: str) -> str:
    """Return the address of a document; each part is encoded by itself, also its slashes."""
    return "/".join(map(_quote_part, parts))


# The trials of a run share most parts of their addresses.
@lru_cache(maxsize=4096)
def _quote_part(part: str) -> str:
    return quote(part, safe="", errors="replace")


def trial_parts(key: RowKey) -> tuple[str, str, str, str]:
    """Return the parts of an address that name a trial."""
    return key.case, key.runner, key.arm, str(key.number)


def trial_key(key: RowKey) -> str:
    """Return the name of a trial as addresses have it."""
    return address(*trial_parts(key))


class ViewDocument(Struct, kw_only=True):
    """What the document of every page has."""

    schema: Schema = SCHEMA


class ShownRate(Struct, kw_only=True):
    """A share of trials with its 95 % interval."""

    value: float
    low: float
    high: float
    passed: int | None = None
    total: int | None = None


class ShownDecision(Struct, kw_only=True):
    """What a run says of a candidate: on several runners, what it says of the one where it is worst."""

    candidate: str
    baseline: str
    runner: str | None
    verdict: Decision
    # With a goal, whether it was reached: cheaper, dearer and so on.
    word: VerdictWord
    difference: float
    low: float
    high: float
    # What the page of the run says of the candidate: how often it went as expected, or its mean score if `scored`.
    rate: Interval
    scored: bool


class ShownBill(Struct, kw_only=True):
    """What one of those who ask models was paid for, and how many of its costs are not known."""

    who: Spender
    cost_usd: float | None
    unknown: int


def shown_bills(spending: Spending) -> tuple[ShownBill, ...]:
    """Return the bills of those who spent something, or may have."""
    return tuple(
        ShownBill(who=who, cost_usd=bill.cost_usd, unknown=bill.unknown)
        for who, bill in spending.bills()
        if bill.cost_usd or bill.unknown
    )


class ShownRun(Struct, kw_only=True):
    """A run in a list."""

    id: str
    suite: str | None = None
    suite_path: str | None = None
    command: str | None = None
    status: RunStatus
    started_at: str | None = None
    ended_at: str | None = None
    duration_s: float | None = None
    passed: bool | None = None
    counts: dict[str, int] = field(default_factory=dict)
    rate: ShownRate | None = None
    cost_usd: float | None = None
    spent: tuple[ShownBill, ...] = ()
    arms: tuple[str, ...] = ()
    # That of the best candidate, and that of each.
    decision: ShownDecision | None = None
    decisions: tuple[ShownDecision, ...] = ()
    # The skill of its candidate, and the commit that the skill is of.
    skill: str | None = None
    commit: str | None = None
    label: str | None = None
    problem: str | None = None
    # What only the service knows.
    suite_id: str | None = None
    suite_version: int | None = None
    asked_by: str | None = None
    # The label by which the skill was asked for.
    skill_label: str | None = None
    cancelling: bool = False


class RunList(ViewDocument, kw_only=True):
    """The runs that there are, newest first."""

    project: str
    runs: tuple[ShownRun, ...]
    # How many improve runs there are; they have a list of their own.
    improve_runs: int = 0


class ShownArm(Struct, kw_only=True):
    """One of the versions that a run compares."""

    name: str
    baseline: bool
    differs_by: dict[str, str]
    commit: str | None
    skill: str | None


class ErroredGroup(Struct, kw_only=True):
    """Trials that errored for one reason, and the message of the first."""

    cause: str
    code: str
    count: int
    message: str


class ShownRunner(Struct, kw_only=True):
    """An agent with its model."""

    id: str
    agent: str | None = None
    model: str | None = None


class TrialLine(Struct, array_like=True, kw_only=True):
    """A trial in a table: an array, because there may be very many."""

    number: int
    status: Status
    score: float | None
    duration_s: float | None
    tokens: int | None
    cost_usd: float | None
    steps: int | None
    failure_code: str | None
    failure_cause: str | None
    failure_class: str | None
    # What to read first, and what follows it, as far as a search needs it.
    reason: str | None
    more: str | None
    # How the first attempt ended that did not error: rates and comparisons count this one.
    counting: Status
    attempts: int
    # What the author calls the failure.
    label: str | None


class ShownExecution(Struct, kw_only=True):
    """A case on one runner in one arm."""

    runner: str
    arm: str
    status: Status | Literal["not-run", "void"]
    passed: bool
    score: float | None
    rate: Rate | None
    snapshot: SnapshotOutcome | None
    planned: int | None
    trials: tuple[TrialLine, ...]


class ShownCase(Struct, kw_only=True):
    """A case with its executions."""

    id: str
    tags: tuple[str, ...]
    weight: float | None
    lost_checks: tuple[str, ...] = ()
    split: Part | None = None
    passed: bool
    executions: tuple[ShownExecution, ...]


class ArmDifferences(Struct, kw_only=True):
    """What differs between a candidate and its baseline, in one line and one by one."""

    candidate: str
    baseline: str
    differs: str
    differences: tuple[ContentDifference, ...]


class ShownCommand(Struct, kw_only=True):
    """What to type to do something about a run or a trial."""

    does: str
    command: str


class ArmRatings(Struct, kw_only=True):
    """How the items of rubrics were rated in an arm on a runner."""

    arm: str
    runner: str
    items: tuple[ItemRating, ...]


class RunDocument(ViewDocument, kw_only=True):
    """A run with all its trials."""

    run: ShownRun
    facts: tuple[tuple[str, str], ...] = ()
    arms: tuple[ShownArm, ...] = ()
    differences: tuple[ArmDifferences, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    lift: tuple[WrittenLift, ...] = ()
    looks: tuple[RoundAnalysis, ...] = ()
    until: Until | None = None
    stopped: Stop | None = None
    scores: tuple[ArmScore, ...] = ()
    skill_loads: tuple[SkillLoads, ...] = ()
    triggers: tuple[TriggerFigures, ...] = ()
    voided: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Of a judge that is the agent on trial, or of its family.
    warnings: tuple[RunWarning, ...] = ()
    # What was found when the judge was asked again, the newest first.
    judge_tries: tuple[JudgeTry, ...] = ()
    # What a judge said of answers beside stored ones; what it said of two arms is in their comparison.
    references: tuple[PairFigures, ...] = ()
    errored: tuple[ErroredGroup, ...] = ()
    # If arms were compared and a judge rated items of a rubric.
    ratings: tuple[ArmRatings, ...] = ()
    runners: tuple[ShownRunner, ...] = ()
    cases: tuple[ShownCase, ...] = ()
    offset: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    previous: str | None = None
    # What only the machine of the run can do.
    commands: tuple[ShownCommand, ...] = ()


class RunningTrial(Struct, kw_only=True):
    """A trial under way, by its key, and when its last attempt began."""

    key: str
    since: str


class RowsDocument(ViewDocument, kw_only=True):
    """The trials that ended since a place in the journal; each row has case, runner and arm before it."""

    offset: int
    status: RunStatus
    # The figures of the whole run so far, if they may have changed.
    run: ShownRun | None = None
    rows: tuple[list[Any], ...]
    running: tuple[RunningTrial, ...] = ()
    looks: tuple[RoundAnalysis, ...] = ()


class ShownPrompt(Struct, kw_only=True):
    """What is known of the case of a trial."""

    id: str
    tags: tuple[str, ...]
    prompt: str | None
    turns: tuple[str, ...] = ()
    description: str | None = None


class Siblings(Struct, kw_only=True):
    """The trials before and after, and those of them that did not go as expected."""

    before: str | None = None
    after: str | None = None
    before_failure: str | None = None
    after_failure: str | None = None


class ShownChanges(Struct, kw_only=True):
    """What an agent changed in its workspace."""

    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


class ShownFile(Struct, kw_only=True):
    """A file of an attempt."""

    path: str
    size: int


class ShownAttempt(Struct, kw_only=True):
    """One try at a trial, with what it left."""

    number: int
    dir: str
    events: str | None = None
    session: SessionSummary | None = None
    changes: ShownChanges = field(default_factory=ShownChanges)
    diff: str = ""
    diff_cut: bool = False
    files: tuple[ShownFile, ...] = ()
    files_cut: bool = False
    stderr: str = ""
    final_output: str = ""
    problem: str | None = None


class ShownSource(Struct, kw_only=True):
    """Lines of a suite around the place where a check decided, as the run found them."""

    file: str
    line: int
    first: int = 0
    lines: tuple[str, ...] = ()
    function: str | None = None


class TrialDocument(ViewDocument, kw_only=True):
    """A trial with all that it left, but its events."""

    run: str
    suite: str | None
    key: RowKey
    trial: WrittenTrial | None = None
    # Whether it is of the baseline, which may fail.
    baseline: bool = False
    # If it has not ended yet: when its attempt began.
    since: str | None = None
    case: ShownPrompt
    siblings: Siblings = field(default_factory=Siblings)
    others: tuple[str, ...] = ()
    attempts: tuple[ShownAttempt, ...] = ()
    notes: tuple[Note, ...] = ()
    sources: tuple[ShownSource, ...] = ()
    # What only the machine of the run knows.
    commands: tuple[ShownCommand, ...] = ()
    problem: str | None = None


class CheckCount(Struct, kw_only=True):
    """How often a check held."""

    check: str
    held: int
    total: int


class ReasonGroup(Struct, kw_only=True):
    """Trials that did not pass for the same reason, and what the first of them saw."""

    reason: str
    status: Status
    first: str
    seen: str = ""
    count: int = 0


class ShownCaseExecution(Struct, kw_only=True):
    """The trials of a case on one runner in one arm: their checks, why they failed, and a typical one."""

    runner: str
    arm: str
    baseline: bool
    trials: int
    checks: tuple[CheckCount, ...]
    reasons: tuple[ReasonGroup, ...]
    typical: str
    items: tuple[ItemRating, ...] = ()


class CaseByArms(ViewDocument, kw_only=True):
    """A case in each arm, and a trial that passed beside one that failed."""

    run: str
    suite: str | None
    case: str
    executions: tuple[ShownCaseExecution, ...]
    beside: tuple[str, str] | None = None


class MovedCase(Struct, kw_only=True):
    """A case whose rate is another one in the later run."""

    case: str
    runner: str | None
    # If both runs have several.
    arm: str | None
    before: float
    after: float
    may_be_chance: bool
    # A trial of each run that ended differently.
    beside: tuple[str, str] | None = None


class CompareDocument(ViewDocument, kw_only=True):
    """Two runs beside each other; `refused` says why they cannot be compared."""

    a: ShownRun
    b: ShownRun
    comparisons: tuple[Comparison, ...] = ()
    refused: str | None = None
    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()
    moved: tuple[MovedCase, ...] = ()
    differs: str = ""
    differences: tuple[ContentDifference, ...] = ()
    costs: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Agreement(Struct, kw_only=True):
    """How often people came to the same verdict as whet."""

    judged: int
    agreed: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


class NotesDocument(ViewDocument, kw_only=True):
    """The notes of people on the trials of a run, by trial."""

    notes: dict[str, tuple[Note, ...]]
    agreement: Agreement


class MissingDocument(ViewDocument, kw_only=True):
    """Why there is no such document."""

    problem: str


def shown_rate(rate: Rate | Interval | None) -> ShownRate | None:
    """Return a rate as it is shown."""
    if rate is None:
        return None
    shown = ShownRate(value=rate.value, low=rate.low, high=rate.high)
    if isinstance(rate, Rate):
        shown.passed, shown.total = rate.passed, rate.total
    return shown
