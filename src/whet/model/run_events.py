"""Run events: what reporters and the journal receive, in the order in which it happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

from whet.dataclass import dataclass
from whet.model.benchmark import Evaluated
from whet.model.comparison import Look, Stop, Until
from whet.model.grade import Rate, Status
from whet.model.run import Execution, Plan, RunInfo, SnapshotOutcome, Trial, TrialResult
from whet.model.seen import Event
from whet.model.skills import SkillLoads
from whet.model.spending import Spending


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run is planned and nothing has started; `done` trials were finished by an earlier run.

    If it is merged, `shards` says from how many, and nothing will start.
    """

    info: RunInfo
    plan: Plan
    done: int = 0
    shards: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A trial has started."""

    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSeen:
    """Something happened in the session of a running trial; sent only if a reporter asks for it."""

    trial: Trial
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """A trial is finished, whatever its verdict."""

    trial: Trial
    result: TrialResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A round of a run until decided is complete, and was looked at; `cost_usd` is what was spent, as far as known."""

    look: Look
    until: Until
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a person should know, in one sentence."""

    level: Literal["info", "warning"]
    message: str
    # Whether it is about all runs that one command started.
    about_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run has ended; `results` reads the whole record, and `evaluated` is set by an evaluation of skills."""

    info: RunInfo
    results: Results
    interrupted: bool
    evaluated: Evaluated | None = None


RunEvent: TypeAlias = RunStarted | TrialStarted | SessionSeen | TrialEnded | Looked | Notice | RunEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSummary:
    """An execution and how its trials went together; `status` is `not-run` if none ended, and `void` if none counts."""

    execution: Execution
    status: Status | Literal["not-run", "void"]
    passed: bool
    score: float | None
    rate: Rate | None
    counts: dict[str, int]
    duration_s: float
    snapshot: SnapshotOutcome | None = None


class Results(Protocol):
    """The results of a run, read from its record a trial at a time, in declared order."""

    @property
    def plan(self) -> Plan:
        """What was planned."""

    @property
    def counts(self) -> dict[str, int]:
        """How many trials ended with each status; `not-run` for the ones that are missing, `total` for all planned."""

    @property
    def passed(self) -> bool:
        """Whether every planned trial ended as expected."""

    @property
    def looks(self) -> tuple[Look, ...]:
        """What was seen after each round; only a run until decided looks."""

    @property
    def stopped(self) -> Stop | None:
        """Why a run until decided has ended; None if it has not, and for other runs."""

    @property
    def duration_s(self) -> float:
        """Wall-clock time of the run so far."""

    @property
    def spending(self) -> Spending:
        """What was paid for, by who asked for it."""

    @property
    def skill_loads(self) -> tuple[SkillLoads, ...]:
        """How often the skill of each arm was loaded, on each runner; nothing for arms without one."""

    def summaries(self) -> Iterator[ExecutionSummary]:
        """Every execution, in declared order."""

    def trials(self, execution: Execution) -> Iterator[TrialResult]:
        """The finished trials of one execution, in order."""
