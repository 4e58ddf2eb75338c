"""A benchmark as a suite, and skills as runners: what the one engine plans and runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from whet.config import BUILT_IN, Settings
from whet.model.benchmark import Benchmark, BenchmarkTask
from whet.model.run import Execution, Plan, Runner
from whet.model.skill import CallableSkill
from whet.model.suite import Case, Limits, Suite
from whet.plan import Selection, make_plan

AGENT = "skill"
USUAL_TIMEOUT_S = 30.0
USUAL_CONCURRENCY = 4
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})


def suite_of(benchmark: Benchmark) -> Suite:
    """Tasks as cases; they have no checks of their own, because an evaluator looks at the answer."""
    return Suite(
        name=benchmark.id,
        cases=tuple(_case(task) for task in benchmark.tasks),
        source=benchmark.source,
        digest=benchmark.digest,
        description=benchmark.name,
        usual_timeout_s=USUAL_TIMEOUT_S,
    )


def _case(task: BenchmarkTask) -> Case:
    limits = Limits(timeout_s=None if task.timeout_ms is None else task.timeout_ms / 1000)
    prompt = json.dumps(dict(task.input), ensure_ascii=False)
    return Case(id=task.id, prompt=prompt, checks=(), tags=task.tags, limits=limits)


def plan_of(benchmark: Benchmark, skills: Sequence[CallableSkill], settings: Settings) -> Plan:
    """Every task on every skill; what settings say of agents and of workspaces is not meant for skills."""
    runners = tuple(_runner(skill, settings) for skill in skills)
    own = replace(settings, runners=runners, workspace=None, cwd=None, tags=(), snapshots=None)
    if settings.origins.get("run.max_parallel") == BUILT_IN:
        own = replace(own, max_parallel=USUAL_CONCURRENCY)
    plan = make_plan(suite_of(benchmark), own, Selection())
    by_id = {skill.id: skill for skill in skills}
    return replace(plan, executions=tuple(_limited(each, by_id[each.runner.id], settings) for each in plan.executions))


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


def _runner(skill: CallableSkill, settings: Settings) -> Runner:
    """The options hold what results depend on, so that a run is not gone on with after it changed."""
    options = {
        "version": skill.version,
        "manifest": skill.digest,
        "files": _files_digest(skill.root),
        "retries": retries_of(skill, settings),
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
