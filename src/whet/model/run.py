"""Runners, the plan with its executions and trials, the results of trials, and usage snapshots."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from whet.dataclass import dataclass
from whet.errors import CheckMistaken
from whet.model.arm import Arm
from whet.model.comparison import Until
from whet.model.grade import AS_EXPECTED, PASSED, Failure, FailureClass, Grade, Status
from whet.model.session import Usage, UserSummary
from whet.model.skills import SkillDetection
from whet.model.spending import Bill, Spender, Spending
from whet.model.suite import Case, Ceilings, Limits, Placed, SkillUnderTest, Suite, WorkspaceSpec

# What is needed to resume the session of an attempt.
STATE_FILE = "state.json"


def turn_folder(turn: int | None) -> str:
    """Return where a turn of a conversation is below the folder of its attempt, with a `/`; that itself for none."""
    return f"turns/{turn}/" if turn else ""


LONGEST_ID = 120
_LONGEST_FOLDER = 200


def folder_name(identifier: str) -> str:
    """Return the folder name for an id: what is not a letter, digit, dot, dash or underscore becomes a dash."""
    plain = unicodedata.normalize("NFC", identifier)
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in plain)
    # A name that begins with a dash is an option to most programs.
    return f"_{name}" if name.startswith("-") else name


def id_problem(identifier: str) -> str | None:
    """Return why an id cannot be used, or None."""
    if not identifier.strip():
        return "must not be empty"
    if len(identifier) > LONGEST_ID:
        return f"is longer than {LONGEST_ID} characters"
    if len(folder_name(identifier).encode()) > _LONGEST_FOLDER:
        return "is too long for a folder name"
    if not identifier.isprintable():
        return "must not contain control characters"
    if set(folder_name(identifier)) <= {"."}:
        return "would leave the run folder once it is a folder name"
    return None


ScheduleName = Literal["serial", "parallel", "isolated-by-runner"]
SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)


class OfHost(str):
    """The path of a program that the settings name from their own place (`./`, `../`, `~`): it is on this machine."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A named target: an agent, its model and options."""

    id: str
    agent: str
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    skills: tuple[Path, ...] = ()


# The beginning of the note that a budget was not enforced, because the agent reports no cost.
UNHELD = "the budget was not enforced"
# The agent that does nothing, and its runner, which is used if none is configured.
NO_AGENT = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialKey:
    """The stable name of one planned sample: `suite::case@runner/arm#trial`."""

    suite: str
    case: str
    runner: str
    arm: str
    number: int

    def __str__(self) -> str:
        return f"{self.suite}::{self.case}@{self.runner}/{self.arm}#{self.number}"


