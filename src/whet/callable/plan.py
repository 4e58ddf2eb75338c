"""Plan an evaluation of callable skills: its benchmark becomes a suite, and its skills become runners."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field, structs
from msgspec.structs import replace

from whet.callable._arms import callable_arms
from whet.callable.clients.connect import mcp_clients
from whet.callable.clients.contract import input_problems, missing_secrets
from whet.callable.clients.request import unfit_input
from whet.callable.manifest import MANIFEST, SKIPPED
from whet.decide.scores import Weights
from whet.errors import Problem, StoreError, SuiteError, UsageError
from whet.model.arm import DEFAULT, Arm
from whet.model.callable import Benchmark, CallableSkill
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Execution, Plan, Runner, same_arms
from whet.plan.images import check_images
from whet.plan.load import PlannedRun, earlier_run
from whet.plan.plan import make_plan
from whet.plan.resume import EarlierRun
from whet.plan.settings.load import load_here
from whet.reading.text import aligned, count
from whet.record.read.run import newest_run
from whet.record.run_file import EvalFacts, RunOrigin
from whet.suites.benchmark import LoadedBenchmark, as_suite, find_benchmark, one_task, read_benchmark, read_tasks

COMMAND = "eval"
_AGENT = "skill"
_DEFAULT_CONCURRENCY = 4
# What messages call a case and a runner.
_WORDS = {"case": "task", "runner": "skill"}
# The settings of a judge that change verdicts.
_JUDGED_BY = frozenset({"provider", "url", "model", "votes", "temperature"})


class EvalRequest(Struct, frozen=True, kw_only=True):
    """What `whet eval` was asked to do: a run, which skills on which tasks, and what to make of the results."""

    run: RunRequest
    asked: EvalFacts
    benchmarks_dir: Path | None = None
    check_health: bool = True
    # What is made of the results; may be different when a run is resumed.
    formats: tuple[str, ...] = ("json", "markdown")
    reports_dir: Path = Path()
    min_completion: float | None = None
    # Overrides that of the benchmark.
    k: int | None = None
    # Of the composite; override those of the settings.
    weights: Mapping[str, float] = field(default_factory=dict)


class PlannedEvaluation(Struct, frozen=True, kw_only=True):
    """An evaluation that is planned and not started; `benchmark` has the selected tasks only."""

    request: EvalRequest
    planned: PlannedRun
    benchmark: Benchmark
    # By arm and id.
    skills: Mapping[tuple[str, str], CallableSkill]
    weights: Weights


def load_and_plan_evaluation(request: EvalRequest) -> PlannedEvaluation:
    """Load and plan; raises for everything that can be wrong, before anything is called."""
    request, earlier = _find_earlier(request)
    run = request.run
    settings = load_here(run.flags, run.config_file)
    weights = convert({**settings.composite, **request.weights}, Weights)
    loaded_benchmark = _benchmark(request)
    if run.last_failed:
        last = newest_run(settings.output_dir, loaded_benchmark.benchmark.source)
        run = replace(
            run,
            arms=run.arms or last.asked.arms,
            selection=replace(run.selection, only=last.failed_executions()),
            selected_from=last.selected_again(),
        )
    commits = earlier.run.asked.commits if earlier else {}
    arms, loaded_skills = callable_arms(request.asked.skills, run.arms, settings, commits)
    skills = {key: loaded_skill.skill for key, loaded_skill in loaded_skills.items()}
    plan = _plan(loaded_benchmark.benchmark, skills, arms, settings, run, earlier)
    benchmark = _selected_tasks(loaded_benchmark.benchmark, plan)
    if request.k is not None:
        benchmark = replace(benchmark, k=request.k)
    _refuse(request, benchmark, list({skill.root: skill for skill in skills.values()}.values()), settings)
    notes = dict.fromkeys(
        map(
            str,
            (
                *loaded_benchmark.notes,
                *(note for loaded_skill in loaded_skills.values() for note in loaded_skill.notes),
            ),
        )
    )
    planned_run = PlannedRun(
        request=replace(run, suite=benchmark.source),
        suite=plan.suite,
        settings=replace(settings, snapshots=None),
        plan=plan,
        earlier=earlier,
        origin=RunOrigin(command=COMMAND, eval=_facts(request.asked, str(benchmark.source))),
        notices=(*notes, *same_arms(plan)),
    )
    return PlannedEvaluation(request=request, planned=planned_run, benchmark=benchmark, skills=skills, weights=weights)


def _find_earlier(request: EvalRequest) -> tuple[EvalRequest, EarlierRun | None]:
    """Return the request of an earlier run, and its record, if this one resumes it."""
    run = request.run
    if run.resume is None:
        if not request.asked.skills and not run.arms:
            raise UsageError("which skills?", hint="name their folders")
        return request, None
    if request.asked != EvalFacts() or run.selection != Selection() or run.last_failed:
        raise UsageError(
            "a resumed run keeps its first options; it cannot change skills, tasks or evaluators",
            hint="start a new run",
        )
    earlier = earlier_run(run)
    assert earlier is not None
    eval_facts = earlier.run.asked.eval
    if eval_facts is None:
        raise StoreError(f"{earlier.run_dir.name}: run.json is not the record of an evaluation: it names no skills")
    return replace(request, run=earlier.request, asked=eval_facts), earlier


def _facts(eval_facts: EvalFacts, source: str) -> EvalFacts:
    """Return what goes into run.json, with absolute paths: you may resume from another folder."""
    skills = tuple(str(Path(place).resolve()) for place in eval_facts.skills)
    benchmark, tasks = (None, source) if eval_facts.tasks else (source, None)
    return structs.replace(eval_facts, skills=skills, benchmark=benchmark, tasks=tasks)


def _benchmark(request: EvalRequest) -> LoadedBenchmark:
    eval_facts = request.asked
    if eval_facts.task is not None:
        return one_task(eval_facts.task, Path(eval_facts.tasks or ""))
    if eval_facts.tasks is not None:
        return read_tasks(Path(eval_facts.tasks), default=eval_facts.evaluator)
    folders = [request.benchmarks_dir or Path("benchmarks")]
    return read_benchmark(find_benchmark(eval_facts.benchmark or "coding-easy", folders), default=eval_facts.evaluator)


def _plan(
    benchmark: Benchmark,
    skills: Mapping[tuple[str, str], CallableSkill],
    arms: tuple[Arm, ...],
    settings: Settings,
    run: RunRequest,
    earlier: EarlierRun | None,
) -> Plan:
    """Plan the selected tasks on every skill; settings of agents and workspaces do not apply to skills."""
    judge = dict(settings.judge) if benchmark.needs_judge else {}
    runners = {key: _runner(skill, settings, judge) for key, skill in skills.items()}
    each_once = tuple({runner.id: runner for runner in runners.values()}.values())
    plan_settings = replace(settings, runners=each_once, workspace=None, cwd=None, tags=(), snapshots=None)
    if settings.is_default("run.max_parallel"):
        plan_settings = replace(plan_settings, max_parallel=_DEFAULT_CONCURRENCY)
    seed = earlier.run.asked.seed if earlier else None
    plan = make_plan(
        as_suite(benchmark, settings.judging), plan_settings, run.selection, arms=arms, seed=seed, words=_WORDS
    )
    # An arm has its own version of a skill, and may have other skills than the next one.
    keyed_executions = ((execution, (execution.arm, execution.runner.id)) for execution in plan.executions)
    executions = tuple(
        _apply_limit(replace(execution, runner=runners[key]), skills[key], settings)
        for execution, key in keyed_executions
        if key in skills
    )
    plan = replace(plan, executions=executions)
    check_images(plan, settings)
    return earlier.lengthened(plan) if earlier else plan


def _runner(skill: CallableSkill, settings: Settings, judge: Mapping[str, Any]) -> Runner:
    """Return *skill* as a runner; its options hold what results depend on, so that a resume sees a change."""
    retries_from_settings = skill.retries is None or settings.is_for_this_run("run.retries")
    options = {
        "version": skill.version,
        "manifest": skill.digest,
        "files": _files_digest(skill.root),
        "retries": settings.retries if retries_from_settings else skill.retries,
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
                status = os.lstat(Path(folder) / name)
            except OSError:
                continue
            yield f"{os.path.relpath(folder, root)}/{name} {status.st_size} {status.st_mtime_ns}"


def _apply_limit(execution: Execution, skill: CallableSkill, settings: Settings) -> Execution:
    """Apply the skill's own time limit, unless its task or this run has one."""
    timeout_ms = skill.timeout_ms
    if timeout_ms is None or execution.case.limits.timeout_s or settings.is_for_this_run("defaults.timeout_ms"):
        return execution
    return replace(execution, limits=replace(execution.limits, timeout_s=timeout_ms / 1000))


