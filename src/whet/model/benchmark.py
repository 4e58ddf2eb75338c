"""What a benchmark asks of callable skills, and how single calls went: nouns only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

EvaluatorKind = Literal["exact", "contains", "regex", "json_schema", "llm_judge", "custom"]
EVALUATORS: tuple[EvaluatorKind, ...] = ("exact", "contains", "regex", "json_schema", "llm_judge", "custom")
ScoringMethod = Literal["mean", "weighted_mean", "pass_at_k"]
SCORING_METHODS: tuple[ScoringMethod, ...] = ("mean", "weighted_mean", "pass_at_k")
Compare = Literal["json", "text"]
COMPARISONS: tuple[Compare, ...] = ("json", "text")
# What is graded: the skill's answer, or its files, for which it is not called.
Subject = Literal["output", "files"]
SUBJECTS: tuple[Subject, ...] = ("output", "files")
DEFAULT_MAX_LATENCY_MS = 30_000.0


class _Missing:
    """Stands for a value that nobody wrote, because `null` is a value."""

    def __repr__(self) -> str:
        return "(missing)"


MISSING = _Missing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a task wants to see; which field counts is decided by the evaluator."""

    value: Any = MISSING
    keywords: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    schema: Any = None
    judge_prompt: str | None = None
    custom_scorer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """How an answer is turned into a grade."""

    kind: EvaluatorKind
    case_sensitive: bool = False
    compare: Compare = "json"
    tolerance: float = 0.0
    threshold: float = 0.5
    timeout_ms: float | None = None
    subject: Subject = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkTask:
    """One input for a skill, and what decides how its answer went."""

    id: str
    description: str
    input: Mapping[str, Any]
    expected: Expected
    evaluator: Evaluator
    timeout_ms: float | None = None
    tags: tuple[str, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
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


# `error` and `timeout` are the skill's own doing; `errored` says nothing about it, as everywhere in whet.
SampleStatus = Literal["pass", "fail", "error", "timeout", "errored"]
SAMPLE_STATUSES: tuple[SampleStatus, ...] = ("pass", "fail", "error", "timeout", "errored")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How one call went: one task, one run; `latency_ms` is unknown where nothing was answered."""

    task: str
    run: int = 1
    status: SampleStatus
    score: float = 0.0
    latency_ms: float | None = None
    weight: float = 1.0

    @property
    def answered(self) -> bool:
        """Whether the skill gave an answer that could be graded."""
        return self.status in {"pass", "fail"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long answers took, in milliseconds."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassK:
    """The chance that one of k runs passes (`at`) and that all of k do (`all`), over tasks with at least k runs."""

    k: int
    at: float
    all: float
    tasks: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All that a set of samples says about one skill; a figure that nothing supports is `None`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far two sets of samples are apart, over the tasks that both have."""

    value: float
    low: float | None
    high: float | None
    tasks: int
    better: tuple[str, ...]
    worse: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
