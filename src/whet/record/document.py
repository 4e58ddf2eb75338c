"""The classes of results.json: whet writes and reads the document through them.

Fields have the names that users see. `python bench/schemas.py` makes the JSON Schema of these classes, and has a
sentence about each field. Objects of the model, such as `Grade`, are written as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, convert, field

from whet.decide.scores import ArmScore
from whet.model.comparison import Comparison, PairFigures, RoundAnalysis, Stop, Until
from whet.model.grade import Failure, FailureClass, Grade, Rate, Status, TriggerFigures
from whet.model.run import RunWarning, ScheduleName, SnapshotOutcome
from whet.model.session import TokenSource, UserOutcome
from whet.model.skills import EarlyEnd, SkillDetection, SkillLoads
from whet.model.spending import Spender
from whet.model.suite import CaseSource, Part

T = TypeVar("T")
RESULTS_FORMAT = "whet/results/2"
# What the document has between its parts: around its cases, and around the hash that it ends in.
CASES_OPENING, RECORD_OPENING = b',\n  "cases": [', b'\n  ],\n  "record": '
DIGEST_OPENING, DIGEST_CLOSING = b',"digest":"', b'"}\n}\n'


def to_document(value: Any, kind: type[T]) -> T:
    """Return the document of *kind* for *value*, whose attributes have the names of its fields."""
    return convert(value, kind, from_attributes=True)


def round_seconds(value: float) -> float:
    """Round a duration to microseconds, as it is written everywhere."""
    return round(value, 6)


class WrittenUsage(Struct, kw_only=True):
    """Tokens and money, as far as they are known; null is unknown, never 0."""

    total_tokens: int | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None
    cost_source: Literal["agent", "prices"] | None
    sources: dict[str, TokenSource]


class WrittenBill(Struct, kw_only=True):
    """What one of those who ask models was paid for."""

    cost_usd: float | None
    unknown: int
    usage: WrittenUsage


class WrittenSpending(Struct, kw_only=True):
    """What was paid for, by who asked for it."""

    cost_usd: float | None
    unknown: int
    agents: WrittenBill
    judge: WrittenBill
    users: WrittenBill
    interrupted: WrittenBill
    explain: WrittenBill


class WrittenAttempt(Struct, kw_only=True):
    """One try at a trial."""

    number: int
    status: Status
    duration_s: float
    artifact_dir: str
    workspace_dir: str | None
    failure: Failure | None
    usage: WrittenUsage
    unpaid_usage: WrittenUsage
    user_usage: WrittenUsage
    judge_usage: WrittenUsage
    unpriced: tuple[Spender, ...]
    value: float | None

    def __post_init__(self) -> None:
        self.duration_s = round_seconds(self.duration_s)


class WrittenUser(Struct, kw_only=True):
    """How a conversation with a user that a model plays ended."""

    outcome: UserOutcome | None
    reason: str
    model: str | None
    usage: WrittenUsage
    flags: tuple[str, ...]


class WrittenTrial(Struct, kw_only=True):
    """One planned sample of an execution that has ended."""

    number: int
    status: Status
    passed: bool
    score: float | None
    flaky: bool
    failure: Failure | None
    failure_class: FailureClass | None
    grades: tuple[Grade, ...]
    usage: WrittenUsage
    cost_usd: float | None = None
    total_usage: WrittenUsage
    steps: int
    detected_skills: tuple[SkillDetection, ...]
    skill_shown: bool | None
    skill_loaded: bool | None = None
    skill_unwanted: bool = False
    skill_wanted: bool = False
    other_skills: tuple[str, ...] = ()
    skills_listed: bool = False
    started_at: str
    duration_s: float
    session_s: float | None
    final_output: str
    changed_files: int
    vacuous: bool
    artifact_dir: str
    workspace_dir: str | None
    attempts: tuple[WrittenAttempt, ...]
    notes: tuple[str, ...]
    turns: int
    user: WrittenUser | None
    ended_early: EarlyEnd | None = None

    def __post_init__(self) -> None:
        self.cost_usd = self.usage.cost_usd
        self.duration_s = round_seconds(self.duration_s)
        self.session_s = None if self.session_s is None else round_seconds(self.session_s)


class ExecutionHead(Struct, kw_only=True):
    """A case on one runner in one arm, with what the journal does not say of it."""

    runner: str
    arm: str
    agent: str
    model: str | None
    planned_trials: int
    snapshot: SnapshotOutcome | None


class WrittenExecution(ExecutionHead, kw_only=True):
    """A case on one runner in one arm, with its trials."""

    status: Status | Literal["not-run", "void"]
    passed: bool
    score: float | None
    rate: Rate | None
    trials: tuple[WrittenTrial, ...] = ()


class CaseHead(Struct, kw_only=True):
    """A case without its executions."""

    id: str
    tags: tuple[str, ...]
    weight: float
    lost_checks: tuple[str, ...] = ()
    split: Part | None = None
    source: CaseSource | None = None
    edited: bool = False


class WrittenCase(CaseHead, kw_only=True):
    """A case with its executions."""

    passed: bool
    executions: tuple[WrittenExecution, ...] = ()


class WrittenCaseLift(Struct, kw_only=True):
    """What the skill adds to one case."""

    case: str
    skill: float
    no_skill: float
    value: float
    weight: float


class WrittenLift(Struct, kw_only=True):
    """What the skill adds, for one runner."""

    runner: str
    value: float
    low: float | None
    high: float | None
    skill: float
    no_skill: float
    better: int
    worse: int
    same: int
    unpaired: tuple[str, ...]
    triggered: int
    asked: int
    cases: tuple[WrittenCaseLift, ...]


class WrittenCounts(Struct, kw_only=True):
    """How many trials ended with each status."""

    passed: int
    failed: int
    expected_failed: int
    unexpected_passed: int
    errored: int
    not_run: int
    void: int = 0
    total: int


class RecordFacts(Struct, kw_only=True):
    """What the results were made of, so that a change shows."""

    # A negative number would count from the end.
    lines: Annotated[int, Meta(ge=0)]
    hash: str | None
    run: str | None
    workspaces: dict[str, str] = field(default_factory=dict)


class WrittenRecord(RecordFacts, kw_only=True):
    """What the results were made of, and a hash of the document."""

    digest: str


class WrittenArm(Struct, kw_only=True):
    """One of the versions that a run compares."""

    name: str
    commit: str | None
    differs_by: dict[str, str]


class ResultsPart(Struct, kw_only=True):
    """A part of the document: of another format, none can be read."""

    schema: Literal["whet/results/2"] = "whet/results/2"


class RunHead(ResultsPart, kw_only=True):
    """A run with what the journal does not say of it."""

    run_id: str
    suite: str
    suite_path: str
    whet_version: str
    sandbox: str
    started_at: str
    ended_at: str
    duration_s: float
    interrupted: bool
    schedule: ScheduleName
    max_parallel: int
    arms: tuple[WrittenArm, ...]
    baseline: str | None
    compares: bool = False
    seed: int | None
    grown_from: tuple[int, ...]
    until: Until | None = None
    stopped: Stop | None = None
    voided: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # How many of a hundred verdicts its judge has wrong, as the settings said; comparisons allow for it.
    judge_error: float | None = None
    warnings: tuple[RunWarning, ...] = ()


class RunFigures(RunHead, kw_only=True):
    """A run with its figures."""

    passed: bool
    counts: WrittenCounts
    check_mistakes: int = 0
    total_usage: WrittenUsage
    interrupted_usage: WrittenUsage
    unpaid_usage: WrittenUsage
    user_usage: WrittenUsage
    spending: WrittenSpending
    skill_loads: tuple[SkillLoads, ...] = ()
    triggers: tuple[TriggerFigures, ...] = ()
    scores: tuple[ArmScore, ...]
    lift: tuple[WrittenLift, ...]
    comparisons: tuple[Comparison, ...]
    # What a judge said of pairs of answers, which enters nothing above.
    pairwise: tuple[PairFigures, ...] = ()
    looks: tuple[RoundAnalysis, ...]


class WrittenRun(RunFigures, kw_only=True):
    """The result of one run."""

    cases: tuple[WrittenCase, ...]
    record: WrittenRecord
