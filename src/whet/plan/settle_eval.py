"""What `whet eval` was asked becomes a run that is settled, or every reason why it cannot be."""

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
from whet.plan.settings import load_settings
from whet.plan.settle import Planned
from whet.record.chain import is_done
from whet.record.folder import find_run_folder, read_run_file
from whet.record.history import finished, last_failed, newest_run
from whet.record.request import Recorded, recorded_flags, recorded_selection, typed_before
from whet.record.verifying import check_journal
from whet.suites.benchmarks import LoadedBenchmark, find_benchmark, read_benchmark, read_tasks

COMMAND = "eval"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRequest:
    """Which skills on which tasks, and how; `flags` holds setting overrides, only those that were given."""

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
    # What is made of the results; may be different when a run is resumed.
    formats: tuple[str, ...] = ("json", "markdown")
    reports_dir: Path = Path("reports")
    min_completion: float | None = None
    # As it was typed: see `RunRequest`.
    again: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()
    # Above the benchmark's own.
    k: int | None = None
    # Of the composite; those that were typed, above those of the settings.
    weights: Mapping[str, float] = field(default_factory=dict)

    def as_run(self, source: Path) -> RunRequest:
        """The same as a run of *source* is asked."""
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
        """What goes into run.json, with every path absolute: a resume may come from another folder."""
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


def asked_before(facts: Mapping[str, Any], run: str) -> dict[str, Any]:
    """The fields of the request that the run in *facts* answers."""
    if facts.get("command") != COMMAND:
        raise UsageError(f"{run} is no evaluation of callable skills", hint=f"whet run --resume {run}")
    try:
        told = facts["eval"]
        return {
            "skills": tuple(Path(place) for place in told["skills"]),
            "benchmark": told["benchmark"],
            "tasks": Path(told["tasks"]) if told["tasks"] else None,
            "evaluator": told["evaluator"],
            "check_schemas": bool(told["check_schemas"]),
            "selection": recorded_selection(facts),
            "config_file": Path(facts["config_file"]) if facts["config_file"] else None,
        }
    except (KeyError, TypeError) as error:
        raise StoreError(f"{run}: run.json is not the record of an evaluation: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An evaluation that is settled and not yet begun; `benchmark` has the chosen tasks only."""

    request: EvalRequest
    settings: Settings
    benchmark: Benchmark
    skills: tuple[CallableSkill, ...]
    weights: Weights
    planned: Planned


def settle(request: EvalRequest) -> Settled:
    """Load and plan: everything that can be wrong is found here, before anything is called."""
    request, run_dir = _resumed(request)
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
        suite=suite_of(loaded.benchmark),
        settings=replace(settings, snapshots=None),
        plan=plan,
        facts=request.facts(benchmark.source),
        notices=tuple(map(str, notes)),
    )
    if run_dir is not None:
        planned = replace(planned, earlier=_earlier(run_dir, planned))
    return Settled(
        request=request, settings=settings, benchmark=benchmark, skills=skills, weights=weights, planned=planned
    )


def to_be_called(settled: Settled) -> list[CallableSkill]:
    """The skills with calls that are still to be made; one whose files alone are looked at is never called."""
    earlier = settled.planned.earlier
    done = {result.key for result in finished(earlier.run_dir) if is_done(result)} if earlier else set()
    asked = {task.id for task in settled.benchmark.tasks if task.evaluator.subject == "output"}
    trials = (trial for trial in settled.planned.plan.trials() if trial.key not in done)
    called = {trial.key.runner for trial in trials if trial.key.case in asked}
    return [skill for skill in settled.skills if skill.id in called]


def _resumed(request: EvalRequest) -> tuple[EvalRequest, Path | None]:
    """The request of an earlier run, and its folder, where this one goes on with it."""
    if request.resume is None:
        if not request.skills:
            raise UsageError("which skills?", hint="name their folders with --skills")
        return request, None
    settings = load_settings(Path.cwd(), flags=request.flags, environ=os.environ, config_file=request.config_file)
    run_dir = find_run_folder(request.resume, settings.output_dir)
    check_journal(run_dir)
    facts = read_run_file(run_dir)
    before = asked_before(facts, run_dir.name)
    chosen = request.selection != Selection() or request.last_failed
    asked = (request.skills, request.benchmark, request.tasks, request.evaluator, request.check_schemas, chosen)
    if any(asked):
        raise UsageError(
            "a resumed run does what it was asked the first time; it cannot change skills, tasks or evaluators",
            hint="start a new run",
        )
    flags = recorded_flags(facts, request.flags)
    return replace(request, **before, **typed_before(facts), flags=flags), run_dir


def _benchmark(request: EvalRequest) -> LoadedBenchmark:
    if request.tasks is not None:
        return read_tasks(request.tasks, default=request.evaluator)
    folders = [request.benchmarks_dir or Path("benchmarks")]
    return read_benchmark(find_benchmark(request.benchmark or "coding-easy", folders), default=request.evaluator)


def _selection(request: EvalRequest, benchmark: Benchmark, settings: Settings) -> Selection:
    """What was asked for; what did not pass last time is settled now."""
    if not request.last_failed:
        return request.selection
    last = newest_run(settings.output_dir, benchmark.source)
    return replace(request.selection, only=last_failed(last))


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
    """Reports are written in the end, and calls may have cost a lot by then."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UsageError(
            f"reports cannot be written to {folder}: {there} is no folder", hint="name another --output-dir"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"reports cannot be written to {folder}: not permitted", hint="name another --output-dir")


def _earlier(run_dir: Path, planned: Planned) -> Recorded:
    facts = read_run_file(run_dir)
    return Recorded(
        run_dir=run_dir,
        request=planned.request,
        fingerprint=str(facts.get("fingerprint")),
        suite_digest=str(facts.get("suite_digest")),
        sources=facts.get("sources"),
    )
