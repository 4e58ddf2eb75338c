"""Load and plan what `whet eval` was asked, and find everything that is wrong before anything is called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from whet.agents.callable import input_problems, missing_secrets
from whet.agents.callable_reading import find_skills
from whet.dataclass import dataclass
from whet.errors import Problem, StoreError, SuiteError, UsageError
from whet.grade.scores import Weights
from whet.model.benchmark import Benchmark, CallableSkill, EvaluatorKind
from whet.model.request import RunRequest, Selection, Settings
from whet.plan.benchmark_suite import chosen_from, plan_of, suite_of
from whet.plan.resume import Resumed, flags_of, typed_before
from whet.plan.settings import load_settings
from whet.plan.settle import Planned
from whet.record.folder import find_run_folder
from whet.record.recorded_run import RecordedRun, newest_run, read_run
from whet.suites.benchmarks import LoadedBenchmark, find_benchmark, read_benchmark, read_tasks

COMMAND = "eval"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRequest:
    """Which skills on which tasks, and how; `flags` holds the settings that were typed."""

    skills: tuple[Path, ...] = ()
    benchmark: str | None = None
    benchmarks_dir: Path | None = None
    tasks: Path | None = None
    evaluator: EvaluatorKind | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    config_file: Path | None = None
    check_schemas: bool = False
    check_health: bool = True
    selection: Selection = field(default_factory=Selection)
    last_failed: bool = False
    resume: str | None = None
    dry_run: bool = False
    verbose: bool = False
    # What is made of the results; a resumed run may have other values.
    formats: tuple[str, ...] = ("json", "markdown")
    reports_dir: Path = Path("reports")
    min_completion: float | None = None
    # The words that were typed: see `RunRequest`.
    again: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()
    # Outranks the benchmark's own.
    k: int | None = None
    # Weights of the composite that were typed; they outrank those of the settings.
    weights: Mapping[str, float] = field(default_factory=dict)

    def as_run(self, source: Path) -> RunRequest:
        """Return the same as the request of a run of *source*."""
        return RunRequest(
            command=COMMAND,
            suite=source,
            flags=self.flags,
            config_file=self.config_file,
            selection=self.selection,
            last_failed=self.last_failed,
            dry_run=self.dry_run,
            resume=self.resume,
            verbose=self.verbose,
            again=self.again,
            going_on=self.going_on,
        )

    def facts(self, source: Path) -> dict[str, Any]:
        """Return what goes into run.json, with absolute paths: a resume may come from another folder."""
        return {
            "command": COMMAND,
            "eval": {
                "skills": [str(place.resolve()) for place in self.skills],
                "benchmark": None if self.tasks else str(source),
                "tasks": str(source) if self.tasks else None,
                "evaluator": self.evaluator,
                "check_schemas": self.check_schemas,
            },
        }


def asked_before(run: RecordedRun) -> dict[str, Any]:
    """Return the fields of the request that *run* answers."""
    asked, name = run.asked, run.run_dir.name
    if asked.command != COMMAND:
        raise UsageError(f"{name} is not an evaluation of callable skills", hint=f"whet run --resume {name}")
    if asked.eval is None:
        raise StoreError(f"{name}: run.json is not the record of an evaluation: it names no skills")
    return {
        "skills": tuple(Path(place) for place in asked.eval.skills),
        "benchmark": asked.eval.benchmark,
        "tasks": Path(asked.eval.tasks) if asked.eval.tasks else None,
        "evaluator": asked.eval.evaluator,
        "check_schemas": asked.eval.check_schemas,
        "selection": asked.selection,
        "config_file": run.config_file,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An evaluation that is planned and has not begun; `benchmark` has the chosen tasks only."""

    request: EvalRequest
    settings: Settings
    benchmark: Benchmark
    skills: tuple[CallableSkill, ...]
    weights: Weights
    planned: Planned


