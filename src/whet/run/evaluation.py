"""Evaluate callable skills: the flow of a run, with calls of skills instead of agents, and reports on each skill."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from whet.agents.callable import secrets_of
from whet.agents.prices import priced
from whet.grade.evaluator_graders import find_scorer
from whet.grade.judge_questions import Vote
from whet.grade.summary import report_on, status_of
from whet.ground.sandbox import Sandbox
from whet.ground.secrets import Masker, can_be_hidden
from whet.model import wire
from whet.model.benchmark import BenchmarkTask, CallableSkill, CompletionReport, Evaluated, Sample
from whet.model.event import Results
from whet.model.run import RunInfo, TrialResult
from whet.model.session import Usage
from whet.plan.settle import check_judge
from whet.plan.settle_eval import EvalRequest, PlannedEvaluation, describe_calls, settle_evaluation
from whet.record.results import JournalResults
from whet.report.completion_files import write_reports
from whet.run.calling import ANSWER_FILE, Calls, check_health
from whet.run.conclude import Conclusion
from whet.run.flow import Approach, perform
from whet.run.run_state import ERRORED, FAILED, PASSED
from whet.run.trial import OUTPUT_KEPT


def evaluate(request: EvalRequest) -> int:
    """Carry out *request* and return the exit code."""
    evaluation = settle_evaluation(request)
    if request.run.dry_run:
        sys.stdout.write("".join(f"{line}\n" for line in describe_calls(evaluation)))
        return PASSED
    benchmark = evaluation.benchmark
    check_judge(evaluation.planned.plan)
    for task in benchmark.tasks:
        if task.evaluator.kind == "custom":
            find_scorer(task.expected.custom_scorer or "", benchmark.source.parent)
    calls = Calls(evaluation.skills, check_schemas=evaluation.request.asked.check_schemas)
    approach = Approach(
        run_trial=calls.run_trial,
        ready=partial(_ready, evaluation),
        around=calls.connected,
        conclude=partial(_conclude, evaluation),
        extra_usage=judging_of,
    )
    return perform(evaluation.planned, approach)


def _ready(evaluation: PlannedEvaluation, sandbox: Sandbox, masker: Masker) -> tuple[str, ...]:
    """Check the health of the skills; return warnings."""
    secrets = (value for skill in evaluation.skills for value in secrets_of(skill, os.environ).values())
    masker.learn(filter(can_be_hidden, secrets))
    warnings: list[str] = []
    if evaluation.planned.settings.max_cost_usd is not None and not _costs_are_known(evaluation):
        warnings.append("no skill and no judge reports a cost, so --max-cost has no effect")
    if evaluation.request.check_health:
        warnings += check_health(_skills_to_call(evaluation), sandbox, masker, os.environ)
    return tuple(warnings)


def _skills_to_call(evaluation: PlannedEvaluation) -> list[CallableSkill]:
    """Return the skills with calls still to make; a skill of which only files are graded is never called."""
    earlier = evaluation.planned.earlier
    done = earlier.run.done if earlier else frozenset()
    tasks = {task.id for task in evaluation.benchmark.tasks if task.evaluator.subject == "output"}
    keys = (trial.key for trial in evaluation.planned.plan.trials())
    called = {key.runner for key in keys if key not in done and key.case in tasks}
    return [skill for skill in evaluation.skills if skill.id in called]


def _costs_are_known(evaluation: PlannedEvaluation) -> bool:
    if not evaluation.benchmark.needs_judge:
        return False
    from whet.grade.judge_client import judge_settings  # noqa: PLC0415 - only if a judge is needed

    settings = judge_settings(evaluation.planned.settings.judge)
    return priced(Usage(input_tokens=1, output_tokens=1), settings.model_name).cost_usd is not None


def _conclude(evaluation: PlannedEvaluation, info: RunInfo, results: JournalResults) -> Conclusion:
    """Write the reports; the code says whether a skill completes less than asked for."""
    request, least = evaluation.request, evaluation.request.min_completion
    reports = tuple(_reports(evaluation, info, results))
    files = tuple(write_reports(reports, request.formats, request.reports_dir, info.run_id))
    rates = {report.skill: report.summary.completion for report in reports}
    below = tuple(skill for skill, rate in rates.items() if least is not None and rate and rate.value < least)
    whole = results.counts["errored"] == 0 and results.counts["not-run"] == 0
    return Conclusion(
        code=FAILED if below else PASSED if whole else ERRORED,
        evaluated=Evaluated(reports=reports, files=files, least=least, below=below),
    )


def _reports(evaluation: PlannedEvaluation, info: RunInfo, results: Results) -> Iterator[CompletionReport]:
    """Yield a report for each skill that the run called."""
    benchmark, executions = evaluation.benchmark, results.plan.executions
    ks = tuple(dict.fromkeys((benchmark.k, max(execution.trials for execution in executions))))
    tasks = {task.id: task for task in benchmark.tasks}
    for skill in evaluation.skills:
        own = [execution for execution in executions if execution.runner.id == skill.id]
        calls: list[Sample] = []
        usage, judging = Usage(), Usage()
        for execution in own:
            for result in results.trials(execution):
                calls.append(sample_of(result, tasks[execution.case.id], info.run_dir))
                usage += calls[-1].usage or Usage()
                judging += judging_of(result)
        if own:
            yield report_on(
                calls,
                scoring=benchmark.scoring,
                ks=ks,
                max_latency_ms=benchmark.max_latency_ms,
                weights=asdict(evaluation.weights),
                skill=skill.id,
                skill_version=skill.version,
                benchmark=benchmark.id,
                timestamp=info.started_at,
                usage=usage,
                judging=judging if calls and benchmark.needs_judge else None,
            )


def sample_of(result: TrialResult, task: BenchmarkTask, run_dir: Path) -> Sample:
    """Return the result of a call as reports have it."""
    status = status_of(result)
    answered = status in {"pass", "fail"}
    return Sample(
        task=task.id,
        run=result.number,
        status=status,
        score=result.score or 0.0,
        latency_ms=result.session_s * 1000 if answered and result.session_s is not None else None,
        weight=task.weight,
        evaluator=task.evaluator.kind,
        output=_output(result, run_dir),
        error=None if answered or result.failure is None else result.failure.message,
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
