"""Plan an evaluation of callable skills: its benchmark becomes a suite, and its skills become runners."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from whet.agents.callable import input_problems, missing_secrets
from whet.agents.callable_http import unfit_input
from whet.agents.callable_reading import MANIFEST, SKIPPED
from whet.dataclass import dataclass
from whet.errors import Problem, StoreError, SuiteError, UsageError
from whet.grade.scores import Weights
from whet.model.arm import DEFAULT, Arm
from whet.model.benchmark import Benchmark, CallableSkill
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Execution, Plan, Runner, same_arms
from whet.plan.eval_arms import callable_arms
from whet.plan.images import check_images
from whet.plan.plan import make_plan
from whet.plan.resume import Resumed
from whet.plan.settings import load_settings
from whet.plan.settle import Planned, earlier_run
from whet.reading.text import aligned, count
from whet.record.recorded_run import newest_run
from whet.record.run_file import EvalAsked
from whet.suites.benchmarks import LoadedBenchmark, as_suite, find_benchmark, one_task, read_benchmark, read_tasks

COMMAND = "eval"
_AGENT = "skill"
_DEFAULT_CONCURRENCY = 4
# What messages call a case and a runner.
_WORDS = {"case": "task", "runner": "skill"}
# The settings of a judge that change verdicts.
_JUDGED_BY = frozenset({"provider", "url", "model", "votes", "temperature"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRequest:
    """What `whet eval` was asked to do: a run, which skills on which tasks, and what to make of the results."""

    run: RunRequest
    asked: EvalAsked
    benchmarks_dir: Path | None = None
    check_health: bool = True
    # What is made of the results; may be different when a run is resumed.
    formats: tuple[str, ...] = ("json", "markdown")
    reports_dir: Path = Path("reports")
    min_completion: float | None = None
    # Overrides that of the benchmark.
    k: int | None = None
    # Of the composite; override those of the settings.
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvaluation:
    """An evaluation that is planned and not started; `benchmark` has the selected tasks only."""

    request: EvalRequest
    planned: Planned
    benchmark: Benchmark
    # By arm and id.
    skills: Mapping[tuple[str, str], CallableSkill]
    weights: Weights


def settle_evaluation(request: EvalRequest) -> PlannedEvaluation:
    """Load and plan; raises for everything that can be wrong, before anything is called."""
    request, earlier = _resumed(request)
    run = request.run
    settings = load_settings(Path.cwd(), flags=run.flags, environ=os.environ, config_file=run.config_file)
    weights = Weights(**{**settings.composite, **request.weights})
    loaded = _benchmark(request)
    if run.last_failed:
        last = newest_run(settings.output_dir, loaded.benchmark.source)
        run = replace(
            run,
            arms=run.arms or last.asked.arms,
            selection=replace(run.selection, only=last.failed()),
            selected_from=last.selected_again(),
        )
    commits = earlier.run.asked.commits if earlier else {}
    arms, found = callable_arms(request.asked.skills, run.arms, settings, commits)
    skills = {key: each.skill for key, each in found.items()}
    plan = _plan(loaded.benchmark, skills, arms, settings, run, earlier)
    benchmark = _selected_tasks(loaded.benchmark, plan)
    if request.k is not None:
        benchmark = replace(benchmark, k=request.k)
    _refuse(request, benchmark, list({skill.root: skill for skill in skills.values()}.values()), settings)
    notes = dict.fromkeys(map(str, (*loaded.notes, *(note for each in found.values() for note in each.notes))))
    planned = Planned(
        request=replace(run, suite=benchmark.source),
        suite=plan.suite,
        settings=replace(settings, snapshots=None),
        plan=plan,
        earlier=earlier,
        facts={"command": COMMAND, "eval": _facts(request.asked, str(benchmark.source))},
        notices=(*notes, *same_arms(plan)),
    )
    return PlannedEvaluation(request=request, planned=planned, benchmark=benchmark, skills=skills, weights=weights)


def _resumed(request: EvalRequest) -> tuple[EvalRequest, Resumed | None]:
    """Return the request of an earlier run, and its record, if this one resumes it."""
    run = request.run
    if run.resume is None:
        if not request.asked.skills and not run.arms:
            raise UsageError("which skills?", hint="name their folders with --skills")
        return request, None
    if request.asked != EvalAsked() or run.selection != Selection() or run.last_failed:
        raise UsageError(
            "a resumed run keeps its first options; it cannot change skills, tasks or evaluators",
            hint="start a new run",
        )
    earlier = earlier_run(run)
    assert earlier is not None
    asked = earlier.run.asked.eval
    if asked is None:
        raise StoreError(f"{earlier.run_dir.name}: run.json is not the record of an evaluation: it names no skills")
    return replace(request, run=earlier.request, asked=asked), earlier


def _facts(asked: EvalAsked, source: str) -> EvalAsked:
    """Return what goes into run.json, with absolute paths: you may resume from another folder."""
    skills = tuple(str(Path(place).resolve()) for place in asked.skills)
    benchmark, tasks = (None, source) if asked.tasks else (source, None)
    return structs.replace(asked, skills=skills, benchmark=benchmark, tasks=tasks)


def _benchmark(request: EvalRequest) -> LoadedBenchmark:
    asked = request.asked
    if asked.task is not None:
        return one_task(asked.task, Path(asked.tasks or ""))
    if asked.tasks is not None:
        return read_tasks(Path(asked.tasks), default=asked.evaluator)
    folders = [request.benchmarks_dir or Path("benchmarks")]
    return read_benchmark(find_benchmark(asked.benchmark or "coding-easy", folders), default=asked.evaluator)


def _plan(
    benchmark: Benchmark,
    skills: Mapping[tuple[str, str], CallableSkill],
    arms: tuple[Arm, ...],
    settings: Settings,
    run: RunRequest,
    earlier: Resumed | None,
) -> Plan:
    """Plan the selected tasks on every skill; settings of agents and workspaces do not apply to skills."""
    judge = dict(settings.judge) if benchmark.needs_judge else {}
    runners = {key: _runner(skill, settings, judge) for key, skill in skills.items()}
    each_once = tuple({runner.id: runner for runner in runners.values()}.values())
    own = replace(settings, runners=each_once, workspace=None, cwd=None, tags=(), snapshots=None)
    if settings.is_default("run.max_parallel"):
        own = replace(own, max_parallel=_DEFAULT_CONCURRENCY)
    seed = earlier.run.asked.seed if earlier else None
    plan = make_plan(as_suite(benchmark, settings.judging), own, run.selection, arms=arms, seed=seed, words=_WORDS)
    # An arm has its own version of a skill, and may have other skills than the next one.
    kept = ((each, (each.arm, each.runner.id)) for each in plan.executions)
    executions = tuple(
        _limited(replace(each, runner=runners[key]), skills[key], settings) for each, key in kept if key in skills
    )
    plan = replace(plan, executions=executions)
    check_images(plan, settings)
    return earlier.lengthened(plan) if earlier else plan


def _runner(skill: CallableSkill, settings: Settings, judge: Mapping[str, Any]) -> Runner:
    """Return *skill* as a runner; its options hold what results depend on, so that a resume sees a change."""
    given = skill.retries is None or settings.is_for_this_run("run.retries")
    options = {
        "version": skill.version,
        "manifest": skill.digest,
        "files": _files_digest(skill.root),
        "retries": settings.retries if given else skill.retries,
        **{f"judge.{name}": value for name, value in sorted(judge.items()) if name in _JUDGED_BY},
    }
    return Runner(id=skill.id, agent=_AGENT, options=options)


def _files_digest(root: Path) -> str:
    """Return a digest of the size and time of every file, which is fast even for large files."""
    return hashlib.sha256("\n".join(_files(root)).encode("utf-8", "surrogateescape")).hexdigest()


def _files(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        for name in sorted(files):
            try:
                found = os.lstat(Path(folder) / name)
            except OSError:
                continue
            yield f"{os.path.relpath(folder, root)}/{name} {found.st_size} {found.st_mtime_ns}"


def _limited(execution: Execution, skill: CallableSkill, settings: Settings) -> Execution:
    """Apply the skill's own time limit, unless its task or this run has one."""
    own = skill.timeout_ms
    if own is None or execution.case.limits.timeout_s or settings.is_for_this_run("defaults.timeout_ms"):
        return execution
    return replace(execution, limits=replace(execution.limits, timeout_s=own / 1000))


