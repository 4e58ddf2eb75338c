"""Benchmarks for callable skills: find one by its name, read its tasks, and turn it into a suite."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.errors import Problem, SuiteError, UnknownName, UsageError
from whet.model.callable import (
    COMPARISONS,
    DEFAULT_MAX_LATENCY_MS,
    EVALUATORS,
    MISSING,
    SCORING_METHODS,
    SUBJECTS,
    Benchmark,
    BenchmarkTask,
    Evaluator,
    EvaluatorKind,
    Expected,
)
from whet.model.run import folder_name, id_problem
from whet.model.suite import Case, Check, Limits, Suite
from whet.reading.documents import DocumentError
from whet.reading.fields import Fields, Findings
from whet.reading.schemas import SchemaTrouble, check_schema
from whet.reading.text import did_you_mean, shown
from whet.reading.yaml import SUFFIXES, read_checked, read_plain

_USUAL_TIMEOUT_S = 30.0
_TASK = ("id", "description", "inputData", "expectedOutput", "evaluator", "timeoutMs", "tags", "weight")
_EXPECTED = ("type", "value", "schema", "keywords", "patterns", "judgePrompt", "customScorerPath")
_EVALUATOR = ("type", "caseSensitive", "compare", "tolerance", "threshold", "timeoutMs", "subject", "customScorerPath")
# Other names of evaluators.
ALIASES: dict[str, EvaluatorKind] = {"exact_match": "exact", "schema": "json_schema"}
# The field of `expectedOutput` that an evaluator looks at.
_SUBJECT: dict[EvaluatorKind, str] = {
    "exact": "value",
    "contains": "keywords",
    "regex": "patterns",
    "json_schema": "schema",
    "llm_judge": "judgePrompt",
    "custom": "customScorerPath",
}
# A judge and a grader of the author take `value` as a reference answer.
_TAKES_VALUE: tuple[EvaluatorKind, ...] = ("exact", "llm_judge", "custom")


def read_task(fields: Fields, default: EvaluatorKind | None) -> BenchmarkTask:
    """Read one task; its problems are noted in *fields*."""
    fields.warn_of_unknown(_TASK)
    expectation, evaluator = fields.table("expectedOutput", required=True), fields.table("evaluator")
    expectation.warn_of_unknown(_EXPECTED)
    evaluator.warn_of_unknown(_EVALUATOR)
    kind = _kind(expectation, evaluator, default)
    return BenchmarkTask(
        id=fields.checked("id", fields.text("id", required=True), id_problem) or "",
        description=fields.text("description", empty=True) or "",
        input=fields.table("inputData", required=True).values,
        expected=_read_expectation(expectation, evaluator, kind),
        evaluator=_evaluator(evaluator, kind),
        timeout_ms=fields.number("timeoutMs", above=0),
        tags=tuple(dict.fromkeys(fields.texts("tags"))),
        weight=float(fields.number("weight", default=1.0, least=0)),
    )


def _kind(expected: Fields, evaluator: Fields, default: EvaluatorKind | None) -> EvaluatorKind:
    """Return the evaluator that the task names in one place or in both; two different names are a problem."""
    expected_kind, evaluator_kind = _kind_in(expected), _kind_in(evaluator)
    if expected_kind and evaluator_kind and expected_kind != evaluator_kind:
        evaluator.problem(
            "type", f'is "{evaluator_kind}", but expectedOutput.type is "{expected_kind}"', "make them the same"
        )
    kind = evaluator_kind or expected_kind or default
    if kind is None and not expected.values.get("type") and not evaluator.values.get("type"):
        evaluator.problem("type", "is missing, and expectedOutput.type too", f"one of {', '.join(EVALUATORS)}")
    return kind or "exact"


def _kind_in(fields: Fields) -> EvaluatorKind | None:
    names: dict[str, EvaluatorKind] = {kind: kind for kind in EVALUATORS} | ALIASES
    value = fields.choice("type", tuple(names))
    return None if value is None else names[value]


def _read_expectation(fields: Fields, evaluator: Fields, kind: EvaluatorKind) -> Expected:
    _check_subject(fields, evaluator, kind)
    patterns = fields.texts("patterns", blank=True, required=kind == "regex")
    for index, pattern in enumerate(patterns):
        try:
            re.compile(pattern)
        except re.error as error:
            fields.problem(f"patterns[{index}]", f"is not a regular expression: {error}")
    if kind == "json_schema" and "schema" in fields.values:
        try:
            check_schema(fields.values["schema"])
        except SchemaTrouble as error:
            fields.problem("schema", f"is not a JSON Schema: {error}")
    return Expected(
        value=fields.values.get("value", MISSING),
        keywords=fields.texts("keywords", blank=True, required=kind == "contains"),
        patterns=patterns,
        schema=fields.values.get("schema"),
        judge_prompt=fields.text("judgePrompt", required=kind == "llm_judge"),
        custom_scorer=fields.text("customScorerPath") or evaluator.text("customScorerPath"),
    )


def _check_subject(fields: Fields, evaluator: Fields, kind: EvaluatorKind) -> None:
    """Check that the field that the evaluator needs is there; warn of fields that it does not use."""
    if kind in {"exact", "json_schema"} and _SUBJECT[kind] not in fields.values:
        fields.problem(_SUBJECT[kind], f"is missing, and {kind} looks at nothing else")
    if kind == "custom":
        expected_path, evaluator_path = fields.values.get("customScorerPath"), evaluator.values.get("customScorerPath")
        if expected_path is None and evaluator_path is None:
            fields.problem("customScorerPath", "is missing")
        elif expected_path is not None and evaluator_path is not None and expected_path != evaluator_path:
            evaluator.problem(
                "customScorerPath", f"is {shown(evaluator_path)}, but in expectedOutput it is {shown(expected_path)}"
            )
    for evaluator_kind, subject in _SUBJECT.items():
        is_ignored = subject in fields.values and subject != _SUBJECT[kind]
        if is_ignored and not (evaluator_kind == "exact" and kind in _TAKES_VALUE):
            fields.warn(subject, f"is not used by {kind}")


def _evaluator(fields: Fields, kind: EvaluatorKind) -> Evaluator:
    subject = fields.choice("subject", SUBJECTS)
    if subject == "files" and kind != "custom":
        fields.problem("subject", f'only custom can grade "files", not {kind}')
    return Evaluator(
        kind=kind,
        # Only keywords are looked for without regard to case, unless the task says so.
        case_sensitive=fields.flag("caseSensitive", kind != "contains"),
        compare=fields.choice("compare", COMPARISONS) or "json",
        tolerance=float(fields.number("tolerance", default=0.0, least=0)),
        threshold=float(fields.number("threshold", default=0.5, above=0, most=1.0)),
        timeout_ms=fields.number("timeoutMs", above=0),
        subject=subject or "output",
    )


# What a benchmark has besides its tasks, for tasks without one.
_HEAD = {"id": "custom", "version": "0.0.0", "domain": "custom", "scoringMethod": "mean"}
_KNOWN = ("id", "name", "version", "domain", "scoringMethod", "maxLatencyMs", "k", "metadata", "tasks", "$schema")


class LoadedBenchmark(Struct, frozen=True):
    """A benchmark, and the warnings about its file."""

    benchmark: Benchmark
    notes: tuple[Problem, ...]


def read_benchmark(path: Path, *, default: EvaluatorKind | None = None) -> LoadedBenchmark:
    """Read the benchmark in *path*; *default* is the evaluator of tasks that name none."""
    document = read_checked(path)
    if not isinstance(document, dict):
        hint = "for a list of tasks, use --tasks" if isinstance(document, list) else None
        raise SuiteError([Problem(file=str(path), message=f"must be an object, not {shown(document)}", hint=hint)])
    return _benchmark(document, path, default)


def read_tasks(path: Path, *, default: EvaluatorKind | None = None) -> LoadedBenchmark:
    """Read a bare list of tasks as a benchmark called `custom`; a whole benchmark is read as such."""
    document = read_checked(path)
    if isinstance(document, dict) and "tasks" in document:
        return _benchmark(document, path, default)
    if not isinstance(document, list):
        raise SuiteError([Problem(file=str(path), message=f"must be a list of tasks, not {shown(document)}")])
    return _benchmark({**_HEAD, "name": path.stem, "tasks": document}, path, default, at="")


def one_task(task: Mapping[str, Any], path: Path) -> LoadedBenchmark:
    """Return a benchmark of one task that is in no file; paths in it are relative to the folder of *path*."""
    return _benchmark({**_HEAD, "name": path.stem, "tasks": [dict(task)]}, path, None, at="")


def _benchmark(
    document: dict[str, Any], path: Path, default: EvaluatorKind | None, at: str = "tasks"
) -> LoadedBenchmark:
    findings = Findings(str(path))
    fields = Fields(document, findings)
    fields.warn_of_unknown(_KNOWN)
    benchmark = Benchmark(
        id=fields.text("id", required=True) or "",
        name=fields.text("name", required=True) or "",
        version=fields.text("version", required=True) or "",
        domain=fields.text("domain", required=True) or "",
        scoring=fields.choice("scoringMethod", SCORING_METHODS, required=True) or "mean",
        max_latency_ms=float(fields.number("maxLatencyMs", above=0, default=DEFAULT_MAX_LATENCY_MS)),
        k=fields.whole("k") or 1,
        metadata=fields.table("metadata").values,
        tasks=_tasks(fields, at, default),
        source=path.resolve(),
        digest=_digest(document, default),
    )
    if findings.problems:
        raise SuiteError(findings.problems)
    return LoadedBenchmark(benchmark, tuple(findings.warnings))


def _tasks(fields: Fields, at: str, default: EvaluatorKind | None) -> tuple[BenchmarkTask, ...]:
    entries = fields.values.get("tasks")
    if not isinstance(entries, list) or not entries:
        problem = "is missing" if entries is None else f"must be a list with at least one task, not {shown(entries)}"
        fields.problem("tasks", problem)
        return ()
    tasks: list[BenchmarkTask] = []
    for index, item in enumerate(entries):
        task = fields.object(f"{at}[{index}]", item)
        if isinstance(item, dict):
            name = item.get("id")
            task.case = name if isinstance(name, str) and name.isprintable() else None
            tasks.append(read_task(task, default))
    _refuse_shared_ids(fields, at, tasks)
    return tuple(tasks)


def _refuse_shared_ids(fields: Fields, at: str, tasks: list[BenchmarkTask]) -> None:
    """Note tasks that have the same id, or ids that would share a folder of the record."""
    first_indexes: dict[str, int] = {}
    for index, task in enumerate(tasks):
        first = first_indexes.setdefault(folder_name(task.id).casefold(), index)
        if not task.id or first == index:
            continue
        is_same_id = tasks[first].id == task.id
        problem = "is also the id of" if is_same_id else f'would share the folder "{folder_name(task.id)}" with'
        fields.problem(f"{at}[{index}].id", f'"{task.id}" {problem} {at}[{first}]')


def _digest(document: dict[str, Any], default: EvaluatorKind | None) -> str:
    text = json.dumps([document, default], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def as_suite(benchmark: Benchmark, judge: Mapping[str, Any]) -> Suite:
    """Return *benchmark* as a suite: tasks are cases, and the grader of its evaluator decides each."""
    return Suite(
        name=benchmark.id,
        cases=tuple(_case(task, weighted=benchmark.scoring == "weighted_mean") for task in benchmark.tasks),
        source=benchmark.source,
        digest=benchmark.digest,
        description=benchmark.name,
        usual_timeout_s=_USUAL_TIMEOUT_S,
        judge=judge,
    )


def _case(task: BenchmarkTask, *, weighted: bool) -> Case:
    limits = Limits(timeout_s=None if task.timeout_ms is None else task.timeout_ms / 1000)
    prompt = json.dumps(dict(task.input), ensure_ascii=False)
    check = Check(grader=task.evaluator.kind, params={"task": task}, label=task.evaluator.kind, weight=task.weight)
    return Case(
        id=task.id,
        prompt=prompt,
        checks=(check,),
        tags=task.tags,
        limits=limits,
        scored=True,
        weight=task.weight if weighted else 1.0,
    )


# The file in the folder of a benchmark.
FILES = tuple(f"benchmark{suffix}" for suffix in SUFFIXES)
_ANY = tuple(f"*{suffix}" for suffix in SUFFIXES)
# The benchmarks of whet; the folder holds only data.
BUILT_IN = Path(__file__).parent / "built_in"


def find_benchmark(name: str, folders: Sequence[Path]) -> Path:
    """Find the file of the benchmark *name*: a path, or an id in *folders* and then in whet's own."""
    if _looks_like_path(name):
        return _by_path(Path(name))
    unreadable: list[str] = []
    identifiers: set[str] = set()
    for folder in (*folders, BUILT_IN):
        entries = _ids(folder, unreadable)
        identifiers.update(identifier for _, identifier in entries)
        files = [file for file, identifier in entries if identifier == name]
        if len(files) > 1:
            raise UsageError(f'two benchmarks are called "{name}": {files[0]} and {files[1]}', hint="name one by path")
        if files:
            return files[0]
    hint = did_you_mean(name, sorted(identifiers)) or f"known: {', '.join(sorted(identifiers))}"
    if unreadable:
        hint += f"; could not be read: {'; '.join(unreadable)}"
    raise UnknownName(f'no benchmark is called "{name}"', hint=hint)


def _looks_like_path(name: str) -> bool:
    return "/" in name or name.endswith(SUFFIXES) or name in {".", ".."}


def _by_path(path: Path) -> Path:
    for name in FILES:
        if (path / name).is_file():
            return path / name
    if path.is_file():
        return path
    reason = f"has no {FILES[0]}" if path.is_dir() else "there is no such file"
    raise SuiteError([Problem(file=str(path), message=reason)])


def _ids(folder: Path, unreadable: list[str]) -> list[tuple[Path, str]]:
    """Return each benchmark file with its id; one that cannot be read does not hide the others."""
    entries: list[tuple[Path, str]] = []
    for file in _files(folder):
        try:
            document: Any = read_plain(file)
        except DocumentError as error:
            unreadable.append(f"{file} {error}")
            continue
        if isinstance(document, dict) and isinstance(document.get("id"), str) and "tasks" in document:
            entries.append((file, document["id"]))
    return entries


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        for pattern in (*_ANY, *(f"*/{name}" for name in FILES), *(f"definitions/{ending}" for ending in _ANY)):
            yield from sorted(folder.glob(pattern))
