"""Make a completion report for each skill from the record of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whet.grade.judge_questions import Vote
from whet.grade.scores import Weights
from whet.grade.summary import sample_of, summarize
from whet.model import wire
from whet.model.benchmark import Benchmark, BenchmarkTask, CallableSkill, CallRecord, CompletionReport
from whet.model.event import Results
from whet.model.run import RunInfo, TrialResult
from whet.model.session import Usage
from whet.run.calling import ANSWER_FILE
from whet.run.trial import OUTPUT_KEPT


def reports_of(
    info: RunInfo, results: Results, benchmark: Benchmark, skills: Sequence[CallableSkill], weights: Weights
) -> list[CompletionReport]:
    """Return a report for each skill that the run called."""
    tasks = {task.id: task for task in benchmark.tasks}
    calls: dict[str, list[CallRecord]] = {skill.id: [] for skill in skills}
    judging: dict[str, Usage] = {}
    runs = 1
    for execution in results.plan.executions:
        runs = max(runs, execution.trials)
        for result in results.trials(execution):
            runner = execution.runner.id
            calls[runner].append(_call(result, tasks[execution.case.id], info.run_dir))
            if benchmark.needs_judge:
                judging[runner] = judging.get(runner, Usage()) + judging_of(result)
    ks = tuple(dict.fromkeys((benchmark.k, runs)))
    chosen = {execution.runner.id for execution in results.plan.executions}
    return [
        _report(info, benchmark, skill, calls[skill.id], judging=judging.get(skill.id), ks=ks, weights=weights)
        for skill in skills
        if skill.id in chosen
    ]


def _report(
    info: RunInfo,
    benchmark: Benchmark,
    skill: CallableSkill,
    calls: list[CallRecord],
    *,
    judging: Usage | None,
    ks: tuple[int, ...],
    weights: Weights,
) -> CompletionReport:
    total = Usage()
    for call in calls:
        total += call.usage or Usage()
    return CompletionReport(
        skill=skill.id,
        skill_version=skill.version,
        benchmark=benchmark.id,
        timestamp=info.started_at,
        summary=summarize(
            [call.sample for call in calls],
            scoring=benchmark.scoring,
            ks=ks,
            max_latency_ms=benchmark.max_latency_ms,
            weights=weights,
        ),
        calls=tuple(calls),
        usage=total,
        judging=judging,
        scoring=benchmark.scoring,
        ks=ks,
        max_latency_ms=benchmark.max_latency_ms,
        weights=asdict(weights),
    )


def _call(result: TrialResult, task: BenchmarkTask, run_dir: Path) -> CallRecord:
    latency_ms = None if result.session_s is None else result.session_s * 1000
    sample = sample_of(task.id, result.number, result.grades, result.failure, latency_ms=latency_ms, weight=task.weight)
    decided = result.failure is None or result.failure.code == "assertion"
    return CallRecord(
        sample=sample,
        evaluator=task.evaluator.kind,
        output=_output(result, run_dir),
        error=None if decided or result.failure is None else result.failure.message,
        reason="; ".join(grade.reason for grade in result.grades),
        usage=result.total_usage if result.total_usage.total_tokens is not None else None,
        flags=tuple(flag for evidence in _judged(result) for flag in evidence["flags"]),
    )


def _output(result: TrialResult, run_dir: Path) -> Any:
    """Return the answer; the journal keeps only the beginning of a long one."""
    if not result.final_output:
        return None
    try:
        if len(result.final_output) <= OUTPUT_KEPT:
            return json.loads(result.final_output)
        return json.loads((run_dir / result.artifact_dir / ANSWER_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return result.final_output


def judging_of(result: TrialResult) -> Usage:
    """Return what the judge used for a trial; a cached vote used nothing."""
    total = Usage()
    for evidence in _judged(result):
        for vote in wire.decode(json.dumps(evidence["votes"]), tuple[Vote, ...]):
            total += Usage() if vote.cached else vote.usage
    return total


def _judged(result: TrialResult) -> Iterator[dict[str, Any]]:
    """Yield the evidence of each grade that the judge gave."""
    for grade in result.grades:
        if grade.check == "llm_judge" and grade.evidence:
            yield json.loads(grade.evidence)