def _selected_tasks(benchmark: Benchmark, plan: Plan) -> Benchmark:
    """Return the benchmark without the tasks that are not in the plan."""
    task_ids = {execution.case.id for execution in plan.executions}
    return replace(benchmark, tasks=tuple(task for task in benchmark.tasks if task.id in task_ids))


def _refuse(request: EvalRequest, benchmark: Benchmark, skills: Sequence[CallableSkill], settings: Settings) -> None:
    """Raise for everything that would make calls useless."""
    problems = [
        Problem(file=str(skill.root / MANIFEST), message=f"needs the variable {name}, which is not set")
        for skill in skills
        for name in missing_secrets(skill, os.environ)
    ]
    called_tasks = [task for task in benchmark.tasks if task.evaluator.subject == "output"]
    for skill, task in product(skills, called_tasks):
        texts = unfit_input(skill, task.input) if skill.request is not None else ()
        problems += (
            Problem(file=str(benchmark.source), case=task.id, field="inputData", message=f"{skill.id}: {text}")
            for text in texts
        )
    for skill, task in product(skills, called_tasks) if request.asked.check_schemas else ():
        problems += (
            Problem(file=str(skill.root / MANIFEST), case=task.id, field="inputSchema", message=text)
            for text in input_problems(skill, task.input)
        )
    if problems:
        raise SuiteError(problems)
    _refuse_unwritable(request.reports_dir)
    if (benchmark.scoring == "pass_at_k" or request.k) and benchmark.k > settings.trials:
        runs = "once" if settings.trials == 1 else f"{settings.trials} times"
        raise UsageError(
            f"pass@{benchmark.k} needs as many runs, and every task is run {runs}", hint=f"add --trials {benchmark.k}"
        )
    if any(skill.adapter == "mcp" for skill in skills):
        mcp_clients()


