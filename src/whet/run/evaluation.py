"""Evaluate callable skills: the flow of a run, with calls of skills instead of agents, and reports on each skill."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from whet.agents.callable import SkillClient, secrets_of
from whet.agents.callable_connect import connect
from whet.agents.prices import priced
from whet.grade.evaluators import Evaluators
from whet.grade.judge import LlmJudge
from whet.grade.judge_client import find_key, judge_settings
from whet.ground.sandbox import Sandbox
from whet.ground.secrets import Masker, can_be_hidden
from whet.model.benchmark import CompletionReport, Evaluated
from whet.model.run import RunInfo, Trial, TrialResult
from whet.model.session import Usage
from whet.plan.settle_eval import EvalRequest, PlannedEvaluation, describe_calls, retries_of, settle_evaluation
from whet.record.results import JournalResults
from whet.report.completion_files import write_reports
from whet.run.calling import Calling, call_trial, check_health
from whet.run.evaluation_reports import judging_of, reports_of
from whet.run.flow import Approach, perform
from whet.run.parts import RunParts
from whet.run.run_state import ERRORED, FAILED, PASSED, Conclusion


def evaluate(request: EvalRequest) -> int:
    """Carry out *request* and return the exit code."""
    evaluation = settle_evaluation(request)
    if request.run.dry_run:
        sys.stdout.write("".join(f"{line}\n" for line in describe_calls(evaluation)))
        return PASSED
    benchmark, judge = evaluation.benchmark, _judge(evaluation)
    # Before there are threads, because it forks.
    evaluators = Evaluators(benchmark.tasks, benchmark.source.parent, judge)
    try:
        return perform(evaluation.planned, _Evaluation(evaluation, evaluators, judge).approach())
    finally:
        evaluators.close()


def _judge(evaluation: PlannedEvaluation) -> LlmJudge | None:
    """Return the judge, if a task needs one; raises if it has no key."""
    if not evaluation.benchmark.needs_judge:
        return None
    settings = evaluation.settings
    return LlmJudge(judge_settings({"cache_dir": settings.output_dir.parent / "judge", **settings.judge}), os.environ)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """An evaluation under way."""

    asked: PlannedEvaluation
    evaluators: Evaluators
    judge: LlmJudge | None

    def approach(self) -> Approach:
        """Connect to every skill for the whole run; each trial is a call."""
        skills, settings = self.asked.skills, self.asked.settings
        clients: dict[str, SkillClient] = {}
        calling = Calling(
            tasks={task.id: task for task in self.asked.benchmark.tasks},
            skills={skill.id: skill for skill in skills},
            clients=clients,
            evaluators=self.evaluators,
            retries={skill.id: retries_of(skill, settings) for skill in skills},
            check_schemas=self.asked.request.check_schemas,
        )

        @asynccontextmanager
        async def around(parts: RunParts) -> AsyncIterator[None]:
            async with AsyncExitStack() as stack:
                if self.judge is not None:
                    stack.push_async_callback(self.judge.close)
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
        if self.judge is None:
            return False
        settings = judge_settings(self.asked.settings.judge)
        return priced(Usage(input_tokens=1, output_tokens=1), settings.model_name).cost_usd is not None

    def _secrets(self) -> Iterator[str]:
        for skill in self.asked.skills:
            yield from secrets_of(skill, os.environ).values()
        if self.judge is not None:
            yield find_key(judge_settings(self.asked.settings.judge), os.environ)

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