def _selected_tasks(benchmark: Benchmark, plan: Plan) -> Benchmark:
    """Return the benchmark without the tasks that are not in the plan."""
    selected = {execution.case.id for execution in plan.executions}
    return replace(benchmark, tasks=tuple(task for task in benchmark.tasks if task.id in selected))


def _refuse(request: EvalRequest, benchmark: Benchmark, skills: Sequence[CallableSkill], settings: Settings) -> None:
    """Raise for everything that would make calls useless."""
    problems = [
        Problem(file=str(skill.root / MANIFEST), message=f"needs the variable {name}, which is not set")
        for skill in skills
        for name in missing_secrets(skill, os.environ)
    ]
    problems += (
        Problem(file=str(benchmark.source), case=task.id, field="inputData", message=f"{skill.id}: {problem}")
        for skill in skills
        for task in benchmark.tasks
        if skill.request is not None and task.evaluator.subject == "output"
        for problem in unfit_input(skill, task.input)
    )
    if request.asked.check_schemas:
        problems += (
            Problem(file=str(skill.root / MANIFEST), case=task.id, field="inputSchema", message=problem)
            for skill in skills
            for task in benchmark.tasks
            if task.evaluator.subject == "output"
            for problem in input_problems(skill, task.input)
        )
    if problems:
        raise SuiteError(problems)
    _refuse_unwritable(request.reports_dir)
    if (benchmark.scoring == "pass_at_k" or request.k) and benchmark.k > settings.trials:
        runs = "once" if settings.trials == 1 else f"{settings.trials} times"
        raise UsageError(
            f"pass@{benchmark.k} needs as many runs, and every task is run {runs}", hint=f"add --runs {benchmark.k}"
        )
    if any(skill.adapter == "mcp" for skill in skills):
        from whet.agents.callable_mcp import require_mcp  # noqa: PLC0415 - its library may not be installed

        require_mcp()


