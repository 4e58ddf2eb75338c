"""A benchmark as a suite, and skills as runners: what the one engine plans and runs."""

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
from whet.plan.settings import BUILT_IN

AGENT = "skill"
USUAL_TIMEOUT_S = 30.0
USUAL_CONCURRENCY = 4
# What the parts of a plan are called where skills are called.
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
    """The selected tasks on every skill; what settings say of agents and of workspaces is not meant for skills."""
    judge = dict(settings.judge) if benchmark.needs_judge else {}
    runners = tuple(_runner(skill, settings, judge) for skill in skills)
    own = replace(settings, runners=runners, workspace=None, cwd=None, tags=(), snapshots=None)
    if settings.origins.get("run.max_parallel") == BUILT_IN:
        own = replace(own, max_parallel=USUAL_CONCURRENCY)
    plan = make_plan(suite_of(benchmark, settings), own, selection, words=WORDS)
    by_id = {skill.id: skill for skill in skills}
    return replace(plan, executions=tuple(_limited(each, by_id[each.runner.id], settings) for each in plan.executions))


def chosen_from(benchmark: Benchmark, plan: Plan) -> Benchmark:
    """The benchmark with no more tasks than the plan has."""
    chosen = {execution.case.id for execution in plan.executions}
    return replace(benchmark, tasks=tuple(task for task in benchmark.tasks if task.id in chosen))


def describe_calls(plan: Plan, benchmark: Benchmark, skills: Sequence[CallableSkill]) -> list[str]:
    """What would be called, for a person to read: totals, how, and each task on each skill."""
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
    """What was typed for this run, then the skill's own word, then the settings."""
    own = skill.retries
    return settings.retries if own is None or _typed(settings, "run.retries") else own


def _limited(execution: Execution, skill: CallableSkill, settings: Settings) -> Execution:
    """The skill's own time limit, where neither its task nor this run has one."""
    if skill.timeout_ms is None or execution.case.limits.timeout_s or _typed(settings, "defaults.timeout_ms"):
        return execution
    return replace(execution, limits=replace(execution.limits, timeout_s=skill.timeout_ms / 1000))


def _typed(settings: Settings, key: str) -> bool:
    return settings.origins.get(key, "").startswith(("flag ", "WHET_"))


def _runner(skill: CallableSkill, settings: Settings, judge: Mapping[str, Any]) -> Runner:
    """The options hold what results depend on, so that a run is not gone on with after it changed."""
    options = {
        "version": skill.version,
        "manifest": skill.digest,
        "files": _files_digest(skill.root),
        "retries": retries_of(skill, settings),
        # Where and how fast it is asked changes no verdict.
        **{f"judge.{name}": value for name, value in sorted(judge.items()) if name in _JUDGED_BY},
    }
    return Runner(id=skill.id, agent=AGENT, options=options)


def _files_digest(root: Path) -> str:
    """Changes with any file of the skill, by size and time, which is quick also for large ones."""
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
