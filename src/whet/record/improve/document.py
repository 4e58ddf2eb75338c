"""improve.json: what an improve run was asked, what it did step by step, and what came of it.

The file is written anew after each step, in one go. Its `steps` are chained: each has a hash of the one before it, so
that `whet verify` says where a record was changed.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from whet.model.callable import Interval
from whet.model.comparison import Decision, Stop

SCHEMA = "whet/improve/1"
FILE = "improve.json"
REPORT_MD, REPORT_HTML, PATCH = "report.md", "report.html", "accepted.patch"
# The version that a round starts from, in races and in the records of runs.
CURRENT = "current"

SkillPart: TypeAlias = Literal["description", "body", "all"]
ImproveGoal: TypeAlias = Literal["better", "cheaper"]
# On which cases a version must be better: on the held-out cases, or on cases like these too.
AcceptRule: TypeAlias = Literal["these", "like-these"]
Phase: TypeAlias = Literal[
    "ready", "split", "eval_current", "generating", "linting", "racing", "confirming", "sealed", "done"
]
Outcome: TypeAlias = Literal["succeeded", "no_winner", "undecided", "refused", "failed", "interrupted", "proposed"]
LintRule: TypeAlias = Literal["leak", "case-names", "size", "scripts", "shape", "secrets", "part"]
# What became of a candidate: those that are fit wait for the race.
Fate: TypeAlias = Literal["proposed", "dud", "same", "refused", "fit", "raced", "chosen", "accepted", "rejected"]


class ImproveOptions(Struct, frozen=True, kw_only=True):
    """What an improve run was asked for; the options of `whet improve` by their names."""

    part: SkillPart
    goal: ImproveGoal
    candidates: int
    rounds: int
    max_cost_usd: float | None
    accept: AcceptRule
    no_regression: tuple[str, ...] = ()
    allow_scripts: bool = False
    strict_leak: bool = False
    allow_self_judge: bool = False
    # In rates from 0 to 1.
    effect: float = 0.10
    margin: float = 0.10
    max_rounds: int = 10
    engine: Literal["race", "gepa"] = "race"
    # Folders that people wrote, instead of candidates that a proposer makes.
    own_candidates: tuple[str, ...] = ()
    propose_only: bool = False


class SplitFacts(Struct, frozen=True, kw_only=True):
    """The parts of the suite when the run began."""

    lock: str
    digest: str
    practice: tuple[str, ...]
    held_out: tuple[str, ...]
    sealed: tuple[str, ...] = ()


class LintFinding(Struct, frozen=True, kw_only=True):
    """Why a candidate is refused; `told` is what the proposer of a later round may know of it."""

    rule: LintRule
    message: str
    told: str


class PracticeScore(Struct, frozen=True, kw_only=True):
    """The mean over practice cases, each case alike, of so many trials that came to a verdict.

    The cost is that of a trial, on average over cases; None if it is not known.
    """

    score: float
    trials: int
    cost_usd: float | None = None


class CandidateRecord(Struct, frozen=True, kw_only=True):
    """A version of the skill that a round looked at."""

    id: str
    # Of the content of its folder; empty for a dud.
    digest: str
    fate: Fate
    # Of the skill that the round started from: a unified diff, and how many tokens it is longer.
    diff: str = ""
    token_growth: int = 0
    # The short list of changes and reasons that the proposer gave.
    changes: str = ""
    lint: tuple[LintFinding, ...] = ()
    practice: PracticeScore | None = None
    # Why it is a dud, or the same as which other one.
    reason: str | None = None
    cost_usd: float | None = None


class HeldOutCase(Struct, frozen=True, kw_only=True):
    """How a held-out case went, without its prompt."""

    case: str
    before: float
    after: float


class ConfirmRecord(Struct, frozen=True, kw_only=True):
    """The decision between one candidate and the version that the round started from, on held-out cases."""

    # Which confirm step on this split it is, and the share of the error that it may make.
    step: int
    error: float
    verdict: Decision
    difference: float
    low: float
    high: float
    like_these: Interval | None = None
    cost_ratio: Interval | None = None
    looks: int = 0
    trials: int = 0
    stop: Stop | None = None
    cases: tuple[HeldOutCase, ...] = ()
    # The cases of --no-regression that have become worse.
    regressed: tuple[str, ...] = ()
    # Why a version that is better was not accepted, such as a case that has regressed; empty if it was accepted.
    objections: tuple[str, ...] = ()
    # The record of the run, from the folder of the improve run.
    run: str = ""


class RoundRecord(Struct, frozen=True, kw_only=True):
    """One round: candidates, the race, and what was confirmed; `accepted` is the id of a candidate."""

    number: int
    # The digest of the version that it started from.
    start: str
    candidates: tuple[CandidateRecord, ...] = ()
    current: PracticeScore | None = None
    chosen: str | None = None
    # Which confirm step on this split it is, and the share of the error that it may make; known before it begins.
    step: int | None = None
    error: float | None = None
    confirm: ConfirmRecord | None = None
    accepted: str | None = None


class SealedRecord(Struct, frozen=True, kw_only=True):
    """The last version beside the first one on sealed cases: reported, and nothing is decided by it."""

    before: float
    after: float
    difference: float
    low: float
    high: float
    trials: int
    run: str = ""


class ImproveStep(Struct, frozen=True, kw_only=True):
    """A phase that was done, with what it took; `chain` is a hash of the step before it and of this one."""

    phase: Phase
    round: int | None
    began_at: str
    ended_at: str
    cost_usd: float | None
    trials: int = 0
    # The record of its run, from the folder of the improve run.
    run: str | None = None
    # Of what the step added to this document.
    digest: str = ""
    chain: str = ""


class ImproveDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """All of improve.json."""

    id: str
    began_at: str
    ended_at: str | None = None
    whet: str
    skill: str
    skill_name: str
    # The digest of the skill when the run began.
    start: str
    suite: str
    suite_name: str
    # Of what its cases asked and checked when the run began.
    suite_digest: str = ""
    runner: str
    proposer: str | None
    # What else a resumed run needs: the settings that were given by name, and by flags.
    config_file: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    seed: int
    options: ImproveOptions
    warnings: tuple[str, ...] = ()
    split: SplitFacts | None = None
    # The score of the current skill on practice cases.
    baseline: PracticeScore | None = None
    # Null once it has ended; a run that was interrupted, or ran out of money, goes on with it.
    phase: Phase | None = "ready"
    rounds: tuple[RoundRecord, ...] = ()
    sealed: SealedRecord | None = None
    outcome: Outcome | None = None
    # Why it ended so, in a sentence, and what to do.
    reason: str | None = None
    hint: str | None = None
    error_spent: float = 0.0
    cost_usd: float = 0.0
    steps: tuple[ImproveStep, ...] = ()
