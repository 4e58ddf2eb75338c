"""Plans, results and streams for the tests of reporters, made of the real model."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from whet.decide.scores import combined_status, rate_of
from whet.model.comparison import PairFigures, RoundAnalysis, Stop
from whet.model.grade import AS_EXPECTED, Failure, FailureClass, Location, TriggerFigures
from whet.model.run import AttemptResult, Execution, Plan, RunInfo, Runner, Trial, TrialKey, TrialResult
from whet.model.run_events import ExecutionSummary, RunEnded, RunStarted, TrialEnded, TrialStarted
from whet.model.session import Usage
from whet.model.skills import SkillLoads
from whet.model.spending import Spending
from whet.model.suite import Case, Check, Limits, Suite, WorkspaceSpec
from whet.report.contract import Reporter, ReporterContext

Outcome = Callable[[TrialKey], TrialResult | None]


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Pipe(io.TextIOWrapper):
    """A stream with bytes below it, as a redirected stdout is."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def text(self) -> str:
        return self.bytes().decode(self.encoding)

    def bytes(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()


class MemoryResults(Struct):
    """Results that are made when they are asked for, so that the test itself holds none of them."""

    plan: Plan
    outcome: Outcome
    duration_s: float = 83.4
    looks: tuple[RoundAnalysis, ...] = ()
    stopped: Stop | None = None
    skill_loads: tuple[SkillLoads, ...] = ()
    triggers: tuple[TriggerFigures, ...] = ()
    pairwise: tuple[PairFigures, ...] = ()
    alive: int = 0

    @property
    def counts(self) -> dict[str, int]:
        counts: Counter[str] = Counter(total=self.plan.trial_count)
        for execution in self.plan.executions:
            counts.update(result.status for result in self.trials(execution))
        ended = counts.total() - counts["total"]
        return {**counts, "not-run": self.plan.trial_count - ended}

    @property
    def spending(self) -> Spending:
        found = (result.spending for execution in self.plan.executions for result in self.trials(execution))
        return sum(found, Spending())

    @property
    def passed(self) -> bool:
        return all(summary.passed for summary in self.summaries())

    def summaries(self) -> Iterator[ExecutionSummary]:
        for execution in self.plan.executions:
            counts: Counter[str] = Counter(result.status for result in self.trials(execution))
            good = sum(counts[status] for status in AS_EXPECTED)
            graded = counts.total() - counts["errored"]
            status = combined_status(status for status in counts)
            yield ExecutionSummary(
                execution=execution,
                status=status or "not-run",
                passed=good == execution.trials,
                score=good / graded if graded else None,
                rate=rate_of([(result.status, result.first_status) for result in self.trials(execution)]),
                counts=dict(counts),
                duration_s=1.0,
            )

    def trials(self, execution: Execution) -> Iterator[TrialResult]:
        for number in range(1, execution.trials + 1):
            result = self.outcome(self.plan.key(execution, number))
            if result is not None:
                yield result


def make_plan(
    cases: Sequence[str] = ("add", "sort"),
    *,
    runners: Sequence[str] = ("claude",),
    trials: int = 1,
    suite: str = "core",
    mode: str = "isolated",
    schedule: str = "serial",
    max_parallel: int = 1,
    model: str | None = "sonnet",
    location: Location | None = None,
) -> Plan:
    workspace = WorkspaceSpec(mode=mode)
    limits = Limits(timeout_s=60)
    made = tuple(Case(id=case, prompt="do", checks=(Check(grader="python"),), location=location) for case in cases)
    whole = Suite(name=suite, cases=made, source=Path("/project/bench/core.py"), digest="d" * 8)
    targets = [Runner(id=runner, agent="claude_code", model=model) for runner in runners]
    executions = tuple(
        Execution(case=case, runner=runner, arm="default", limits=limits, workspace=workspace, trials=trials)
        for case in made
        for runner in targets
    )
    return Plan(
        suite=whole,
        executions=executions,
        schedule=schedule,
        max_parallel=max_parallel,
        retries=0,
        check_timeout_s=30,
    )


def make_info(**changed: object) -> RunInfo:
    info = RunInfo(
        run_id="20250102-030405-abcd",
        run_dir=Path("/project/.whet/runs/20250102-030405-abcd"),
        suite="core",
        suite_path=Path("/project/bench/core.py"),
        started_at="2025-01-02T03:04:05Z",
        sandbox="bubblewrap",
        version="0.1.0",
        settings_files=(Path("/project/whet.toml"),),
    )
    return replace(info, **changed)


def passed(key: TrialKey, **changed: object) -> TrialResult:
    folder = f"trials/{key.case}/{key.runner}/default/{key.number}"
    result = TrialResult(
        key=key, status="passed", score=1.0, duration_s=12.34, started_at="2025-01-02T03:04:05Z", artifact_dir=folder
    )
    return replace(result, **changed)


def failed(key: TrialKey, message: str = "expected 3, got 4", **changed: object) -> TrialResult:
    failure = Failure(
        phase="check",
        code="check-failed",
        cause="agent",
        message=message,
        location=Location(file="/project/bench/core.py", line=41),
    )
    facts = {
        "status": "failed",
        "score": 0.0,
        "failure": failure,
        "failure_class": FailureClass(id="wrong-answer", label="Wrong answer"),
        "workspace_dir": f"workspaces/{key.case}/{key.runner}/default/{key.number}",
    }
    return passed(key, **{**facts, **changed})


def errored(key: TrialKey, message: str = "the provider answered 529: overloaded", **changed: object) -> TrialResult:
    failure = Failure(phase="agent", code="provider", cause="provider", message=message)
    facts = {
        "status": "errored",
        "score": None,
        "failure": failure,
        "failure_class": FailureClass(id="provider", label="Provider"),
    }
    return passed(key, **{**facts, **changed})


def attempt(number: int, status: str = "errored") -> AttemptResult:
    value = None if status == "errored" else float(status == "passed")
    return AttemptResult(number=number, status=status, duration_s=1.0, artifact_dir=f"a/{number}", value=value)


def usage(tokens_in: int, tokens_out: int, cost: float | None = None) -> Usage:
    return Usage(input_tokens=tokens_in, output_tokens=tokens_out, cost_usd=cost)


def all_pass(key: TrialKey) -> TrialResult:
    return passed(key)


def by_case(outcomes: Mapping[str, Outcome], default: Outcome = all_pass) -> Outcome:
    return lambda key: outcomes.get(key.case, default)(key)


class Stage(Struct):
    """A context with streams that can be read back."""

    target: Path | None = None
    environ: dict[str, str] = field(default_factory=dict)
    stdout: io.TextIOBase = field(default_factory=Pipe)
    stderr: io.StringIO = field(default_factory=io.StringIO)
    cwd: Path = Path("/project")

    @property
    def context(self) -> ReporterContext:
        return ReporterContext(
            target=self.target, stdout=self.stdout, stderr=self.stderr, environ=self.environ, cwd=self.cwd
        )

    @property
    def printed(self) -> str:
        return self.stdout.text() if isinstance(self.stdout, Pipe) else self.stdout.getvalue()


def end(reporter: Reporter, plan: Plan, outcome: Outcome, info: RunInfo | None = None) -> None:
    """Tell *reporter* only that the run has ended."""
    reporter(RunEnded(info=info or make_info(), results=MemoryResults(plan, outcome), interrupted=False))


def play(reporter: Reporter, plan: Plan, outcome: Outcome, info: RunInfo | None = None) -> None:
    """Tell *reporter* a whole run; a trial without a result is one that an interrupt left out."""
    info = info or make_info()
    reporter(RunStarted(info=info, plan=plan))
    missing = False
    for trial in plan.trials():
        result = outcome(trial.key)
        if result is None:
            missing = True
            continue
        reporter(TrialStarted(trial=trial))
        reporter(TrialEnded(trial=trial, result=result))
    reporter(RunEnded(info=info, results=MemoryResults(plan, outcome), interrupted=missing))


def trial_of(plan: Plan, number: int = 0) -> Trial:
    return list(plan.trials())[number]
