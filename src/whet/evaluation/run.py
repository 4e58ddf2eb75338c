"""A whole evaluation: the same flow as a run, with calls of skills in the place of agents."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from whet.config import Settings, load_settings
from whet.engine.calling import Calling, call_trial
from whet.engine.ground import SharedGround
from whet.engine.parts import Parts
from whet.errors import Problem, SuiteError, UsageError
from whet.evaluation.lower import plan_of, retries_of, suite_of
from whet.evaluation.reports import reports_of, write_reports
from whet.evaluation.request import EvalRequest, asked_before
from whet.formats.benchmark.find import find_benchmark
from whet.formats.benchmark.read import LoadedBenchmark, read_benchmark, read_tasks
from whet.grade.evaluate.evaluators import Evaluators
from whet.grade.judge.judge import LlmJudge
from whet.grade.judge.settings import find_key, judge_settings
from whet.model.benchmark import Benchmark
from whet.model.completion import CompletionReport
from whet.model.run import RunInfo, Trial, TrialResult
from whet.model.skill import CallableSkill
from whet.pipeline import ERRORED, FAILED, PASSED, Approach, Concluded, Planned, carry_out
from whet.plan import describe_plan
from whet.skills.base import SkillClient, input_problems, missing_secrets, secrets_of
from whet.skills.connect import connect
from whet.skills.read import LoadedSkill, find_skills
from whet.store.folder import find_run_folder, read_run_file
from whet.store.request import Recorded, recorded_flags
from whet.store.results import JournalResults


def evaluate(request: EvalRequest) -> int:
    """Carry out *request*; the exit code."""
    request, run_dir = _resumed(request)
    settings = load_settings(Path.cwd(), flags=request.flags, environ=os.environ, config_file=request.config_file)
    loaded, found = _benchmark(request), find_skills(request.skills)
    benchmark, skills = loaded.benchmark, [each.skill for each in found]
    _refuse(request, benchmark, skills, settings)
    planned = _planned(request, settings, loaded, found)
    if run_dir is not None:
        planned = replace(planned, earlier=_earlier(run_dir, planned))
    if request.dry_run:
        sys.stdout.write("".join(f"{line}\n" for line in describe_plan(planned.plan)))
        return PASSED
    judge = _judge(benchmark, settings)
    # Before there are threads, because it forks.
    evaluators = Evaluators(benchmark.tasks, benchmark.source.parent, judge)
    try:
        evaluation = _Evaluation(request, settings, benchmark, skills, evaluators, judge)
        return carry_out(planned, evaluation.approach())
    finally:
        evaluators.close()


def _resumed(request: EvalRequest) -> tuple[EvalRequest, Path | None]:
    """The request of an earlier run, and its folder, where this one goes on with it."""
    if request.resume is None:
        if not request.skills:
            raise UsageError("which skills?", hint="name their folders with --skills")
        return request, None
    settings = load_settings(Path.cwd(), flags=request.flags, environ=os.environ, config_file=request.config_file)
    run_dir = find_run_folder(request.resume, settings.output_dir)
    facts = read_run_file(run_dir)
    before = asked_before(facts, run_dir.name)
    if request.skills or request.tasks or request.evaluator or request.check_schemas:
        raise UsageError(
            "a resumed run does what it was asked the first time; it cannot change skills, tasks or evaluators",
            hint="start a new run",
        )
    flags = recorded_flags(facts, request.flags)
    return replace(request, **before, flags=flags), run_dir


def _benchmark(request: EvalRequest) -> LoadedBenchmark:
    if request.tasks is not None:
        return read_tasks(request.tasks, default=request.evaluator)
    folders = [request.benchmarks_dir or Path("benchmarks")]
    return read_benchmark(find_benchmark(request.benchmark or "coding-easy", folders), default=request.evaluator)


def _refuse(request: EvalRequest, benchmark: Benchmark, skills: Sequence[CallableSkill], settings: Settings) -> None:
    """Whatever would come to nothing is said before anything runs."""
    problems = [
        Problem(file=str(skill.root / "skill.json"), message=f"needs the variable {name}, which is not set")
        for skill in skills
        for name in missing_secrets(skill, os.environ)
    ]
    if request.check_schemas:
        problems += (
            Problem(file=str(skill.root / "skill.json"), case=task.id, field="inputSchema", message=problem)
            for skill in skills
            for task in benchmark.tasks
            if task.evaluator.subject == "output"
            for problem in input_problems(skill, task.input)
        )
    if problems:
        raise SuiteError(problems)
    if benchmark.scoring == "pass_at_k" and benchmark.k > settings.trials:
        raise UsageError(
            f"{benchmark.id} is scored by pass@{benchmark.k}, and every task is run {settings.trials} times",
            hint=f"add --runs {benchmark.k}",
        )
    if any(skill.adapter == "mcp" for skill in skills):
        from whet.skills.mcp import require_mcp  # noqa: PLC0415 - its library may not be there

        require_mcp()


def _planned(
    request: EvalRequest, settings: Settings, loaded: LoadedBenchmark, found: Sequence[LoadedSkill]
) -> Planned:
    benchmark = loaded.benchmark
    plan = plan_of(benchmark, [each.skill for each in found], settings)
    notes = (*loaded.notes, *(note for each in found for note in each.notes))
    return Planned(
        request=request.as_run(benchmark.source),
        suite=suite_of(benchmark),
        settings=replace(settings, snapshots=None),
        plan=plan,
        facts=request.facts(benchmark.source),
        notices=tuple(map(str, notes)),
    )


def _earlier(run_dir: Path, planned: Planned) -> Recorded:
    facts = read_run_file(run_dir)
    return Recorded(
        run_dir=run_dir,
        request=planned.request,
        fingerprint=str(facts.get("fingerprint")),
        suite_digest=str(facts.get("suite_digest")),
    )


def _judge(benchmark: Benchmark, settings: Settings) -> LlmJudge | None:
    """Whoever is asked for verdicts; without a key there is no run."""
    if not benchmark.needs_judge:
        return None
    return LlmJudge(judge_settings(settings.judge, cache_dir=settings.output_dir.parent / "judge"), os.environ)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One evaluation, and how a run goes about it."""

    request: EvalRequest
    settings: Settings
    benchmark: Benchmark
    skills: Sequence[CallableSkill]
    evaluators: Evaluators
    judge: LlmJudge | None

    def approach(self) -> Approach:
        """Every client is there for the whole run, and each trial is a call."""
        clients: dict[str, SkillClient] = {}
        calling = Calling(
            tasks={task.id: task for task in self.benchmark.tasks},
            skills={skill.id: skill for skill in self.skills},
            clients=clients,
            evaluators=self.evaluators,
            retries={skill.id: retries_of(skill, self.settings) for skill in self.skills},
            check_schemas=self.request.check_schemas,
        )

        @asynccontextmanager
        async def around(parts: Parts) -> AsyncIterator[None]:
            for values in self._secrets():
                parts.masker.learn(values.values())
            async with AsyncExitStack() as stack:
                if self.judge is not None:
                    stack.push_async_callback(self.judge.close)
                for skill in self.skills:
                    client = connect(skill, parts.sandbox, parts.environ, parts.ceilings, parts.scratch)
                    clients[skill.id] = await stack.enter_async_context(client)
                yield

        async def trying(parts: Parts, shared: SharedGround, trial: Trial) -> TrialResult:
            del shared
            return await call_trial(parts, calling, trial)

        return Approach(trying=trying, around=around, conclude=self.conclude)

    def _secrets(self) -> list[dict[str, str]]:
        own = [secrets_of(skill, os.environ) for skill in self.skills]
        if self.judge is not None:
            own.append({"key": find_key(judge_settings(self.settings.judge, cache_dir=None), os.environ)})
        return own

    def conclude(self, info: RunInfo, results: JournalResults) -> Concluded:
        """Write the reports, and hold every skill to the least completion that was asked for."""
        reports = reports_of(info, results, self.benchmark, self.skills)
        written = write_reports(reports, self.request.formats, self.request.reports_dir, info.run_id)
        lines = [_line(report) for report in reports]
        below = _below(reports, self.request.min_completion)
        lines += [f"{name} completes less than {self.request.min_completion:.0%}" for name in below]
        lines += [f"report in {path}" for path in written]
        counts = results.counts
        whole = counts["errored"] == 0 and counts["not-run"] == 0
        return Concluded(code=FAILED if below else PASSED if whole else ERRORED, notices=tuple(lines))


def _below(reports: Sequence[CompletionReport], least: float | None) -> list[str]:
    """The skills that are known to complete less; one of which nothing is known is not among them."""
    if least is None:
        return []
    return [
        report.skill
        for report in reports
        if report.summary.completion is not None and report.summary.completion.value < least
    ]


def _line(report: CompletionReport) -> str:
    summary = report.summary
    if summary.completion is None or summary.error_rate is None:
        return f"{report.skill}: nothing is known, {summary.errored} calls errored"
    share = summary.completion
    parts = [
        f"completion {share.value:.1%} ({share.low:.0%} to {share.high:.0%})",
        f"errors {summary.error_rate.value:.1%}",
        f"score {summary.score or 0:.3f}",
        f"composite {summary.composite or 0:.3f}",
    ]
    if summary.errored:
        parts.append(f"{summary.errored} errored and not counted")
    return f"{report.skill}: {', '.join(parts)}"