def settle(request: EvalRequest) -> Settled:
    """Load and plan; finds everything that is wrong before anything is called."""
    request, run = _resumed(request)
    settings = load_settings(Path.cwd(), flags=request.flags, environ=os.environ, config_file=request.config_file)
    weights = Weights(**{**settings.composite, **request.weights})
    loaded, found = _benchmark(request), find_skills(request.skills)
    skills = tuple(each.skill for each in found)
    plan = plan_of(loaded.benchmark, skills, settings, _selection(request, loaded.benchmark, settings))
    benchmark = chosen_from(loaded.benchmark, plan)
    if request.k is not None:
        benchmark = replace(benchmark, k=request.k)
    _refuse(request, benchmark, skills, settings)
    notes = (*loaded.notes, *(note for each in found for note in each.notes))
    planned = Planned(
        request=request.as_run(benchmark.source),
        suite=suite_of(loaded.benchmark, settings),
        settings=replace(settings, snapshots=None),
        plan=plan,
        facts=request.facts(benchmark.source),
        notices=tuple(map(str, notes)),
    )
    if run is not None:
        planned = replace(planned, earlier=Resumed(run, planned.request))
    return Settled(
        request=request, settings=settings, benchmark=benchmark, skills=skills, weights=weights, planned=planned
    )


def to_be_called(settled: Settled) -> list[CallableSkill]:
    """Return the skills that still have calls to make; a skill of which only files are graded is never called."""
    earlier = settled.planned.earlier
    done = earlier.run.done if earlier else frozenset()
    asked = {task.id for task in settled.benchmark.tasks if task.evaluator.subject == "output"}
    trials = (trial for trial in settled.planned.plan.trials() if trial.key not in done)
    called = {trial.key.runner for trial in trials if trial.key.case in asked}
    return [skill for skill in settled.skills if skill.id in called]


def _resumed(request: EvalRequest) -> tuple[EvalRequest, RecordedRun | None]:
    """Return the request of an earlier run, and that run, if this one goes on with it."""
    if request.resume is None:
        if not request.skills:
            raise UsageError("which skills?", hint="name their folders with --skills")
        return request, None
    settings = load_settings(Path.cwd(), flags=request.flags, environ=os.environ, config_file=request.config_file)
    run = read_run(find_run_folder(request.resume, settings.output_dir))
    before = asked_before(run)
    chosen = request.selection != Selection() or request.last_failed
    asked = (request.skills, request.benchmark, request.tasks, request.evaluator, request.check_schemas, chosen)
    if any(asked):
        raise UsageError(
            "a resumed run does what it was asked the first time; it cannot change skills, tasks or evaluators",
            hint="start a new run",
        )
    flags = flags_of(run.asked, request.flags)
    return replace(request, **before, **typed_before(run.asked), flags=flags), run


def _benchmark(request: EvalRequest) -> LoadedBenchmark:
    if request.tasks is not None:
        return read_tasks(request.tasks, default=request.evaluator)
    folders = [request.benchmarks_dir or Path("benchmarks")]
    return read_benchmark(find_benchmark(request.benchmark or "coding-easy", folders), default=request.evaluator)


def _selection(request: EvalRequest, benchmark: Benchmark, settings: Settings) -> Selection:
    """Return the selection; with --last-failed, look up now what did not pass."""
    if not request.last_failed:
        return request.selection
    last = newest_run(settings.output_dir, benchmark.source)
    return replace(request.selection, only=last.failed())


def _refuse(request: EvalRequest, benchmark: Benchmark, skills: Sequence[CallableSkill], settings: Settings) -> None:
    """Refuse what cannot work before anything runs."""
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
    _must_take_files(request.reports_dir)
    if (benchmark.scoring == "pass_at_k" or request.k) and benchmark.k > settings.trials:
        runs = "once" if settings.trials == 1 else f"{settings.trials} times"
        raise UsageError(
            f"pass@{benchmark.k} needs as many runs, and every task is run {runs}", hint=f"add --runs {benchmark.k}"
        )
    if any(skill.adapter == "mcp" for skill in skills):
        from whet.agents.callable_mcp import require_mcp  # noqa: PLC0415 - its library may not be there

        require_mcp()


def _must_take_files(folder: Path) -> None:
    """Refuse a folder that cannot take reports: they are written at the end, after calls that cost money."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UsageError(
            f"reports cannot be written to {folder}: {there} is not a folder", hint="name another --output-dir"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"reports cannot be written to {folder}: not permitted", hint="name another --output-dir")
