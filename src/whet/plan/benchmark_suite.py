"""Turn a benchmark into a suite and callable skills into runners, and plan a run of them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.model.benchmark import Benchmark, BenchmarkTask, CallableSkill
from whet.model.request import Selection, Settings
from whet.model.run import Execution, Plan, Runner
from whet.model.suite import Case, Check, Limits, Suite
from whet.plan.plan import counted, make_plan

AGENT = "skill"
USUAL_TIMEOUT_S = 30.0
USUAL_CONCURRENCY = 4
# What messages call a case and a runner.
WORDS = {"case": "task", "runner": "skill"}
_JUDGED_BY = frozenset({"provider", "url", "model", "votes", "temperature"})
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})


def suite_of(benchmark: Benchmark, settings: Settings) -> Suite:
    """Make a case of each task, with a check that the grader of its evaluator decides."""
    return Suite(
        name=benchmark.id,
        cases=tuple(_case(task) for task in benchmark.tasks),
        source=benchmark.source,
        digest=benchmark.digest,
        description=benchmark.name,
        usual_timeout_s=USUAL_TIMEOUT_S,
        judge=settings.judging,
    )


def _case(task: BenchmarkTask) -> Case:
    limits = Limits(timeout_s=None if task.timeout_ms is None else task.timeout_ms / 1000)
    prompt = json.dumps(dict(task.input), ensure_ascii=False)
    check = Check(grader=task.evaluator.kind, params={"task": task}, label=task.evaluator.kind, weight=task.weight)
    return Case(id=task.id, prompt=prompt, checks=(check,), tags=task.tags, limits=limits)


def plan_of(benchmark: Benchmark, skills: Sequence[CallableSkill], settings: Settings, selection: Selection) -> Plan:
    """Plan the selected tasks on every skill; settings of agents and workspaces do not apply to skills."""
    judge = dict(settings.judge) if benchmark.needs_judge else {}
    runners = tuple(_runner(skill, settings, judge) for skill in skills)
    own = replace(settings, runners=runners, workspace=None, cwd=None, tags=(), snapshots=None)
    if settings.is_default("run.max_parallel"):
        own = replace(own, max_parallel=USUAL_CONCURRENCY)
    plan = make_plan(suite_of(benchmark, settings), own, selection, words=WORDS)
    by_id = {skill.id: skill for skill in skills}
    return replace(plan, executions=tuple(_limited(each, by_id[each.runner.id], settings) for each in plan.executions))


def chosen_from(benchmark: Benchmark, plan: Plan) -> Benchmark:
    """Return the benchmark with only the tasks of the plan."""
    chosen = {execution.case.id for execution in plan.executions}
    return replace(benchmark, tasks=tuple(task for task in benchmark.tasks if task.id in chosen))


def describe_calls(plan: Plan, benchmark: Benchmark, skills: Sequence[CallableSkill]) -> list[str]:
    """Return the plan for a person to read: totals, scoring, and each task on each skill."""
    kinds = {task.id: task.evaluator.kind for task in benchmark.tasks}
    adapters = {skill.id: skill.adapter for skill in skills}
    runs = max(execution.trials for execution in plan.executions)
    rows = [
        (each.case.id, each.runner.id, adapters[each.runner.id], kinds[each.case.id], f"{each.limits.timeout_s:g} s")
        for each in plan.executions
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    tasks, skilled = len(kinds), len({each.runner.id for each in plan.executions})
    totals = f"{counted(tasks, 'task')} on {counted(skilled, 'skill')}, {counted(runs, 'run')} of each"
    return [
        f"{benchmark.id} {benchmark.version}: {totals}: {counted(plan.trial_count, 'call')}",
        f"scored by {benchmark.scoring}, at most {plan.max_parallel} at a time",
        "",
        *("  ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)) for row in rows),
    ]


def retries_of(skill: CallableSkill, settings: Settings) -> int:
    """Return the retries: given for this run, then those of the skill, then of the settings."""
    own = skill.retries
    return settings.retries if own is None or settings.is_for_this_run("run.retries") else own


def _limited(execution: Execution, skill: CallableSkill, settings: Settings) -> Execution:
    """Apply the time limit of the skill, if neither its task nor this run has one."""
    if skill.timeout_ms is None or execution.case.limits.timeout_s or settings.is_for_this_run("defaults.timeout_ms"):
        return execution
    return replace(execution, limits=replace(execution.limits, timeout_s=skill.timeout_ms / 1000))


def _runner(skill: CallableSkill, settings: Settings, judge: Mapping[str, Any]) -> Runner:
    """Return a runner whose options hold what results depend on, so that a resume notices a change."""
    options = {
        "version": skill.version,
        "manifest": skill.digest,
        "files": _files_digest(skill.root),
        "retries": retries_of(skill, settings),
        # The address of the judge and its speed change no verdict.
        **{f"judge.{name}": value for name, value in sorted(judge.items()) if name in _JUDGED_BY},
    }
    return Runner(id=skill.id, agent=AGENT, options=options)


def _files_digest(root: Path) -> str:
    """Return a digest of the sizes and times of all files of the skill, which is quick also for large ones."""
    return hashlib.sha256("\n".join(_files(root)).encode("utf-8", "surrogateescape")).hexdigest()


def _files(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(files):
            try:
                found = os.lstat(Path(folder) / name)
            except OSError:
                continue
            yield f"{os.path.relpath(folder, root)}/{name} {found.st_size} {found.st_mtime_ns}"
