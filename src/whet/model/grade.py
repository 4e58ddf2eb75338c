"""How it went: grades, failures and verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["passed", "failed", "expected-failed", "unexpected-passed", "errored"]
STATUSES: tuple[Status, ...] = ("passed", "failed", "expected-failed", "unexpected-passed", "errored")
AS_EXPECTED: frozenset[Status] = frozenset({"passed", "expected-failed"})
PASSED: frozenset[Status] = frozenset({"passed", "unexpected-passed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of somebody's file."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureClass:
    """An author's label that groups failures with one root."""

    id: str
    label: str | None = None

    @property
    def title(self) -> str:
        """The label, or the id where there is none."""
        return self.label or self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial did not go as its checks ask: where it happened, what, and whose doing it was."""

    phase: str
    code: str
    cause: str
    message: str
    location: Location | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A grader's decision on one check; `undecided` where it could not come to one, and says so instead of guessing."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share of successes with its 95 % interval; errored trials are left out of it.

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
