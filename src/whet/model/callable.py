"""Benchmarks, callable skills, and how calls of them went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct, field

from whet.model.session import Usage

Adapter = Literal["subprocess", "http", "mcp"]
ADAPTERS: tuple[Adapter, ...] = get_args(Adapter)
Auth = Literal["none", "bearer", "api-key"]
AUTHS: tuple[Auth, ...] = get_args(Auth)


Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
METHODS: tuple[Method, ...] = get_args(Method)


class HttpRequest(Struct, frozen=True, kw_only=True):
    """How an input becomes a request to an endpoint that was not made for skills: where each field of it goes."""

    method: Method
    path: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    # The field that is the JSON body.
    body: str | None = None


class CallableSkill(Struct, frozen=True, kw_only=True):
    """A skill as its folder describes it: `skill.json`, overridden by `adapter.config.json`.

    For a subprocess and for MCP over stdio `argv` is the program, otherwise `url` is where it listens. Secrets are
    here only as the names of their variables.
    """

    id: str
    name: str
    version: str
    description: str
    adapter: Adapter
    root: Path
    digest: str
    argv: tuple[str, ...] = ()
    url: str | None = None
    request: HttpRequest | None = None
    tags: tuple[str, ...] = ()
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] = field(default_factory=dict)
    tool: str | None = None
    auth: Auth = "none"
    auth_variable: str | None = None
    pass_env: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: float | None = None
    retries: int | None = None
    keep_alive: bool = False
    network: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


EvaluatorKind = Literal["exact", "contains", "regex", "json_schema", "llm_judge", "custom"]
EVALUATORS: tuple[EvaluatorKind, ...] = get_args(EvaluatorKind)
ScoringMethod = Literal["mean", "weighted_mean", "pass_at_k"]
SCORING_METHODS: tuple[ScoringMethod, ...] = get_args(ScoringMethod)
Compare = Literal["json", "text"]
COMPARISONS: tuple[Compare, ...] = get_args(Compare)
# What is graded: the skill's answer, or its files, for which it is not called.
Subject = Literal["output", "files"]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)
DEFAULT_MAX_LATENCY_MS = 30_000.0
# In the place of a file, for a task that was typed.
TYPED_TASK = "whet task"


class _MissingValue:
    """The type of `MISSING`, a value that is not written; `null` is a value."""

    def __repr__(self) -> str:
        return "(missing)"


MISSING = _MissingValue()


class Expected(Struct, frozen=True, kw_only=True):
    """What a task expects; the evaluator decides which field counts."""

    value: Any = MISSING
    keywords: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    schema: Any = None
    judge_prompt: str | None = None
    custom_scorer: str | None = None


class Evaluator(Struct, frozen=True, kw_only=True):
    """How an answer is turned into a grade."""

    kind: EvaluatorKind
    case_sensitive: bool = False
    compare: Compare = "json"
    tolerance: float = 0.0
    threshold: float = 0.5
    timeout_ms: float | None = None
    subject: Subject = "output"


class BenchmarkTask(Struct, frozen=True, kw_only=True):
    """One input for a skill, and what decides how its answer went."""

    id: str
    description: str
    input: Mapping[str, Any]
    expected: Expected
    evaluator: Evaluator
    timeout_ms: float | None = None
    tags: tuple[str, ...] = ()
    weight: float = 1.0


class Benchmark(Struct, frozen=True, kw_only=True):
    """A set of tasks under one id; `digest` changes with anything that a score depends on."""

    id: str
    name: str
    version: str
    domain: str
    scoring: ScoringMethod
    tasks: tuple[BenchmarkTask, ...]
    source: Path
    digest: str
    max_latency_ms: float = DEFAULT_MAX_LATENCY_MS
    k: int = 1
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_judge(self) -> bool:
        """Whether a language model must be asked."""
        return any(task.evaluator.kind == "llm_judge" for task in self.tasks)


# The words of reports for the status of a trial: `fail` is a wrong answer, `error` and `timeout` are no answer.
SampleStatus = Literal["pass", "fail", "error", "timeout", "errored"]


class Sample(Struct, frozen=True, kw_only=True):
    """One call as reports have it: one task, one run; `latency_ms` is None if there was no answer."""

    task: str
    run: int = 1
    status: SampleStatus
    score: float = 0.0
    latency_ms: float | None = None
    weight: float = 1.0
    evaluator: str = "unknown"
    output: Any = None
    error: str | None = None
    reason: str = ""
    usage: Usage | None = None
    # Signs that the answer tries to influence its judge.
    flags: tuple[str, ...] = ()

    @property
    def answered(self) -> bool:
        """Whether the skill gave an answer that could be graded."""
        return self.status in {"pass", "fail"}


class Interval(Struct, frozen=True, kw_only=True):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


class Latency(Struct, frozen=True, kw_only=True):
    """How long answers took, in milliseconds."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class PassK(Struct, frozen=True, kw_only=True):
    """The chance that one of k runs passes (`at`) and that all of k do (`all`), over tasks with at least k runs."""

    k: int
    at: float
    all: float
    tasks: int
    left_out: tuple[str, ...] = ()


class Summary(Struct, frozen=True, kw_only=True):
    """All that a set of samples says about one skill; an unknown figure is `None`."""

    samples: int
    errored: int
    completion: Interval | None
    error_rate: Interval | None
    score: float | None
    score_interval: Interval | None
    consistency: float | None
    composite: float | None
    latency: Latency | None
    passes: tuple[PassK, ...] = ()


class TaskDifference(Struct, frozen=True, kw_only=True):
    """How far two sets of samples are apart, over the tasks that both have."""

    value: float
    low: float
    high: float
    tasks: int
    better: tuple[str, ...]
    worse: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]


class CompletionReport(Struct, frozen=True, kw_only=True):
    """One skill on one benchmark, with all that its figures are computed from.

    If arms are compared, there is one for each, and `decision` says how a candidate compares with the baseline.
    """

    skill: str
    skill_version: str
    benchmark: str
    timestamp: str
    summary: Summary
    calls: tuple[Sample, ...]
    usage: Usage = field(default_factory=Usage)
    judging: Usage | None = None
    scoring: ScoringMethod = "mean"
    ks: tuple[int, ...] = (1,)
    max_latency_ms: float = DEFAULT_MAX_LATENCY_MS
    weights: Mapping[str, float] = field(default_factory=dict)
    arm: str | None = None
    decision: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        """What tells it from other reports of its run."""
        return self.skill if self.arm is None else f"{self.skill}/{self.arm}"


class EvaluationOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of an evaluation: its reports, their files, and the skills that complete too little."""

    reports: tuple[CompletionReport, ...]
    files: tuple[Path, ...] = ()
    least: float | None = None
    below: tuple[str, ...] = ()


class TaskChange(Struct, frozen=True, kw_only=True):
    """One task before and after: mean scores, None if it was not there."""

    task: str
    before: float | None
    after: float | None


class SkillChange(Struct, frozen=True, kw_only=True):
    """One skill on one benchmark before and after; `difference` is None if no task is in both."""

    skill: str
    benchmark: str
    before: CompletionReport | None
    after: CompletionReport | None
    difference: TaskDifference | None
    tasks: tuple[TaskChange, ...]
    regressed: bool
