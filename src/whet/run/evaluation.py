"""Evaluate callable skills: the flow of a run, with calls of skills instead of agents, and reports on each skill."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whet.agents.callable import SkillClient, secrets_of
from whet.agents.callable_connect import connect
from whet.agents.prices import priced
from whet.dataclass import dataclass
from whet.grade.evaluator_graders import find_scorer
from whet.grade.judge_questions import Vote
from whet.grade.scores import Weights
from whet.grade.summary import sample_of, summarize
from whet.ground.sandbox import Sandbox
from whet.ground.secrets import Masker, can_be_hidden
from whet.model import wire
from whet.model.benchmark import Benchmark, BenchmarkTask, CallableSkill, CallRecord, CompletionReport, Evaluated
from whet.model.event import Results
from whet.model.run import RunInfo, Trial, TrialResult
from whet.model.session import Usage
from whet.plan.settle import check_judge
from whet.plan.settle_eval import EvalRequest, PlannedEvaluation, describe_calls, retries_of, settle_evaluation
from whet.record.results import JournalResults
from whet.report.completion_files import write_reports
from whet.run.calling import ANSWER_FILE, Calling, call_trial, check_health
from whet.run.conclude import Conclusion
from whet.run.flow import Approach, perform
from whet.run.parts import RunParts
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
    return perform(evaluation.planned, _Evaluation(evaluation).approach())


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """An evaluation under way."""

    asked: PlannedEvaluation

    def approach(self) -> Approach:
        """Connect to every skill for the whole run; each trial is a call."""
        skills, settings = self.asked.skills, self.asked.settings
        clients: dict[str, SkillClient] = {}
        calling = Calling(
            skills={skill.id: skill for skill in skills},
            clients=clients,
            retries={skill.id: retries_of(skill, settings) for skill in skills},
            check_schemas=self.asked.request.check_schemas,
        )

        @asynccontextmanager
        async def around(parts: RunParts) -> AsyncIterator[None]:
            async with AsyncExitStack() as stack:
                for skill in skills:
                    client = connect(skill, parts.sandbox, parts.environ, parts.ceilings, parts.scratch)
                    clients[skill.id] = await stack.enter_async_context(client)
                yield

        async def run_trial(parts: RunParts, trial: Trial) -> TrialResult:
            return await call_trial(parts, calling, trial)

        return Approach(
            run_trial=run_trial, ready=self.ready, around=around, conclude=self.conclude, extra_usage=judging_of
        )

    def ready(self, sandbox: Sandbox, masker: Masker) -> tuple[str, ...]:
        """Check the health of the skills; return warnings."""
        masker.learn(filter(can_be_hidden, self._secrets()))
        warnings: list[str] = []
        if self.asked.settings.max_cost_usd is not None and not self._costs_are_known():
            warnings.append("no skill and no judge reports a cost, so --max-cost has no effect")
        if not self.asked.request.check_health:
            return tuple(warnings)
        return (*warnings, *check_health(self.asked.skills_to_call(), sandbox, masker, os.environ))

    def _costs_are_known(self) -> bool:
        if not self.asked.benchmark.needs_judge:
            return False
        from whet.grade.judge_client import judge_settings  # noqa: PLC0415 - only if a judge is needed

        settings = judge_settings(self.asked.settings.judge)
        return priced(Usage(input_tokens=1, output_tokens=1), settings.model_name).cost_usd is not None

    def _secrets(self) -> Iterator[str]:
        for skill in self.asked.skills:
            yield from secrets_of(skill, os.environ).values()

    def conclude(self, info: RunInfo, results: JournalResults) -> Conclusion:
        """Write the reports; the code says whether a skill completes less than asked for."""
        request, asked = self.asked.request, self.asked
        reports = reports_of(info, results, asked.benchmark, asked.skills, asked.weights)
        files = tuple(write_reports(reports, request.formats, request.reports_dir, info.run_id))
        below = _below(reports, request.min_completion)
        counts = results.counts
        whole = counts["errored"] == 0 and counts["not-run"] == 0
        return Conclusion(
            code=FAILED if below else PASSED if whole else ERRORED,
            evaluated=Evaluated(reports=tuple(reports), files=files, least=request.min_completion, below=tuple(below)),
        )


def _below(reports: Sequence[CompletionReport], least: float | None) -> list[str]:
    """Return the skills that complete less; one without a completion rate is not among them."""
    if least is None:
        return []
    return [
        report.skill
        for report in reports
        if report.summary.completion is not None and report.summary.completion.value < least
    ]


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
