"""The documents that pages show, as JSON: the same for `whet view`, for files, and for the service.

Addresses and fields are in docs/reference/view.md. An unknown figure is null, never 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct, field

from whet.grade.scores import ArmScore
from whet.model.benchmark import Interval
from whet.model.comparison import Comparison, Decision, Look, Stop, Until
from whet.model.grade import Rate, Status
from whet.model.run import SnapshotOutcome
from whet.model.session import SessionSummary
from whet.model.spending import Spender, Spending
from whet.record.notes import Note
from whet.record.results_document import WrittenLift, WrittenTrial
from whet.record.rows import RowKey

Schema = Literal["whet/view/1"]
SCHEMA: Schema = "whet/view/1"
# A run of the service may also wait, fail to start, or be cancelled.
RunStatus = Literal["running", "completed", "interrupted", "unfinished", "unreadable", "queued", "failed", "cancelled"]


def address(*parts: str) -> str:
    """Return the address of a document; each part is encoded by itself, also its slashes."""
    return "/".join(map(_quoted, parts))


# The trials of a run share most parts of their addresses.
@lru_cache(maxsize=4096)
def _quoted(part: str) -> str:
    return quote(part, safe="", errors="replace")


def trial_parts(key: RowKey) -> tuple[str, str, str, str]:
    """Return the parts of an address that name a trial."""
    return key.case, key.runner, key.arm, str(key.number)


def trial_key(key: RowKey) -> str:
    """Return the name of a trial as addresses have it."""
    return address(*trial_parts(key))


class Document(Struct, kw_only=True):
    """What every document has."""

    schema: Schema = SCHEMA


class ShownRate(Struct, kw_only=True):
    """A share of trials with its 95 % interval."""

    value: float
    low: float
    high: float
    passed: int | None = None
    total: int | None = None


class ShownDecision(Struct, kw_only=True):
    """What the first comparison of a run says."""

    candidate: str
    baseline: str
    runner: str | None
    verdict: Decision
    difference: float
    low: float
    high: float


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


class RunHead(Struct, kw_only=True):
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
    decision: ShownDecision | None = None
    label: str | None = None
    problem: str | None = None
    # What only the service knows.
    suite_id: str | None = None
    suite_version: int | None = None
    asked_by: str | None = None
    cancelling: bool = False


class RunList(Document, kw_only=True):
    """The runs that there are, newest first."""

    project: str
    runs: tuple[RunHead, ...]


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


class Row(Struct, array_like=True, kw_only=True):
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
    reason: str | None


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
    trials: tuple[Row, ...]


class ShownCase(Struct, kw_only=True):
    """A case with its executions."""

    id: str
    tags: tuple[str, ...]
    weight: float | None
    passed: bool
    executions: tuple[ShownExecution, ...]


class RunDocument(Document, kw_only=True):
    """A run with all its trials."""

    run: RunHead
    facts: tuple[tuple[str, str], ...] = ()
    arms: tuple[ShownArm, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    lift: tuple[WrittenLift, ...] = ()
    looks: tuple[Look, ...] = ()
    until: Until | None = None
    stopped: Stop | None = None
    scores: tuple[ArmScore, ...] = ()
    voided: dict[str, tuple[str, ...]] = field(default_factory=dict)
    errored: tuple[ErroredGroup, ...] = ()
    runners: tuple[ShownRunner, ...] = ()
    cases: tuple[ShownCase, ...] = ()
    offset: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    previous: str | None = None


class RowsDocument(Document, kw_only=True):
    """The trials that ended since a place in the journal; each row has case, runner and arm before it."""

    offset: int
    status: RunStatus
    rows: tuple[list[Any], ...]
    looks: tuple[Look, ...] = ()


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


class TrialDocument(Document, kw_only=True):
    """A trial with all that it left, but its events."""

    run: str
    suite: str | None
    key: RowKey
    trial: WrittenTrial | None = None
    case: ShownPrompt
    siblings: Siblings = field(default_factory=Siblings)
    others: tuple[str, ...] = ()
    attempts: tuple[ShownAttempt, ...] = ()
    notes: tuple[Note, ...] = ()
    problem: str | None = None


class MovedCase(Struct, kw_only=True):
    """A case whose rate is another one in the later run."""

    case: str
    runner: str | None
    # If both runs have several.
    arm: str | None
    before: float
    after: float
    may_be_chance: bool


class CompareDocument(Document, kw_only=True):
    """Two runs beside each other; `refused` says why they cannot be compared."""

    a: RunHead
    b: RunHead
    comparisons: tuple[Comparison, ...] = ()
    refused: str | None = None
    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()
    moved: tuple[MovedCase, ...] = ()
    skill_diff: str = ""
    prompt_diff: str = ""
    costs: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class DecidedChange(Struct, kw_only=True):
    """How a run differs from the last one on other content."""

    verdict: Decision
    difference: float
    low: float
    high: float
    run: str
    # If it was run on several.
    runner: str | None = None


class HistoryPoint(Struct, kw_only=True):
    """One run of a suite."""

    run: str
    started_at: str | None
    commit: str | None
    skill: str | None
    rate: ShownRate | None
    # The arms that the rate is of, and how many of the suite's cases ran.
    arms: tuple[str, ...]
    cases: int
    cases_of_suite: int
    counts: dict[str, int]
    cost_usd: float | None
    spent: tuple[ShownBill, ...] = ()
    changed: DecidedChange | None
    content: str
    problem: str | None = None


class FlakyCase(Struct, kw_only=True):
    """An execution whose trials end differently on the same content: `changes` of `runs` pairs of runs."""

    case: str
    runner: str
    arm: str
    changes: int
    runs: int


class HistoryDocument(Document, kw_only=True):
    """The runs of a suite, oldest first."""

    suite: str
    points: tuple[HistoryPoint, ...]
    flaky: tuple[FlakyCase, ...] = ()


class Agreement(Struct, kw_only=True):
    """How often people came to the same verdict as whet."""

    judged: int
    agreed: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


class NotesDocument(Document, kw_only=True):
    """The notes of people on the trials of a run, by trial."""

    notes: dict[str, tuple[Note, ...]]
    agreement: Agreement


class Problem(Document, kw_only=True):
    """Why there is no such document."""

    problem: str


def shown_rate(found: Rate | Interval | None) -> ShownRate | None:
    """Return a rate as it is shown."""
    if found is None:
        return None
    counted = {"passed": found.passed, "total": found.total} if isinstance(found, Rate) else {}
    return ShownRate(value=found.value, low=found.low, high=found.high, **counted)
