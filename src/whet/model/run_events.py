"""Run events: what reporters and the journal receive, in the order in which it happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from whet.model.callable import EvaluationOutcome
from whet.model.comparison import PairFigures, RoundAnalysis, Stop, Until
from whet.model.events import Event
from whet.model.grade import Rate, Status, TriggerFigures
from whet.model.run import Execution, Plan, RunInfo, SnapshotOutcome, Trial, TrialResult
from whet.model.skills import SkillLoads
from whet.model.spending import Spending


class RunStarted(Struct, frozen=True, kw_only=True):
    """The run is planned and nothing has started; `done` trials were finished by an earlier run.

    If it is merged, `shards` says from how many, and nothing will start.
    """

    info: RunInfo
    plan: Plan
    done: int = 0
    shards: int = 0


class TrialStarted(Struct, frozen=True, kw_only=True):
    """A trial has started."""

    trial: Trial


class SessionSeen(Struct, frozen=True, kw_only=True):
    """Something happened in the session of a running trial; sent only if a reporter asks for it."""

    trial: Trial
    event: Event


class TrialEnded(Struct, frozen=True, kw_only=True):
    """A trial is finished, whatever its verdict."""

    trial: Trial
    result: TrialResult


class Looked(Struct, frozen=True, kw_only=True):
    """A round of a run until decided is complete, and was looked at; `cost_usd` is what was spent, as far as known."""

    look: RoundAnalysis
    until: Until
    cost_usd: float | None


class Notice(Struct, frozen=True, kw_only=True):
    """Something a person should know, in one sentence."""

    level: Literal["info", "warning"]
    message: str
    # Whether it is about all runs that one command started.
    about_all: bool = False


class RunEnded(Struct, frozen=True, kw_only=True):
    """The run has ended; `results` reads the whole record, and `evaluated` is set by an evaluation of skills."""

    info: RunInfo
    results: Results
    interrupted: bool
    evaluated: EvaluationOutcome | None = None


RunEvent: TypeAlias = RunStarted | TrialStarted | SessionSeen | TrialEnded | Looked | Notice | RunEnded


class ExecutionSummary(Struct, frozen=True, kw_only=True):
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
    def looks(self) -> tuple[RoundAnalysis, ...]:
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

    @property
    def triggers(self) -> tuple[TriggerFigures, ...]:
        """How well the skill of each arm was loaded, on each runner; nothing unless cases say whether it should be."""

    @property
    def pairwise(self) -> tuple[PairFigures, ...]:
        """Which of two answers a judge found better, of arms and of stored answers; nothing if it was not asked."""

    def summaries(self) -> Iterator[ExecutionSummary]:
        """Every execution, in declared order."""

    def trials(self, execution: Execution) -> Iterator[TrialResult]:
        """The finished trials of one execution, in order."""
