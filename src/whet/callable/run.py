"""Evaluate callable skills: the flow of a run, in which each trial is a call of a skill, and reports on each skill."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import asdict, replace

from whet import exit_codes
from whet.agents.prices import priced
from whet.callable._summary import status_of, summarize
from whet.callable.clients.connect import connect
from whet.callable.clients.contract import CallAnswer, SkillClient, output_problems, secrets_of
from whet.callable.manifest import MANIFEST
from whet.callable.plan import EvalRequest, PlannedEvaluation, describe_calls, load_and_plan_evaluation
from whet.callable.report_files import write_reports
from whet.decide.comparison import comparisons_in
from whet.errors import AttemptError, Problem, SkillFailed, SuiteError, UsageError
from whet.grade.answers.evaluators import find_scorer
from whet.grade.evidence import GradedAnswer
from whet.grade.judge.judge import judgements
from whet.grade.judge_settings import judge_settings, with_usual_model
from whet.model.arm import DEFAULT
from whet.model.callable import BenchmarkTask, CallableSkill, CompletionReport, EvaluationOutcome, Sample
from whet.model.comparison import Comparison
from whet.model.events import FinalOutput
from whet.model.grade import FailureClass
from whet.model.run import RunInfo, Trial, TrialResult
from whet.model.run_events import Results
from whet.model.session import SessionSummary, Usage
from whet.plan.judge import check_judge
from whet.record.results import JournalResults
from whet.report.decisions.words import sentence
from whet.run.attempt.grading import evidence_of, grade
from whet.run.attempt.record import AttemptRecord, recording
from whet.run.attempt.trial import OUTPUT_KEPT, attempt_with_retries
from whet.run.conclude import Conclusion
from whet.run.context import RunContext
from whet.run.flow import RunKind, perform, print_dry_run
from whet.run.state import RunState
from whet.sandbox.contract import Sandbox
from whet.secrets import Masker, can_be_hidden

_ANSWER_FILE = "answer.json"
_WRONG = FailureClass(id="wrong-answer", label="Wrong answer")
_ASKED_AT_ONCE = 8
_HINT = "correct or start it, leave it out, or add --no-health-check: its calls are then errored"


def evaluate(request: EvalRequest) -> int:
    """Carry out *request* and return the exit code."""
    evaluation = load_and_plan_evaluation(request)
    if request.run.dry_run:
        print_dry_run(evaluation.planned, [evaluation.planned.plan], describe_calls(evaluation))
        return exit_codes.DONE
    benchmark = evaluation.benchmark
    check_judge(evaluation.planned.plan, evaluation.planned.settings, by_agents=False)
    if evaluation.benchmark.needs_judge and evaluation.planned.settings.judge.get("runner"):
        raise UsageError(
            "judge.runner: an agent judges suites, and an evaluation needs a model", hint="leave out judge.runner"
        )
    for task in benchmark.tasks:
        if task.evaluator.kind == "custom":
            find_scorer(task.expected.custom_scorer or "", benchmark.source.parent)
    calls = Calls(evaluation.skills, check_schemas=evaluation.request.asked.check_schemas)
    kind = RunKind(
        run_trial=calls.run_trial,
        starts_agents=False,
        ready=partial(_ready, evaluation),
        around=calls.connected,
        conclude=partial(_conclude, evaluation),
    )
    return perform(evaluation.planned, kind)


def _ready(evaluation: PlannedEvaluation, sandbox: Sandbox, masker: Masker) -> tuple[str, ...]:
    """Check the health of the skills; return warnings."""
    secrets = (value for skill in evaluation.skills.values() for value in secrets_of(skill, os.environ).values())
    masker.learn(filter(can_be_hidden, secrets))
    warnings: list[str] = []
    if evaluation.planned.settings.max_cost_usd is not None and not _costs_are_known(evaluation):
        warnings.append("no skill and no judge reports a cost, so --max-cost has no effect")
    if sandbox.in_image and evaluation.planned.settings.image is None:
        raise UsageError("no image is named for the skills", hint='set run.image = "NAME", or WHET_IMAGE')
    # In containers, the first call shows it: there is no image yet.
    if evaluation.request.check_health and not sandbox.in_image:
        warnings += check_health(_skills_to_call(evaluation), sandbox, masker, os.environ)
    return tuple(warnings)


def _skills_to_call(evaluation: PlannedEvaluation) -> list[CallableSkill]:
    """Return the skills with calls still to make; a skill of which only files are graded is never called."""
    earlier = evaluation.planned.earlier
    journal = earlier.run.journal if earlier else None
    tasks = {task.id for task in evaluation.benchmark.tasks if task.evaluator.subject == "output"}
    keys = (trial.key for trial in evaluation.planned.plan.trials() if trial.key.case in tasks)
    open_keys = {(key.arm, key.runner) for key in keys if journal is None or not journal.is_done(key)}
    return [skill for key, skill in evaluation.skills.items() if key in open_keys]


def _costs_are_known(evaluation: PlannedEvaluation) -> bool:
    if not evaluation.benchmark.needs_judge:
        return False

    settings = with_usual_model(judge_settings(evaluation.planned.settings.judge), os.environ)
    return priced(Usage(input_tokens=1, output_tokens=1), settings.model_name).cost_usd is not None


def _conclude(evaluation: PlannedEvaluation, info: RunInfo, results: JournalResults) -> Conclusion:
    """Write the reports; the code says whether a skill completes less than asked for."""
    request, least = evaluation.request, evaluation.request.min_completion
    reports = tuple(_reports(evaluation, info, results))
    baseline = evaluation.planned.plan.baseline
    files = tuple(write_reports(reports, request.formats, request.reports_dir, info.run_dir))
    candidates = [report for report in reports if report.arm is None or report.arm != baseline]
    rates = {report.label: report.summary.completion for report in candidates}
    below = tuple(skill for skill, rate in rates.items() if least is not None and rate and rate.value < least)
    is_complete = results.counts["errored"] == 0 and results.counts["not-run"] == 0
    code_without_failures = exit_codes.DONE if is_complete else exit_codes.ERRORED
    return Conclusion(
        code=exit_codes.FAILED if below else code_without_failures,
        evaluated=EvaluationOutcome(reports=reports, files=files, least=least, below=below),
    )


def _reports(evaluation: PlannedEvaluation, info: RunInfo, results: Results) -> Iterator[CompletionReport]:
    """Yield a report for each skill that the run called, in each arm."""
    benchmark, executions = evaluation.benchmark, results.plan.executions
    ks = tuple(dict.fromkeys((benchmark.k, max(execution.trials for execution in executions))))
    tasks = {task.id: task for task in benchmark.tasks}
    decisions = {
        (comparison.candidate, comparison.runner): _decision(comparison) for comparison in comparisons_in(results)
    }
    for (arm, name), skill in evaluation.skills.items():
        skill_executions = [
            execution for execution in executions if (execution.arm, execution.runner.id) == (arm, name)
        ]
        calls: list[Sample] = []
        usage, judging = Usage(), Usage()
        for execution in skill_executions:
            for result in results.trials(execution):
                calls.append(sample_of(result, tasks[execution.case.id], info.run_dir))
                usage += calls[-1].usage or Usage()
                judging += result.judge_usage
        if skill_executions:
            summary = summarize(
                calls,
                scoring=benchmark.scoring,
                ks=ks,
                max_latency_ms=benchmark.max_latency_ms,
                weights=evaluation.weights,
            )
            yield CompletionReport(
                summary=summary,
                calls=tuple(calls),
                scoring=benchmark.scoring,
                ks=ks,
                max_latency_ms=benchmark.max_latency_ms,
                weights=asdict(evaluation.weights),
                skill=skill.id,
                skill_version=skill.version,
                arm=None if arm == DEFAULT else arm,
                decision=decisions.get((arm, name)) or decisions.get((arm, None)),
                benchmark=benchmark.id,
                timestamp=info.started_at,
                usage=usage,
                judging=judging if calls and benchmark.needs_judge else None,
            )


def _decision(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as a report has it."""
    field_names = ("baseline", "verdict", "difference", "low", "high", "margin")
    return {"sentence": sentence(comparison), **{name: getattr(comparison, name) for name in field_names}}