def _refuse_unwritable(folder: Path) -> None:
    """Raise if reports cannot be written: at the end of a run, calls may have cost a lot."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    reason = "not permitted" if there.is_dir() else f"{there} is not a folder"
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"reports cannot be written to {folder}: {reason}", hint="name another --output-dir")


def describe_calls(evaluation: PlannedEvaluation) -> list[str]:
    """Return what would be called, for a person to read: totals, how, and each task on each skill."""
    plan, benchmark = evaluation.planned.plan, evaluation.benchmark
    kinds = {task.id: task.evaluator.kind for task in benchmark.tasks}
    runs = max(execution.trials for execution in plan.executions)
    skills = len({each.runner.id for each in plan.executions})
    totals = f"{count(len(kinds), 'task')} on {count(skills, 'skill')}, {count(runs, 'run')} of each"
    rows = [
        (
            each.case.id,
            each.runner.id if each.arm == DEFAULT else f"{each.runner.id}/{each.arm}",
            evaluation.skills[each.arm, each.runner.id].adapter,
            kinds[each.case.id],
            f"{each.limits.timeout_s:g} s",
        )
        for each in plan.executions
    ]
    return [
        f"{benchmark.id} {benchmark.version}: {totals}: {count(plan.trial_count, 'call')}",
        f"scored by {benchmark.scoring}, at most {plan.max_parallel} at a time",
        "",
        *aligned(rows),
    ]