# Case, runner and arm.
ExecutionKey: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One case on one runner in one arm, with everything settled.

    `skill` is the skill under test, if this arm has it. A `baseline` one is run for comparison and may fail.
    """

    case: Case
    runner: Runner
    arm: str
    limits: Limits
    workspace: WorkspaceSpec
    trials: int
    skill: Path | None = None
    baseline: bool = False

    @property
    def key(self) -> ExecutionKey:
        """What tells it from the other executions of its run."""
        return self.case.id, self.runner.id, self.arm

    def __str__(self) -> str:
        return f"{self.case.id}@{self.runner.id}/{self.arm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One planned sample of an execution."""

    key: TrialKey
    execution: Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a run will do, settled before anything starts; executions are in declared order."""

    suite: Suite
    executions: tuple[Execution, ...]
    schedule: ScheduleName
    max_parallel: int
    retries: int
    check_timeout_s: float
    # The limit of each command that a claim runs.
    command_timeout_s: float = 300.0
    # Whether a trial stops at the first check that does not hold.
    fail_fast: bool = False
    # Whether a vacuous case is not even tried.
    strict: bool = False
    # What is compared, and the arm that the others are compared with; a run of one arm has none.
    arms: tuple[Arm, ...] = (Arm(),)
    baseline: str | None = None
    # How many of the trials of each execution were added after the run had begun.
    added: int = 0
    # The rounds that were done each time that happened.
    grown_from: tuple[int, ...] = ()
    # The cases that controls pass, with the names of these: they count in no rate and no comparison.
    voided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # What the order of each round is drawn from; without it, trials run in declared order.
    seed: int | None = None
    # After which rounds the run may stop; without it, all of them are run.
    until: Until | None = None
    # The random word in the copies of an arm's skill that agents are given, by arm.
    watermarks: Mapping[str, str] = field(default_factory=dict)
    # The executions of all shards together; empty unless this is the plan of one.
    whole: tuple[Execution, ...] = ()

    def trials(self) -> Iterator[Trial]:
        """Every trial, in the order in which they start: round by round if arms are compared."""
        if self.seed is None:
            for execution in self.executions:
                for number in range(1, execution.trials + 1):
                    yield Trial(key=self.key(execution, number), execution=execution)
            return
        for number in range(1, max(execution.trials for execution in self.executions) + 1):
            yield from self.round(number)

    def round(self, number: int) -> Iterator[Trial]:
        """The *number*-th trial of each execution, in an order of its own, so that no arm always comes first."""
        from random import Random  # noqa: PLC0415 - most runs compare nothing

        drawn = [execution for execution in self.executions if number <= execution.trials]
        # Not for secrets: the same seed must give the same order.
        Random(f"{self.seed}/{number}").shuffle(drawn)  # noqa: S311
        for execution in drawn:
            yield Trial(key=self.key(execution, number), execution=execution)

    @property
    def compares(self) -> bool:
        """Whether it compares arms that somebody defined: then the comparison decides, and not how trials went."""
        return self.baseline is not None and any(arm.defined for arm in self.arms)

    @property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """The arms that do not differ in anything, in groups: by what their trials get, however that was written."""
        groups: list[tuple[Any, list[str]]] = []
        for arm in self.arms:
            ran = [
                (each.case.id, each.runner.id, each.runner.model)
                for each in self.whole or self.executions
                if each.arm == arm.name
            ]
            facts = {name: value for name, value in arm.facts().items() if name not in {"model", "runner"}}
            same = next((names for given, names in groups if given == (facts, ran)), None)
            if same is None:
                groups.append(((facts, ran), [arm.name]))
            else:
                same.append(arm.name)
        return tuple(tuple(names) for _, names in groups if len(names) > 1)

    def key(self, execution: Execution, number: int) -> TrialKey:
        """Return the key of the *number*-th sample of *execution*."""
        return TrialKey(
            suite=self.suite.name,
            case=execution.case.id,
            runner=execution.runner.id,
            arm=execution.arm,
            number=number,
        )

    def ended_after(self, rounds: int) -> Plan:
        """Return the plan of a run that needs no more than so many rounds."""
        return replace(self, executions=tuple(replace(each, trials=rounds) for each in self.executions))

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
    # The part of it that no provider was asked for, such as what a cassette answered.
    unpaid_usage: Usage = field(default_factory=Usage)
    # What the model that played the user took, and what the judge did; a cached verdict takes nothing.
    user_usage: Usage = field(default_factory=Usage)
    judge_usage: Usage = field(default_factory=Usage)
    # Who of them was paid what nobody knows; None if an older whet recorded it.
    unpriced: tuple[Spender, ...] | None = None
    # How it counts in comparisons, from 0 to 1; None if it does not, and less than 0 if an older whet recorded it.
    value: float | None = -1.0

    @property
    def unknown_costs(self) -> tuple[Spender, ...]:
        """Who of them was paid what nobody knows."""
        if self.unpriced is not None:
            return self.unpriced
        return ("agents",) if self.usage.cost_usd is None else ()

    @property
    def spending(self) -> Spending:
        """What was paid for it, by who asked for it."""
        unknown = self.unknown_costs
        return Spending(
            agents=Bill(usage=self.usage - self.unpaid_usage, unknown=unknown.count("agents")),
            judge=Bill(usage=self.judge_usage, unknown=unknown.count("judge")),
            users=Bill(usage=self.user_usage, unknown=unknown.count("users")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """How one trial ended: the deciding attempt, and all of them in order.

    `usage` is the deciding attempt's, so that sessions are compared with sessions; `paid_usage` is what was paid for.
    `session_s` is how long its agent took, and `duration_s` how long all attempts did, with all that is around them.
    Paths are relative to the run folder, so that the folder can be moved. `SkillFacts` says what those of skills mean.
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
    skill_shown: bool | None = None
    skill_loaded: bool | None = None
    skill_unwanted: bool = False
    skills_listed: bool = False
    final_output: str = ""
    workspace_dir: str | None = None
    changed_files: int = 0
    # Whether every check held before the agent began, so that it says nothing about the agent that they hold.
    vacuous: bool = False
    session_s: float | None = None
    attempts: tuple[Attempt, ...] = ()
    notes: tuple[str, ...] = ()
    # How many turns were taken, and how its user found it; 0 and None unless it is a conversation.
    turns: int = 0
    user: UserSummary | None = None

    @property
    def number(self) -> int:
        """Which sample of its execution this is, from 1."""
        return self.key.number

    @property
    def passed(self) -> bool:
        """Whether it went as expected."""
        return self.status in AS_EXPECTED

    @property
    def mistaken(self) -> bool:
        """Whether it failed by a mistake in a check, and not by what the agent did."""
        return self.failure is not None and self.failure.code == CheckMistaken.code

    @property
    def total_usage(self) -> Usage:
        """What all attempts took together."""
        total = self.usage
        for attempt in self.attempts[:-1]:
            total += attempt.usage
        return total

    @property
    def paid_usage(self) -> Usage:
        """What all attempts took together of providers, and not of cassettes."""
        total = self.total_usage
        for attempt in self.attempts:
            total -= attempt.unpaid_usage
        return total

    @property
    def user_usage(self) -> Usage:
        """What the model that played the user took, in all attempts together."""
        return self.spending.users.usage

    @property
    def judge_usage(self) -> Usage:
        """What the judge took, of all attempts together."""
        return self.spending.judge.usage

    @property
    def spending(self) -> Spending:
        """What was paid for all attempts together, by who asked for it."""
        if not self.attempts:
            return Spending(agents=Bill(usage=self.usage, unknown=self.usage.cost_usd is None))
        return sum((attempt.spending for attempt in self.attempts), Spending())

    @property
    def first_status(self) -> Status:
        """How its first attempt ended."""
        return self.attempts[0].status if len(self.attempts) > 1 else self.status

    @property
    def compared(self) -> float | None:
        """How it counts in comparisons: by its first attempt that did not error; None if all did."""
        for attempt in self.attempts:
            if attempt.status != "errored":
                unknown = attempt.value is not None and attempt.value < 0
                return float(attempt.status in PASSED) if unknown else attempt.value
        return None

    @property
    def flaky(self) -> bool:
        """Whether it went as expected only after another attempt."""
        return self.passed and len(self.attempts) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What identifies a run, and where its record is."""

    run_id: str
    run_dir: Path
    suite: str
    suite_path: Path
    started_at: str
    sandbox: str
    version: str
    # The command that started the run, for hints on how to resume it.
    command: str = "run"
    # The words to type after it to run the same again, and to resume the run; a selection, or the run, follows.
    again: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()
    ceilings: Ceilings = field(default_factory=Ceilings)
    # The files that hold the settings, the project's first, and where the search for that one ended.
    settings_files: tuple[Path, ...] = ()
    searched_to: Path | None = None
    # The cluster whose nodes run the trials, and how many these are, for people.
    cluster: str = ""


def same_arms(plan: Plan) -> Iterator[str]:
    """Yield a sentence for arms that do not differ in anything."""
    yield from (f"the arms {' and '.join(group)} do not differ in anything" for group in plan.alike)


def in_arm(suite: Suite, execution: Execution, arm: Arm) -> Execution:
    """Return *execution* as it is in *arm*: with its prompt and variables, and with its skill or without any."""
    case = execution.case
    if arm.prompt is not None or arm.env:
        prompt = case.prompt if arm.prompt is None else f"{arm.prompt.rstrip()}\n\n{case.prompt}"
        case = replace(case, prompt=prompt, env={**case.env, **arm.env})
    if suite.skill is None:
        return replace(execution, case=case)
    return replace(
        execution,
        case=case,
        runner=replace(execution.runner, skills=_skills(suite.skill, arm.skill, case, execution.runner)),
        workspace=_workspace(suite.skill, arm.skill, case, execution.workspace),
        skill=arm.skill.path if arm.skill else None,
    )


def _skills(
    tested: SkillUnderTest | None, there: SkillUnderTest | None, case: Case, runner: Runner
) -> tuple[Path, ...]:
    """Return the skill under test, its competitors, and the runner's own without any of the same name."""
    names = tested.names if tested else frozenset()
    others = [path for path in (*case.skills, *runner.skills) if path.name not in names]
    return tuple(dict.fromkeys((*((there.path,) if there else ()), *others)))