def sample_of(result: TrialResult, task: BenchmarkTask, run_dir: Path) -> Sample:
    """Return the result of a call as reports have it."""
    status = status_of(result)
    has_answer = status in {"pass", "fail"}
    return Sample(
        task=task.id,
        run=result.number,
        status=status,
        score=result.score or 0.0,
        latency_ms=result.session_s * 1000 if has_answer and result.session_s is not None else None,
        weight=task.weight,
        evaluator=task.evaluator.kind,
        output=_output(result, run_dir),
        error=None if has_answer or result.failure is None else result.failure.message,
        reason="; ".join(grade.reason for grade in result.grades),
        usage=result.total_usage if result.total_usage.total_tokens is not None else None,
        flags=tuple(flag for evidence in judgements(result.grades) for flag in evidence["flags"]),
    )


def _output(result: TrialResult, run_dir: Path) -> Any:
    """Return the answer; the journal keeps only the beginning of a long one."""
    if not result.final_output:
        return None
    try:
        if len(result.final_output) <= OUTPUT_KEPT:
            return json.loads(result.final_output)
        return json.loads((run_dir / result.artifact_dir / _ANSWER_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return result.final_output


class Calls:
    """Runs trials by calling skills, with one client for each skill of each arm."""

    def __init__(self, skills: Mapping[tuple[str, str], CallableSkill], *, check_schemas: bool) -> None:
        # By arm and id.
        self._skills = skills
        self._clients: dict[tuple[str, str], SkillClient] = {}
        self._check_schemas = check_schemas
        self._sandbox: Sandbox | None = None

    @asynccontextmanager
    async def connected(self, _: RunState, context: RunContext) -> AsyncIterator[None]:
        """Connect to every skill, for the whole run."""
        async with AsyncExitStack() as stack:
            self._sandbox = (
                context.sandbox if context.container_pool is None else await context.container_pool.of_settings()
            )
            for key, skill in self._skills.items():
                client = connect(skill, self._sandbox, context.environ, context.ceilings, context.scratch)
                self._clients[key] = await stack.enter_async_context(client)
            yield

    async def run_trial(self, context: RunContext, trial: Trial) -> TrialResult:
        """Call the skill of the trial; without an answer, call it again as often as its retries allow."""
        context = replace(context, sandbox=self._sandbox or context.sandbox)
        retries: int = trial.execution.runner.options["retries"]
        return await attempt_with_retries(context, trial, partial(self._attempt, context, trial), retries=retries)

    async def _attempt(self, context: RunContext, trial: Trial, number: int) -> AttemptRecord:
        with recording(context, trial, number) as record:
            await self._call(context, trial, record)
        listener = context.listener(trial)
        if listener is not None:
            listener(FinalOutput(text=_describe(trial, record)))
        return record

    async def _call(self, context: RunContext, trial: Trial, record: AttemptRecord) -> None:
        (check,), key = trial.execution.case.checks, (trial.key.arm, trial.key.runner)
        skill = self._skills[key]
        task: BenchmarkTask = check.params["task"]
        if task.evaluator.subject == "files":
            # Only files of the skill are graded, so it is not called.
            reply = CallAnswer(output=None, latency_ms=0.0)
        else:
            timeout_s = trial.execution.limits.timeout_s or 0
            reply = await self._clients[key].call(task.input, timeout_s=timeout_s)
        _keep(context, trial, record, reply)
        if self._check_schemas and task.evaluator.subject == "output":
            problems = output_problems(skill, reply.output)
            if problems:
                raise SkillFailed(f"its answer does not match its outputSchema: {'; '.join(problems)}")
        answer = GradedAnswer(
            output=reply.output,
            skill_id=skill.id,
            skill_version=skill.version,
            skill=skill.root,
            latency_ms=reply.latency_ms,
            sandbox=context.sandbox,
        )
        evidence = await evidence_of(context, trial, record, skill.root)
        await grade(context, trial, record, replace(evidence, skill=skill.root, answer=answer))
        if record.failure is not None:
            record.failure_class = _WRONG
        # Only calls without an answer are retried: asking until an answer is right would measure something else.
        record.retry = False


def _describe(trial: Trial, record: AttemptRecord) -> str:
    """Describe a call for people who watch: its input, its answer, and what is wrong with it."""
    answer = record.session.final_output if record.session else "no answer"
    wrong = f": {record.failure.message}" if record.failure else ""
    return f"{trial.execution.case.prompt} gives {answer}{wrong}"


def _keep(context: RunContext, trial: Trial, record: AttemptRecord, reply: CallAnswer) -> None:
    """Write the answer into the record, without secrets, and note it as a session."""
    text = json.dumps(context.masker.tree(reply.output), ensure_ascii=False)
    folder = context.run_dir / record.artifact_dir
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - half the time of Path.mkdir, and there are many
    (folder / _ANSWER_FILE).write_bytes(text.encode("utf-8", "backslashreplace") + b"\n")
    record.usage = reply.usage or Usage()
    # One that reports nothing may cost nothing.
    record.unpriced = reply.usage is not None and reply.usage.cost_usd is None
    record.session = SessionSummary(
        runner=trial.key.runner,
        agent=trial.execution.runner.agent,
        prompt=trial.execution.case.prompt,
        final_output=text,
        usage=record.usage,
        started_at=record.started_at,
        duration_s=reply.latency_ms / 1000,
    )


def check_health(
    skills: Sequence[CallableSkill], sandbox: Sandbox, masker: Masker, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a warning for each skill that is not healthy; raises `SuiteError` if some cannot be called."""
    troubles = anyio.run(_ask_all, skills, sandbox, environ)
    answers = [(skill, troubles[number]) for number, skill in enumerate(skills) if number in troubles]
    problems = [
        Problem(
            file=str(skill.root / MANIFEST),
            message=f"{skill.id} cannot be called: {masker.text(error.message)}",
            hint=_HINT,
        )
        for skill, error in answers
        if isinstance(error, AttemptError)
    ]
    if problems:
        raise SuiteError(problems)
    return tuple(f"{skill.id} is not healthy: {masker.text(str(reason))}" for skill, reason in answers)


async def _ask_all(
    skills: Sequence[CallableSkill], sandbox: Sandbox, environ: Mapping[str, str]
) -> dict[int, str | AttemptError]:
    """Return why skills are not healthy, by their place: what they say, or the error if they cannot be called."""
    troubles: dict[int, str | AttemptError] = {}
    room = anyio.CapacityLimiter(_ASKED_AT_ONCE)

    async def ask(number: int, skill: CallableSkill) -> None:
        try:
            async with room, connect(skill, sandbox, environ) as client:
                reason = await client.health()
        except AttemptError as error:
            troubles[number] = error
        else:
            if reason is not None:
                troubles[number] = reason

    try:
        async with anyio.create_task_group() as group:
            for number, skill in enumerate(skills):
                group.start_soon(ask, number, skill)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.close()
    return troubles
