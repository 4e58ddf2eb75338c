"""What is done: runners, the plan with its executions and trials, and the results of trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whet.model.ceilings import Ceilings
from whet.model.grade import AS_EXPECTED, Failure, FailureClass, Grade, Status
from whet.model.session import SkillDetection, Usage
from whet.model.suite import Case, Limits, Suite, WorkspaceSpec

ScheduleName = Literal["serial", "parallel", "isolated-by-runner"]
SCHEDULES: tuple[ScheduleName, ...] = ("serial", "parallel", "isolated-by-runner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A named target: an agent, its model and options."""

    id: str
    agent: str
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    skills: tuple[Path, ...] = ()


# How the note of a trial begins that a budget was set and the agent told no cost to hold it by.
UNHELD = "the budget was not held"
# The agent that does nothing, and the runner that stands in where nobody configured one.
NO_AGENT = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialKey:
    """The stable name of one planned sample: `suite::case@runner/variant#trial`."""

    suite: str
    case: str
    runner: str
    variant: str
    number: int

    def __str__(self) -> str:
        return f"{self.suite}::{self.case}@{self.runner}/{self.variant}#{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One case on one runner in one variant, with everything settled.

    `skill` is the one under test, where it is there. A `control` is run to be compared with: it may fail.
    """

    case: Case
    runner: Runner
    variant: str
    limits: Limits
    workspace: WorkspaceSpec
    trials: int
    skill: Path | None = None
    control: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One planned sample of an execution."""

    key: TrialKey
    execution: Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a run will do, settled before any of it starts; executions stand in declared order."""

    suite: Suite
    executions: tuple[Execution, ...]
    schedule: ScheduleName
    max_parallel: int
    retries: int
    check_timeout_s: float
    # The limit of each command that a claim runs.
    command_timeout_s: float = 300.0
    # Whether the first check of a trial that does not hold is the last one that is asked.
    fail_fast: bool = False
    # Whether a vacuous case is not even tried.
    strict: bool = False

    def trials(self) -> Iterator[Trial]:
        """Every trial, in declared order."""
        for execution in self.executions:
            for number in range(1, execution.trials + 1):
                yield Trial(key=self.key(execution, number), execution=execution)

    def key(self, execution: Execution, number: int) -> TrialKey:
        """The name of the *number*-th sample of *execution*."""
        return TrialKey(
            suite=self.suite.name,
            case=execution.case.id,
            runner=execution.runner.id,
            variant=execution.variant,
            number=number,
        )

    @property
    def trial_count(self) -> int:
        """How many trials there are."""
        return sum(execution.trials for execution in self.executions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a trial, as it is kept in the record."""

    number: int
    status: Status
    duration_s: float
    artifact_dir: str
    workspace_dir: str | None = None
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """How one trial ended: the deciding attempt, and all of them in order.

    `usage` is the deciding attempt's, so that sessions are compared with sessions; `total_usage` is what was paid for.
    `session_s` is how long its agent took, and `duration_s` how long all attempts did, with all that is around them.
    Paths are relative to the run folder, so that the folder can be moved.
    """

    key: TrialKey
    status: Status
    score: float | None
    duration_s: float
    started_at: str
    artifact_dir: str
    grades: tuple[Grade, ...] = ()
    failure: Failure | None = None
    failure_class: FailureClass | None = None
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    detected_skills: tuple[SkillDetection, ...] = ()
    final_output: str = ""
    workspace_dir: str | None = None
    changed_files: int = 0
    # Whether every check held before the agent began, so that it says nothing about the agent that they hold.
    vacuous: bool = False
    session_s: float | None = None
    attempts: tuple[Attempt, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Which sample of its execution this is, from 1."""
        return self.key.number

    @property
    def passed(self) -> bool:
        """Whether it went as expected."""
        return self.status in AS_EXPECTED

    @property
    def total_usage(self) -> Usage:
        """What all attempts took together."""
        total = self.usage
        for attempt in self.attempts[:-1]:
            total += attempt.usage
        return total

    @property
    def first_status(self) -> Status:
        """How its first attempt ended."""
        return self.attempts[0].status if len(self.attempts) > 1 else self.status

    @property
    def flaky(self) -> bool:
        """Whether it went as expected only after another attempt."""
        return self.passed and len(self.attempts) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What identifies a run and where its record lies."""

    run_id: str
    run_dir: Path
    suite: str
    suite_path: Path
    started_at: str
    sandbox: str
    version: str
    # Which command was asked for the run, for whoever is told how to go on.
    command: str = "run"
    # What to type after it to ask for the same again, and to go on with the run; a choice, or its place, follows.
    again: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()
    ceilings: Ceilings = field(default_factory=Ceilings)
    # The files that hold the settings, the project's first, and where the search for that one ended.
    settings_files: tuple[Path, ...] = ()
    searched_to: Path | None = None
