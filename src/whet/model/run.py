"""Runners, the plan with its executions and trials, the results of trials, and usage snapshots."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import CheckMistaken
from whet.model.arm import Arm
from whet.model.comparison import Until
from whet.model.grade import AS_EXPECTED, Failure, FailureClass, Grade, Status
from whet.model.session import Usage, UserSummary
from whet.model.skills import EarlyEnd, SkillDetection
from whet.model.spending import Bill, Spender, Spending
from whet.model.suite import Case, Ceilings, Limits, PlacedItem, SkillUnderTest, Suite, WorkspaceSpec

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


class Runner(Struct, frozen=True, kw_only=True):
    """A named target: an agent, its model and options."""

    id: str
    agent: str
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    skills: tuple[Path, ...] = ()


# The agent that does nothing, and its runner, which is used if none is configured.
NO_AGENT = "none"
# The agent that plays recorded sessions again.
REPLAY = "replay"


class RunWarning(Struct, frozen=True, kw_only=True):
    """What readers of a run must know before they rely on it; `code` names its kind, `runner` whom it is about."""

    code: Literal["judge-self", "judge-family"]
    message: str
    runner: str | None = None


class TrialKey(Struct, frozen=True, kw_only=True):
    """The stable name of one planned sample: `suite::case@runner/arm#trial`."""

    suite: str
    case: str
    runner: str
    arm: str
    number: int

    def __str__(self) -> str:
        return f"{self.suite}::{self.case}@{self.runner}/{self.arm}#{self.number}"

    @property
    def folder(self) -> str:
        """The folder of the trial below `trials/` or `workspaces/` of the run folder."""
        return f"{folder_name(self.case)}/{folder_name(self.runner)}/{folder_name(self.arm)}/{self.number}"


# Case, runner and arm.
ExecutionKey: TypeAlias = tuple[str, str, str]


class Execution(Struct, frozen=True, kw_only=True):
    """One case on one runner in one arm, with every default filled in.

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


class Trial(Struct, frozen=True, kw_only=True):
    """One planned sample of an execution."""

    key: TrialKey
    execution: Execution


class Plan(Struct, frozen=True, kw_only=True):
    """The whole work of a run, decided before anything starts; executions are in declared order."""

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
    # What readers of its results must know.
    warnings: tuple[RunWarning, ...] = ()
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
        executions = [execution for execution in self.executions if number <= execution.trials]
        # Not for secrets: the same seed must give the same order.
        Random(f"{self.seed}/{number}").shuffle(executions)  # noqa: S311
        for execution in executions:
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
                (execution.case.id, execution.runner.id, execution.runner.model)
                for execution in self.whole or self.executions
                if execution.arm == arm.name
            ]
            facts = {name: value for name, value in arm.facts().items() if name not in {"model", "runner"}}
            group = next((names for key, names in groups if key == (facts, ran)), None)
            if group is None:
                groups.append(((facts, ran), [arm.name]))
            else:
                group.append(arm.name)
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
        return replace(self, executions=tuple(replace(execution, trials=rounds) for execution in self.executions))

    @property
    def trial_count(self) -> int:
        """How many trials there are."""
        return sum(execution.trials for execution in self.executions)


class AttemptResult(Struct, frozen=True, kw_only=True):
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
    # The spenders whose cost is unknown.
    unpriced: tuple[Spender, ...] = ()
    # How it counts in comparisons, from 0 to 1; None if it does not.
    value: float | None = None

    @property
    def spending(self) -> Spending:
        """What was paid for it, by who asked for it."""
        unknown = self.unpriced
        return Spending(
            agents=Bill(usage=self.usage - self.unpaid_usage, unknown=unknown.count("agents")),
            judge=Bill(usage=self.judge_usage, unknown=unknown.count("judge")),
            users=Bill(usage=self.user_usage, unknown=unknown.count("users")),
        )


class TrialResult(Struct, frozen=True, kw_only=True):
    """How one trial ended: the deciding attempt, and all of them in order.

    `usage` is the deciding attempt's, so that sessions are compared with sessions; `paid_usage` is what was paid for.
    `session_s` is how long its agent took, and `duration_s` how long all attempts did, with all that is around them.
    Paths are relative to the run folder, so that the folder can be moved. `SkillFacts` says what those of skills mean;
    `other_skills` are those that it loaded besides, or instead.
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
    skill_wanted: bool = False
    other_skills: tuple[str, ...] = ()
    skills_listed: bool = False
    final_output: str = ""
    workspace_dir: str | None = None
    changed_files: int = 0
    # Whether every check held before the agent began, so that it says nothing about the agent that they hold.
    vacuous: bool = False
    session_s: float | None = None
    attempts: tuple[AttemptResult, ...] = ()
    notes: tuple[str, ...] = ()
    # How many turns were taken, and how its user found it; 0 and None unless it is a conversation.
    turns: int = 0
    user: UserSummary | None = None
    # Why its agent was ended before it had ended by itself, if all that its checks ask was known.
    ended_early: EarlyEnd | None = None

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
                return attempt.value
        return None

    @property
    def flaky(self) -> bool:
        """Whether it went as expected only after another attempt."""
        return self.passed and len(self.attempts) > 1


class RunInfo(Struct, frozen=True, kw_only=True):
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
    resume_options: tuple[str, ...] = ()
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
        runner=replace(execution.runner, skills=_skills(suite.skill, arm, case, execution.runner)),
        workspace=_workspace(suite.skill, arm.skill, case, execution.workspace),
        skill=arm.skill.path if arm.skill else None,
    )


def _skills(tested: SkillUnderTest | None, arm: Arm, case: Case, runner: Runner) -> tuple[Path, ...]:
    """Return the skill under test, its competitors, and the runner's own without any of the same name."""
    names = tested.names if tested else frozenset()
    more_skills = [path for path in (*arm.more_skills, *case.skills, *runner.skills) if path.name not in names]
    return tuple(dict.fromkeys((*((arm.skill.path,) if arm.skill else ()), *more_skills)))


def _workspace(
    tested: SkillUnderTest | None, there: SkillUnderTest | None, case: Case, spec: WorkspaceSpec
) -> WorkspaceSpec:
    if tested is not None and there is None:
        spec = replace(spec, without_skills=tuple(sorted(tested.names)))
    if case.skill_place is None:
        return spec
    # Also without the skill: a package may have brought something to that place.
    skill = PlacedItem(path=case.skill_place, source=there.path if there else None)
    return replace(spec, placed=(*spec.placed, skill))


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


class Snapshot(Struct, frozen=True, kw_only=True):
    """One figure, and what it was taken of."""

    metric: str
    value: float
    agent: str
    model: str | None
    trials: int
    updated_at: str


class SnapshotOutcome(Struct, frozen=True, kw_only=True):
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
