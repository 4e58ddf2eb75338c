"""Grades, failures, verdicts, and the rates and lifts that are computed from them."""

from __future__ import annotations

from typing import Literal, get_args

from whet.dataclass import dataclass

Status = Literal["passed", "failed", "expected-failed", "unexpected-passed", "errored"]
STATUSES: tuple[Status, ...] = get_args(Status)
AS_EXPECTED: frozenset[Status] = frozenset({"passed", "expected-failed"})
PASSED: frozenset[Status] = frozenset({"passed", "unexpected-passed"})
# A trial that errored went neither as expected nor otherwise: it says nothing.
UNEXPECTED: frozenset[str] = frozenset({"failed", "unexpected-passed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of a file."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question for the agent, with the message and the place of the failed expectation that asks it."""

    question: str
    location: Location | None = None
    expectation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureClass:
    """An author's label that groups failures with one root."""

    id: str
    label: str | None = None

    @property
    def title(self) -> str:
        """The label, or the id if there is none."""
        return self.label or self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial did not go as its checks ask: in which phase, what happened, and who caused it."""

    phase: str
    code: str
    cause: str
    message: str
    location: Location | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLift:
    """One case in both arms."""

    case: str
    skill: float
    no_skill: float
    weight: float

    @property
    def value(self) -> float:
        """By how much the skill made it better, or worse."""
        return self.skill - self.no_skill


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
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