def _workspace(
    tested: SkillUnderTest | None, there: SkillUnderTest | None, case: Case, spec: WorkspaceSpec
) -> WorkspaceSpec:
    if tested is not None and there is None:
        spec = replace(spec, without_skills=tuple(sorted(tested.names)))
    if case.skill_place is None:
        return spec
    # Also without the skill: a package may have brought something to that place.
    own = Placed(path=case.skill_place, source=there.path if there else None)
    return replace(spec, placed=(*spec.placed, own))


Metric = Literal[
    "total_tokens",
    "uncached_tokens",
    "input_tokens",
    "uncached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cost_usd",
    "duration_s",
]
METRICS: tuple[Metric, ...] = get_args(Metric)


def figure(value: float) -> str:
    """Format a number for people: a whole one with thousands separators, others with six digits."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.6g}"


SnapshotStatus = Literal["held", "exceeded", "created", "updated", "missing", "unavailable", "mismatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One figure, and what it was taken of."""

    metric: str
    value: float
    agent: str
    model: str | None
    trials: int
    updated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOutcome:
    """How an execution compares with its snapshot; `key` is the name of its entry in the snapshot file."""

    key: str
    status: SnapshotStatus
    metric: Metric
    value: float | None
    stored: float | None
    allowed: float | None
    message: str

    @property
    def new(self) -> bool:
        """Whether a figure was taken."""
        return self.status in {"created", "updated"}

    @property
    def verdict(self) -> Literal["failed", "errored"] | None:
        """The status of an execution that passed otherwise; only too much usage is the fault of the agent."""
        if self.status == "exceeded":
            return "failed"
        return "errored" if self.status in {"missing", "unavailable", "mismatch"} else None