def _refuse_unwritable(folder: Path) -> None:
    """Raise if reports cannot be written: at the end of a run, calls may have cost a lot."""
    ancestor = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    reason = "not permitted" if ancestor.is_dir() else f"{ancestor} is not a folder"
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK | os.X_OK):
        raise UsageError(f"reports cannot be written to {folder}: {reason}", hint="name another --reports-dir")


def describe_calls(evaluation: PlannedEvaluation) -> list[str]:
    """Return what would be called, for a person to read: totals, how, and each task on each skill."""
    plan, benchmark = evaluation.planned.plan, evaluation.benchmark
    kinds = {task.id: task.evaluator.kind for task in benchmark.tasks}
    runs = max(execution.trials for execution in plan.executions)
    skills = len({planned_call.runner.id for planned_call in plan.executions})
    totals = f"{count(len(kinds), 'task')} on {count(skills, 'skill')}, {count(runs, 'run')} of each"
    rows = [
        (
            planned_call.case.id,
            planned_call.runner.id if planned_call.arm == DEFAULT else f"{planned_call.runner.id}/{planned_call.arm}",
            evaluation.skills[planned_call.arm, planned_call.runner.id].adapter,
            kinds[planned_call.case.id],
            f"{planned_call.limits.timeout_s:g} s",
        )
        for planned_call in plan.executions
    ]
    return [
        f"{benchmark.id} {benchmark.version}: {totals}: {count(plan.trial_count, 'call')}",
        f"scored by {benchmark.scoring}, at most {plan.max_parallel} at a time",
        "",
        *aligned(rows),
    ]
