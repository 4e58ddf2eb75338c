"""The skill-creator reporter: a folder that skill-creator's own aggregation and viewer read."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from msgspec import Struct, field

from whet.errors import PackageError, StoreError
from whet.grade.evidence import load_report
from whet.model.events import CommandRun
from whet.model.grade import Grade
from whet.model.run import Execution, RunInfo, Runner, TrialResult, folder_name
from whet.model.run_events import Results, RunEnded
from whet.model.session import Session
from whet.model.suite import NO_SKILL, SKILL
from whet.packages.extract import path_of
from whet.report.files._folder import FolderReporter
from whet.report.markup import cell

# The viewer tells these two apart by their names.
_NO_ARM = "default"
_CONFIGURATIONS = {SKILL: "with_skill", NO_SKILL: "without_skill", _NO_ARM: "without_skill"}
_MEASURES = ("pass_rate", "time_seconds", "tokens")
# The aggregation of skill-creator counts tokens whatever they are, so people have to know.
_GUESSED = "Tokens are guessed from the characters: the agent does not report all of them"
_LARGEST_FILE = 4 * 1024 * 1024
_MOST_FILES = 200


class _Output(Struct):
    """What was written for one runner so far."""

    folder: Path
    runs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class SkillCreatorReporter(FolderReporter):
    """Writes `iteration-N` into its folder."""

    default_folder = "skill-creator"

    def write(self, event: RunEnded, runner: Runner, folder: Path) -> Path:
        """Write a new iteration, and return the path of its benchmark."""
        place = _next_iteration(folder)
        _write(event.results, event.info, runner.id, place)
        return place / "benchmark.json"


def _next_iteration(folder: Path) -> Path:
    place = next(path for number in count(1) if not (path := folder / f"iteration-{number}").exists())
    place.mkdir(mode=0o700, parents=True)
    return place


def _write(results: Results, info: RunInfo, runner: str, place: Path) -> None:
    runner_executions = [item for item in results.plan.executions if item.runner.id == runner]
    arm_executions = [item for item in runner_executions if item.arm != _NO_ARM]
    # Beside suites with arms, those without have no part in the comparison.
    executions = arm_executions or runner_executions
    names = list(dict.fromkeys(item.case.id for item in executions))
    # The aggregation sorts them, so all are numbers.
    numeric = all(name.isdecimal() for name in names)
    numbers = {name: int(name) if numeric else index for index, name in enumerate(names, 1)}
    output = _Output(place)
    if len(executions) < len(runner_executions):
        left = ", ".join(dict.fromkeys(item.case.id for item in runner_executions if item.arm == _NO_ARM))
        output.notes.append(f"Not here, because they run neither with the skill nor without it: {left}")
    for execution in executions:
        number = numbers[execution.case.id]
        metadata = _metadata(execution, number)
        _dump(place / f"eval-{number}" / "eval_metadata.json", metadata)
        for result in results.trials(execution):
            _write_run(output, info, execution, result, metadata)
    benchmark = {
        "metadata": _about(results, info, executions, list(numbers.values())),
        "runs": output.runs,
        "run_summary": _summary(output.runs),
        "notes": output.notes,
    }
    _dump(place / "benchmark.json", benchmark)
    (place / "benchmark.md").write_text("\n".join(_markdown(benchmark)) + "\n", encoding="utf-8")


def _metadata(execution: Execution, number: int) -> dict[str, Any]:
    case = execution.case
    return {
        "eval_id": number,
        "eval_name": case.tags[0] if case.tags else case.id,
        "prompt": case.prompt,
        "assertions": [check.label for check in case.checks if check.compared],
    }


def _write_run(
    output: _Output, info: RunInfo, execution: Execution, result: TrialResult, metadata: Mapping[str, Any]
) -> None:
    arm = _CONFIGURATIONS.get(execution.arm) or folder_name(execution.arm)
    run = output.folder / f"eval-{metadata['eval_id']}" / arm / f"run-{result.number}"
    source = info.run_dir / result.artifact_dir
    session: Session | None = None
    with suppress(StoreError):
        session = load_report(source)
    _dump(run / "eval_metadata.json", metadata)
    _write_outputs(run / "outputs", source, session)
    tokens, time_s = result.usage.total_tokens or 0, round(result.session_s or result.duration_s, 3)
    timing = {"total_tokens": tokens, "duration_ms": time_s * 1000, "total_duration_seconds": time_s}
    if result.usage.tokens_guessed:
        timing["tokens_guessed"] = True
        if _GUESSED not in output.notes:
            output.notes.append(_GUESSED)
    _dump(run / "timing.json", timing)
    if result.status == "errored":
        # An errored trial says nothing about the agent, so it has no grading, and is in no rate.
        message = result.failure.message.partition("\n")[0] if result.failure else "no verdict"
        output.notes.append(f"Eval {metadata['eval_id']}, {arm}, run {result.number} errored: {message}")
        return
    apart = {check.label for check in execution.case.checks if not check.compared}
    grades = [grade for grade in result.grades if grade.check not in apart]
    labels = metadata["assertions"] or ["The agent finishes its session"]
    grading = _grading(labels, grades, result, session, time_s)
    _dump(run / "grading.json", grading)
    metrics = grading["execution_metrics"]
    figures = {"time_seconds": time_s, "tokens": tokens, "tool_calls": metrics["total_tool_calls"]}
    output.runs.append(
        {
            "eval_id": metadata["eval_id"],
            "eval_name": metadata["eval_name"],
            "configuration": arm,
            "run_number": result.number,
            "result": {**grading["summary"], **figures, "errors": metrics["errors_encountered"]},
            "expectations": grading["expectations"],
            "notes": list(result.notes),
        }
    )


def _grading(
    labels: Sequence[str], grades: Sequence[Grade], result: TrialResult, session: Session | None, time_s: float
) -> dict[str, Any]:
    expectations = [
        {"text": _text(grade), "passed": grade.passed, "evidence": grade.reason or grade.evidence or ""}
        for grade in grades
    ]
    if not expectations:
        # The agent did not get as far as that.
        message = result.failure.message if result.failure else ""
        expectations = [{"text": label, "passed": result.failure is None, "evidence": message} for label in labels]
    passes = sum(bool(expectation["passed"]) for expectation in expectations)
    total = len(expectations)
    tools = Counter(call.tool for call in session.tool_calls()) if session else Counter[str]()
    commands = [event for event in session.events if isinstance(event, CommandRun)] if session else []
    return {
        "expectations": expectations,
        "summary": {
            "passed": passes,
            "failed": total - passes,
            "total": total,
            "pass_rate": round(passes / total, 4),
        },
        "execution_metrics": {
            "tool_calls": dict(tools),
            "total_tool_calls": tools.total(),
            "total_steps": result.steps,
            "errors_encountered": sum(event.exit_code not in (None, 0) for event in commands),
            "output_chars": len(session.final_output) if session else len(result.final_output),
        },
        # Without a total: with one, the aggregation would not look for the tokens in timing.json.
        "timing": {
            "executor_duration_seconds": time_s,
            "grader_duration_seconds": round(sum(grade.duration_s or 0.0 for grade in grades), 3),
        },
    }


def _text(grade: Grade) -> str:
    """Return what was expected: the whole statement, of which the name of the check may have only a part."""
    try:
        rating = json.loads(grade.evidence or "")
        return str(rating[0]["description"]) if len(rating) == 1 else grade.check
    except (ValueError, KeyError, TypeError, IndexError):
        return grade.check


def _write_outputs(outputs: Path, source: Path, session: Session | None) -> None:
    """Write the answer, the diff, and the files that the agent made, as they are in the record."""
    outputs.mkdir(parents=True, exist_ok=True)
    if session is not None:
        (outputs / "answer.md").write_text(session.final_output, encoding="utf-8", errors="backslashreplace")
    with suppress(FileNotFoundError):
        shutil.copyfile(source / "diff.patch", outputs / "changes.diff.txt")
    archive = source / "changes.tar"
    if not archive.is_file():
        return

    with tarfile.open(archive) as file:
        members = (member for member in file if member.isreg() and member.size <= _LARGEST_FILE)
        for _, member in zip(range(_MOST_FILES), members, strict=False):
            # An agent chose the names. Only plain files are written, so that no link leads anywhere.
            with suppress(PackageError, FileExistsError, NotADirectoryError, IsADirectoryError):
                target = outputs / path_of(member.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                content = file.extractfile(member)
                target.write_bytes(content.read() if content else b"")


def _about(results: Results, info: RunInfo, executions: Sequence[Execution], ids: Sequence[int]) -> dict[str, Any]:
    suite = results.plan.suite
    runner = executions[0].runner
    return {
        "skill_name": suite.skill.name if suite.skill else suite.name,
        "skill_path": str(suite.skill.source) if suite.skill else "",
        "executor_model": runner.model or runner.id,
        "analyzer_model": str(suite.judge.get("runner") or suite.judge.get("model") or ""),
        "timestamp": info.started_at,
        "evals_run": list(ids),
        "runs_per_configuration": max(execution.trials for execution in executions),
    }


def _summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for name in sorted({run["configuration"] for run in runs}):
        results = [run["result"] for run in runs if run["configuration"] == name]
        summary[name] = {measure: _spread([float(result[measure]) for result in results]) for measure in _MEASURES}
    first, second = (*summary.values(), {}, {})[:2]
    differences = {
        measure: first.get(measure, _NOTHING)["mean"] - second.get(measure, _NOTHING)["mean"] for measure in _MEASURES
    }
    digits = {"pass_rate": "+.2f", "time_seconds": "+.1f", "tokens": "+.0f"}
    return {**summary, "delta": {measure: format(value, digits[measure]) for measure, value in differences.items()}}


_NOTHING = {"mean": 0.0, "stddev": 0.0, "min": 0.0, "max": 0.0}


def _spread(values: Sequence[float]) -> dict[str, float]:
    deviation = stdev(values) if len(values) > 1 else 0.0
    spread = {"mean": fmean(values), "stddev": deviation, "min": min(values), "max": max(values)}
    return {name: round(value, 4) for name, value in spread.items()}


def _markdown(benchmark: Mapping[str, Any]) -> Iterator[str]:
    about, summary = benchmark["metadata"], benchmark["run_summary"]
    names = [name for name in summary if name != "delta"]
    yield f"# Skill benchmark: {cell(about['skill_name'])}"
    yield ""
    yield f"Model: {cell(about['executor_model'])}, {about['timestamp']}, {len(about['evals_run'])} evals"
    yield ""
    yield f"| | {' | '.join(cell(name) for name in names)} | delta |"
    yield "|---" * (len(names) + 2) + "|"
    for measure in _MEASURES:
        cells = (f"{summary[name][measure]['mean']:g} ± {summary[name][measure]['stddev']:g}" for name in names)
        guess = " (guessed)" if measure == "tokens" and _GUESSED in benchmark["notes"] else ""
        yield f"| {measure}{guess} | {' | '.join(cells)} | {summary['delta'][measure]} |"
    for note in benchmark["notes"]:
        yield f"\n- {cell(note)}"


def _dump(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{json.dumps(value, indent=2, ensure_ascii=False)}\n", encoding="utf-8", errors="backslashreplace")
