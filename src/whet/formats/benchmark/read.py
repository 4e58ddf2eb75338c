"""From a JSON or YAML file to a benchmark, or to every problem that it has."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.errors import Problem, SuiteError
from whet.fields import BadDocument, Fields, Findings, shown
from whet.formats.benchmark.task import read_task
from whet.formats.document.plain import read_plain
from whet.model.benchmark import (
    DEFAULT_MAX_LATENCY_MS,
    SCORING_METHODS,
    Benchmark,
    BenchmarkTask,
    EvaluatorKind,
)
from whet.model.naming import folder_name

_KNOWN = ("id", "name", "version", "domain", "scoringMethod", "maxLatencyMs", "k", "metadata", "tasks", "$schema")
# The id of tasks that stand in no benchmark.
CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """A benchmark, and what about its file is worth a word."""

    benchmark: Benchmark
    notes: tuple[Problem, ...]


def read_benchmark(path: Path, *, default: EvaluatorKind | None = None) -> LoadedBenchmark:
    """The benchmark in *path*; *default* is the evaluator of tasks that name none."""
    document, findings = _document(path)
    if not isinstance(document, dict):
        hint = "a bare list of tasks is read by --tasks" if isinstance(document, list) else None
        findings.problems.append(
            Problem(file=str(path), message=f"must be an object, not {shown(document)}", hint=hint)
        )
        raise SuiteError(findings.problems)
    return _benchmark(document, findings, path, default)


def read_tasks(path: Path, *, default: EvaluatorKind | None = None) -> LoadedBenchmark:
    """A bare list of tasks as a benchmark called `custom`; a whole benchmark is taken as it is."""
    document, findings = _document(path)
    if isinstance(document, dict) and "tasks" in document:
        return _benchmark(document, findings, path, default)
    if not isinstance(document, list):
        raise SuiteError([Problem(file=str(path), message=f"must be a list of tasks, not {shown(document)}")])
    head = {"id": CUSTOM, "name": path.stem, "version": "0.0.0", "domain": "custom", "scoringMethod": "mean"}
    return _benchmark({**head, "tasks": document}, findings, path, default, at="")


def _document(path: Path) -> tuple[Any, Findings]:
    try:
        return read_plain(path), Findings(str(path))
    except BadDocument as error:
        raise SuiteError([Problem(file=str(path), message=str(error))]) from error


def _benchmark(
    document: dict[str, Any], findings: Findings, path: Path, default: EvaluatorKind | None, at: str = "tasks"
) -> LoadedBenchmark:
    fields = Fields(document, findings)
    fields.mention_unknown(_KNOWN)
    scoring = fields.choice("scoringMethod", SCORING_METHODS, required=True)
    k = fields.number("k", default=1)
    if not isinstance(k, int):
        fields.problem("k", f"must be a whole number, not {shown(k)}")
    benchmark = Benchmark(
        id=fields.text("id", required=True),
        name=fields.text("name", required=True),
        version=fields.text("version", required=True),
        domain=fields.text("domain", required=True),
        scoring=next((method for method in SCORING_METHODS if method == scoring), "mean"),
        max_latency_ms=float(fields.number("maxLatencyMs", default=DEFAULT_MAX_LATENCY_MS)),
        k=int(k),
        metadata=fields.table("metadata").values,
        tasks=_tasks(fields, at, default),
        source=path.resolve(),
        digest=_digest(document, default),
    )
    if findings.problems:
        raise SuiteError(findings.problems)
    return LoadedBenchmark(benchmark, tuple(findings.notes))


def _tasks(fields: Fields, at: str, default: EvaluatorKind | None) -> tuple[BenchmarkTask, ...]:
    written = fields.values.get("tasks")
    if not isinstance(written, list) or not written:
        given = "is missing" if written is None else f"must be a list with at least one task, not {shown(written)}"
        fields.problem("tasks", given)
        return ()
    tasks: list[BenchmarkTask] = []
    for index, item in enumerate(written):
        place = f"{at}[{index}]"
        if not isinstance(item, dict):
            fields.problem(place, f"must be an object, not {shown(item)}")
            continue
        name = item.get("id")
        case = name if isinstance(name, str) and name.isprintable() else None
        tasks.append(read_task(Fields(item, fields.findings, place, case), default))
    _refuse_shared_ids(fields, at, tasks)
    return tuple(tasks)


def _refuse_shared_ids(fields: Fields, at: str, tasks: list[BenchmarkTask]) -> None:
    """No two tasks have one id, nor ids that are one folder of the record."""
    seen: dict[str, int] = {}
    for index, task in enumerate(tasks):
        first = seen.setdefault(folder_name(task.id).casefold(), index)
        if not task.id or first == index:
            continue
        other = f"{at}[{first}]"
        same = f"is also the id of {other}"
        alike = f'would share the folder "{folder_name(task.id)}" with {other}'
        fields.problem(f"{at}[{index}].id", f'"{task.id}" {same if tasks[first].id == task.id else alike}')


def _digest(document: dict[str, Any], default: EvaluatorKind | None) -> str:
    text = json.dumps([document, default], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
