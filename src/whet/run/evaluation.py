"""A whole evaluation: the same flow as a run, with calls of skills in the place of agents."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from whet.agents.callable import SkillClient, secrets_of
from whet.agents.callable_connect import connect
from whet.agents.callable_reading import MANIFEST, find_skills, manifests, read_skill
from whet.agents.prices import priced
from whet.dataclass import dataclass
from whet.errors import AttemptError, Problem, SuiteError, UsageError
from whet.grade.evaluator_graders import find_scorer
from whet.ground.sandbox import Sandbox
from whet.ground.secrets import Masker, can_be_hidden
from whet.model.benchmark import CallableSkill, CompletionReport, Evaluated
from whet.model.run import RunInfo, Trial, TrialResult
from whet.model.session import Usage
from whet.plan.benchmark_suite import describe_calls, retries_of
from whet.plan.plan import counted
from whet.plan.settle import check_judge
from whet.plan.settle_eval import EvalRequest, Settled, settle, to_be_called
from whet.reading.document_files import SUFFIXES, read_plain
from whet.reading.documents import DocumentError
from whet.record.results import JournalResults
from whet.report.completion_files import write_reports
from whet.run.calling import Calling, call_trial
from whet.run.evaluation_reports import judging_of, reports_of
from whet.run.flow import Approach, perform
from whet.run.ground import SharedGround
from whet.run.parts import RunParts
from whet.run.run_state import ERRORED, FAILED, PASSED, Conclusion
from whet.suites.benchmarks import FILES, LoadedBenchmark, read_benchmark, read_tasks

_AT_ONCE = 8
_HINT = "correct or start it, leave it out, or add --no-health-check: its calls are then errored"


@dataclass(frozen=True, slots=True)
class _Found:
    """Why a skill is not well, and whether it can be called all the same."""

    reason: str
    callable: bool


def must_be_well(
    skills: Sequence[CallableSkill], sandbox: Sandbox, masker: Masker, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """A line for each skill that is not well; a `SuiteError` where some cannot be called at all."""
    found = anyio.run(_ask_all, skills, sandbox, environ)
    problems = [
        Problem(
            file=str(skill.root / MANIFEST),
            message=f"{skill.id} cannot be called: {masker.text(found[skill.id].reason)}",
            hint=_HINT,
        )
        for skill in skills
        if skill.id in found and not found[skill.id].callable
    ]
    if problems:
        raise SuiteError(problems)
    return tuple(f"{name} does not say that it is well: {masker.text(each.reason)}" for name, each in found.items())


async def _ask_all(skills: Sequence[CallableSkill], sandbox: Sandbox, environ: Mapping[str, str]) -> dict[str, _Found]:
    found: dict[str, _Found] = {}
    room = anyio.CapacityLimiter(_AT_ONCE)

    async def ask(skill: CallableSkill) -> None:
        async with room:
            answer = await _ask(skill, sandbox, environ)
        if answer is not None:
            found[skill.id] = answer

    try:
        async with anyio.create_task_group() as group:
            for skill in skills:
                group.start_soon(ask, skill)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.close()
    return {skill.id: found[skill.id] for skill in skills if skill.id in found}


async def _ask(skill: CallableSkill, sandbox: Sandbox, environ: Mapping[str, str]) -> _Found | None:
    try:
        async with connect(skill, sandbox, environ) as client:
            reason = await client.health()
    except AttemptError as error:
        return _Found(error.message, callable=False)
    return None if reason is None else _Found(reason, callable=True)


@dataclass(frozen=True, slots=True)
class Examined:
    """A file in which nothing is wrong: what it is in a few words, and what is worth a word."""

    file: Path
    summary: str
    notes: tuple[Problem, ...]


def examine(path: Path) -> list[Examined] | None:
    """What *path* holds for an evaluation, or every problem of it as a `SuiteError`; none where it holds a suite."""
    if path.is_dir():
        return _folder(path)
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return None
    if path.name == MANIFEST:
        return [_skill(path)]
    try:
        document = read_plain(path)
    except DocumentError:
        # Whoever reads suites says where.
        return None
    if isinstance(document, list):
        return [_benchmark(path, read_tasks(path))]
    return _object(path, document) if isinstance(document, dict) else None


def _object(path: Path, document: dict[str, Any]) -> list[Examined] | None:
    if "cases" in document:
        return None
    if "adapterType" in document or "entrypoint" in document:
        return [_skill(path)]
    return [_benchmark(path, read_benchmark(path))] if "tasks" in document else None


def _folder(path: Path) -> list[Examined] | None:
    for name in FILES:
        if (path / name).is_file():
            return [_benchmark(path / name, read_benchmark(path / name))]
    problems: list[Problem] = []
    files = list(manifests(path, problems))
    if not files and not problems:
        return None
    # Together, because two of them may have one id.
    find_skills([path])
    return [_skill(file) for file in files]


def _skill(path: Path) -> Examined:
    loaded = read_skill(path)
    skill = loaded.skill
    return Examined(path, f"skill {skill.id} {skill.version} ({skill.adapter})", loaded.notes)


def _benchmark(path: Path, loaded: LoadedBenchmark) -> Examined:
    benchmark = loaded.benchmark
    problems = list(_missing_graders(path, loaded))
    if problems:
        raise SuiteError(problems, loaded.notes)
    kinds = Counter(task.evaluator.kind for task in benchmark.tasks)
    by = ", ".join(f"{amount} {kind}" for kind, amount in kinds.items())
    summary = f"benchmark {benchmark.id} {benchmark.version}: {counted(len(benchmark.tasks), 'task')} ({by})"
    return Examined(path, summary, loaded.notes)


def _missing_graders(path: Path, loaded: LoadedBenchmark) -> Iterator[Problem]:
    for task in loaded.benchmark.tasks:
        if task.evaluator.kind == "custom":
            try:
                find_scorer(task.expected.custom_scorer or "", loaded.benchmark.source.parent)
            except UsageError as error:
                yield Problem(file=str(path), case=task.id, message=error.message, hint=error.hint)


def evaluate(request: EvalRequest) -> int:
    """Carry out *request*; the exit code."""
    settled = settle(request)
    benchmark = settled.benchmark
    if request.dry_run:
        lines = describe_calls(settled.planned.plan, benchmark, settled.skills)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return PASSED
    check_judge(settled.planned.plan)
    for task in benchmark.tasks:
        if task.evaluator.kind == "custom":
            find_scorer(task.expected.custom_scorer or "", benchmark.source.parent)
    return perform(settled.planned, _Evaluation(settled).approach())


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One evaluation, and how a run goes about it."""

    settled: Settled

    def approach(self) -> Approach:
        """Every client is there for the whole run, and each trial is a call."""
        skills, settings = self.settled.skills, self.settled.settings
        clients: dict[str, SkillClient] = {}
        calling = Calling(
            skills={skill.id: skill for skill in skills},
            clients=clients,
            retries={skill.id: retries_of(skill, settings) for skill in skills},
            check_schemas=self.settled.request.check_schemas,
        )

        @asynccontextmanager
        async def around(parts: RunParts) -> AsyncIterator[None]:
            async with AsyncExitStack() as stack:
                for skill in skills:
                    client = connect(skill, parts.sandbox, parts.environ, parts.ceilings, parts.scratch)
                    clients[skill.id] = await stack.enter_async_context(client)
                yield

        async def run_trial(parts: RunParts, shared: SharedGround, trial: Trial) -> TrialResult:
            del shared
            return await call_trial(parts, calling, trial)

        return Approach(
            run_trial=run_trial, ready=self.ready, around=around, conclude=self.conclude, extra_usage=judging_of
        )

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
        if not self.settled.benchmark.needs_judge:
            return False
        from whet.grade.judge_client import judge_settings  # noqa: PLC0415 - only if a judge is needed

        settings = judge_settings(self.settled.settings.judge)
        return priced(Usage(input_tokens=1, output_tokens=1), settings.model_name).cost_usd is not None

    def _secrets(self) -> Iterator[str]:
        for skill in self.settled.skills:
            yield from secrets_of(skill, os.environ).values()

    def conclude(self, info: RunInfo, results: JournalResults) -> Conclusion:
        """Write the reports, and hold every skill to the least completion that was asked for."""
        request, settled = self.settled.request, self.settled
        reports = reports_of(info, results, settled.benchmark, settled.skills, settled.weights)
        files = tuple(write_reports(reports, request.formats, request.reports_dir, info.run_id))
        below = _below(reports, request.min_completion)
        counts = results.counts
        whole = counts["errored"] == 0 and counts["not-run"] == 0
        return Conclusion(
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
