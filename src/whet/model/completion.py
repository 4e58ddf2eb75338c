"""How a skill did on a benchmark: every call, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.model.benchmark import DEFAULT_MAX_LATENCY_MS, Difference, Sample, ScoringMethod, Summary
from whet.model.session import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call: how it went, what was answered, and why it was graded so."""

    sample: Sample
    evaluator: str = "unknown"
    output: Any = None
    error: str | None = None
    reason: str = ""
    usage: Usage | None = None
    # What the answer does to talk its judge into a verdict.
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionReport:
    """One skill on one benchmark, with all that its figures were worked out by."""

    skill: str
    skill_version: str
    benchmark: str
    timestamp: str
    summary: Summary
    calls: tuple[CallRecord, ...]
    usage: Usage = field(default_factory=Usage)
    judging: Usage | None = None
    scoring: ScoringMethod = "mean"
    ks: tuple[int, ...] = (1,)
    max_latency_ms: float = DEFAULT_MAX_LATENCY_MS
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What an evaluation comes to: its reports, the files that hold them, and the skills that complete too little."""

    reports: tuple[CompletionReport, ...]
    files: tuple[Path, ...] = ()
    least: float | None = None
    below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """One task before and after: mean scores, none where it was not there."""

    task: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillChange:
    """One skill on one benchmark before and after; `difference` is none where no task is in both."""

    skill: str
    benchmark: str
    before: CompletionReport | None
    after: CompletionReport | None
    difference: Difference | None
    tasks: tuple[TaskChange, ...]
    regressed: bool
