"""A whole evaluation: the same flow as a run, with calls of skills in the place of agents."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from whet.engine.calling import Calling, call_trial
from whet.engine.ground import SharedGround
from whet.engine.parts import Parts
from whet.evaluation.health import must_be_well
from whet.evaluation.lower import describe_calls, retries_of
from whet.evaluation.reports import judging_of, reports_of, write_reports
from whet.evaluation.request import EvalRequest
from whet.evaluation.settle import Settled, settle, to_be_called
from whet.grade.evaluate.evaluators import Evaluators
from whet.grade.judge.judge import LlmJudge
from whet.grade.judge.settings import find_key, judge_settings
from whet.mask import Masker, can_be_hidden
from whet.model.completion import CompletionReport, Evaluated
from whet.model.run import RunInfo, Trial, TrialResult
from whet.model.session import Usage
from whet.pipeline import ERRORED, FAILED, PASSED, Approach, Concluded, carry_out
from whet.prices import priced
from whet.sandbox.base import Sandbox
from whet.skills.base import SkillClient, secrets_of
from whet.skills.connect import connect
from whet.store.results import JournalResults


def evaluate(request: EvalRequest) -> int:
    """Carry out *request*; the exit code."""
    settled = settle(request)
    benchmark = settled.benchmark
    if request.dry_run:
        lines = describe_calls(settled.planned.plan, benchmark, settled.skills)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return PASSED
    judge = _judge(settled)
    # Before there are threads, because it forks.
    evaluators = Evaluators(benchmark.tasks, benchmark.source.parent, judge)
    try:
        return carry_out(settled.planned, _Evaluation(settled, evaluators, judge).approach())
    finally:
        evaluators.close()


def _judge(settled: Settled) -> LlmJudge | None:
    """Whoever is asked for verdicts; without a key there is no run."""
    if not settled.benchmark.needs_judge:
        return None
    settings = settled.settings
    return LlmJudge(judge_settings(settings.judge, cache_dir=settings.output_dir.parent / "judge"), os.environ)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One evaluation, and how a run goes about it."""

    settled: Settled
    evaluators: Evaluators
    judge: LlmJudge | None

    def approach(self) -> Approach:
        """Every client is there for the whole run, and each trial is a call."""
        skills, settings = self.settled.skills, self.settled.settings
        clients: dict[str, SkillClient] = {}
        calling = Calling(
            tasks={task.id: task for task in self.settled.benchmark.tasks},
            skills={skill.id: skill for skill in skills},
            clients=clients,
            evaluators=self.evaluators,
            retries={skill.id: retries_of(skill, settings) for skill in skills},
            check_schemas=self.settled.request.check_schemas,
        )

        @asynccontextmanager
        async def around(parts: Parts) -> AsyncIterator[None]:
            async with AsyncExitStack() as stack:
                if self.judge is not None:
                    stack.push_async_callback(self.judge.close)
                for skill in skills:
                    client = connect(skill, parts.sandbox, parts.environ, parts.ceilings, parts.scratch)
                    clients[skill.id] = await stack.enter_async_context(client)
                yield

        async def trying(parts: Parts, shared: SharedGround, trial: Trial) -> TrialResult:
            del shared
            return await call_trial(parts, calling, trial)

        return Approach(trying=trying, ready=self.ready, around=around, conclude=self.conclude, beside=judging_of)

    def ready(self, sandbox: Sandbox, masker: Masker) -> tuple[str, ...]:
        """Hear how the skills are; what a person should know of it."""
        masker.learn(filter(can_be_hidden, self._secrets()))
        warnings: list[str] = []
        if self.settled.settings.max_cost_usd is not None and not self._costs_are_known():
            warnings.append("no skill and no judge tells what it costs, so --max-cost holds nothing")
        if not self.settled.request.check_health:
            return tuple(warnings)
        return (*warnings, *must_be_well(to_be_called(self.settled), sandbox, masker, os.environ))

    def _costs_are_known(self) -> bool:
        if self.judge is None:
            return False
        settings = judge_settings(self.settled.settings.judge, cache_dir=None)
        return priced(Usage(input_tokens=1, output_tokens=1), settings.model_name).cost_usd is not None

    def _secrets(self) -> Iterator[str]:
        for skill in self.settled.skills:
            yield from secrets_of(skill, os.environ).values()
        if self.judge is not None:
            yield find_key(judge_settings(self.settled.settings.judge, cache_dir=None), os.environ)

    def conclude(self, info: RunInfo, results: JournalResults) -> Concluded:
        """Write the reports, and hold every skill to the least completion that was asked for."""
        request, settled = self.settled.request, self.settled
        reports = reports_of(info, results, settled.benchmark, settled.skills, settled.weights)
        files = tuple(write_reports(reports, request.formats, request.reports_dir, info.run_id))
        below = _below(reports, request.min_completion)
        counts = results.counts
        whole = counts["errored"] == 0 and counts["not-run"] == 0
        return Concluded(
            code=FAILED if below else PASSED if whole else ERRORED,
            evaluated=Evaluated(reports=tuple(reports), files=files, least=request.min_completion, below=tuple(below)),
        )


def _below(reports: Sequence[CompletionReport], least: float | None) -> list[str]:
    """The skills that are known to complete less; one of which nothing is known is not among them."""
    if least is None:
        return []
    return [
        report.skill
        for report in reports
        if report.summary.completion is not None and report.summary.completion.value < least
    ]
