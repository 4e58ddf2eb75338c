"""Grades, failures, verdicts, and the rates and lifts that are computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import Struct, field

from whet.errors import Cause, Phase
from whet.model.callable import Interval

Status = Literal["passed", "failed", "expected-failed", "unexpected-passed", "errored"]
STATUSES: tuple[Status, ...] = get_args(Status)
AS_EXPECTED: frozenset[Status] = frozenset({"passed", "expected-failed"})
PASSED: frozenset[Status] = frozenset({"passed", "unexpected-passed"})
# The codes of failures that no error stands for: a check does not hold, and a case that should fail passed.
CHECKS_FAILED = "assertion"
PASSED_UNEXPECTEDLY = "unexpected-passed"
# A trial that errored went neither as expected nor otherwise: it says nothing.
UNEXPECTED: frozenset[Status] = frozenset({"failed", "unexpected-passed"})


class Location(Struct, frozen=True, kw_only=True):
    """A line of a file."""

    file: str
    line: int


class ExplainQuestion(Struct, frozen=True, kw_only=True):
    """A question for the agent, with the message and the place of the failed expectation that asks it."""

    question: str
    location: Location | None = None
    expectation: str | None = None


class FailureClass(Struct, frozen=True, kw_only=True):
    """An author's label that groups failures with one root."""

    id: str
    label: str | None = None

    @property
    def title(self) -> str:
        """The label, or the id if there is none."""
        return self.label or self.id


class Failure(Struct, frozen=True, kw_only=True):
    """Why a trial did not go as its checks ask: in which phase, what happened, and who caused it."""

    phase: Phase
    # The code of an error, or one of the two above.
    code: str
    cause: Cause
    message: str
    location: Location | None = None
    traceback: str | None = None

    @property
    def is_of_checks(self) -> bool:
        """Whether checks decided, and found that something does not hold."""
        return self.code == CHECKS_FAILED


class Grade(Struct, frozen=True, kw_only=True):
    """A grader's decision on one check; `undecided` if it could not decide."""

    check: str
    value: float
    passed: bool
    reason: str = ""
    evidence: str | None = None
    location: Location | None = None
    failure_class: FailureClass | None = None
    duration_s: float | None = None
    weight: float = 1.0
    undecided: bool = False
    # The turn of a conversation that the check belongs to, if it belongs to one.
    turn: int | None = None
    # The places of the events of the session that it looked at, as far as that is known.
    events: tuple[int, ...] = ()


class Rate(Struct, frozen=True, kw_only=True):
    """A share of successes as an interval: `value` with the 95 % bounds `low` and `high`, without errored trials.

    `if_errored_failed` and `if_errored_passed` are its bounds: what it would be had all of those failed, or passed.
    `first_passed` of `first_total` went as expected at the first attempt, and `flaky` ones only at a later one.
    """

    passed: int
    total: int
    value: float
    low: float
    high: float
    errored: int
    if_errored_failed: float
    if_errored_passed: float
    first_passed: int
    first_total: int
    flaky: int


class Changes(Struct, frozen=True, kw_only=True):
    """Paths are relative to the workspace, with `/`, sorted; the `.git` at its top is left out.

    `diff` is a unified diff of what can be shown as text and is not too large; what is left out is said in a line.
    """

    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    diff: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that changed, sorted."""
        return tuple(sorted((*self.created, *self.modified, *self.deleted)))

    def __bool__(self) -> bool:
        return bool(self.created or self.modified or self.deleted)

    def __len__(self) -> int:
        return len(self.created) + len(self.modified) + len(self.deleted)


class CaseLift(Struct, frozen=True, kw_only=True):
    """One case in both arms."""

    case: str
    skill: float
    no_skill: float
    weight: float

    @property
    def value(self) -> float:
        """By how much the skill made it better, or worse."""
        return self.skill - self.no_skill


class Lift(Struct, frozen=True, kw_only=True):
    """A difference: the score with the skill less the score without it, for one runner and the cases that have both.

    `low` and `high` are its 95 % interval on these cases, as in a comparison. `unpaired` are the cases that lack a
    score in one of the arms, because it errored, was not run, or asks about nothing but the skill itself.
    Checks of whether the skill was triggered do not count in it: `triggered` of `asked` held with the skill.
    """

    runner: str
    value: float
    low: float | None
    high: float | None
    skill: float
    no_skill: float
    cases: tuple[CaseLift, ...]
    unpaired: tuple[str, ...] = ()
    triggered: int = 0
    asked: int = 0

    @property
    def better(self) -> int:
        """How many cases the skill made better."""
        return sum(case.value > 0 for case in self.cases)

    @property
    def worse(self) -> int:
        """How many cases the skill made worse."""
        return sum(case.value < 0 for case in self.cases)

    @property
    def same(self) -> int:
        """How many cases it left as they were."""
        return len(self.cases) - self.better - self.worse


class QueryLoads(Struct, frozen=True, kw_only=True):
    """How often the skill of an arm was loaded for one case that says whether it should be.

    Of `sessions`, `told` ones show what they load. `others` are other skills, each with the number of its sessions.
    """

    case: str
    wanted: bool
    loaded: int = 0
    told: int = 0
    sessions: int = 0
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Whether every session that tells loaded the skill, or none did, as the case asks."""
        return self.loaded == (self.told if self.wanted else 0)

    def __add__(self, other: QueryLoads) -> QueryLoads:
        """Add more sessions of the same case."""
        others = {
            name: self.others.get(name, 0) + other.others.get(name, 0) for name in {**self.others, **other.others}
        }
        return QueryLoads(
            case=self.case,
            wanted=self.wanted,
            loaded=self.loaded + other.loaded,
            told=self.told + other.told,
            sessions=self.sessions + other.sessions,
            others=others,
        )


class TriggerFigures(Struct, frozen=True, kw_only=True):
    """How well an agent loads the skill of an arm, over all cases that say whether it should be loaded.

    Of the sessions that tell, `rightly` ones loaded it as their case asks and `wrongly` ones although it forbids that;
    `missed` ones did not load it although they should, and `left_alone` ones rightly did not. Others are `unknown`.
    """

    arm: str
    runner: str
    precision: Interval | None
    recall: Interval | None
    f1: Interval | None
    rightly: int
    wrongly: int
    missed: int
    left_alone: int
    unknown: int
    queries: tuple[QueryLoads, ...]
