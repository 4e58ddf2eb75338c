"""Examine a file or folder that `whet eval` could use: a benchmark, a list of tasks, or callable skills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.agents.callable_reading import MANIFEST, find_skills, manifests, read_skill
from whet.dataclass import dataclass
from whet.errors import Problem, SuiteError, UsageError
from whet.grade.evaluator_graders import find_scorer
from whet.reading.document_files import SUFFIXES, document_format, read_plain
from whet.reading.documents import DocumentError
from whet.reading.text import count
from whet.suites.benchmarks import FILES, LoadedBenchmark, read_benchmark, read_tasks


@dataclass(frozen=True, slots=True)
class Examined:
    """A file without problems: what it is in a few words, and warnings about it."""

    file: Path
    summary: str
    notes: tuple[Problem, ...]


def examine(path: Path) -> list[Examined] | None:
    """Return what *path* holds for an evaluation, or None if it holds a suite; raises `SuiteError` for its problems."""
    if path.is_dir():
        return _folder(path)
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return None
    if path.name == MANIFEST:
        return [_skill(path)]
    try:
        document = read_plain(path)
    except DocumentError:
        # The reader of suites says where.
        return None
    if document_format(path) == "bench" and isinstance(document, list):
        return [_benchmark(path, read_tasks(path))]
    return _object(path, document) if isinstance(document, dict) else None


def _object(path: Path, document: dict[str, Any]) -> list[Examined] | None:
    if "cases" in document:
        return None
    if "adapterType" in document or "entrypoint" in document:
        return [_skill(path)]
    return [_benchmark(path, read_benchmark(path))] if "tasks" in document else None


def _folder(path: Path) -> list[Examined] | None:
    for name in FILES:
        if (path / name).is_file():
            return [_benchmark(path / name, read_benchmark(path / name))]
    problems: list[Problem] = []
    files = list(manifests(path, problems))
    if not files and not problems:
        return None
    # All at once, because two of them may have the same id.
    find_skills([path])
    return [_skill(file) for file in files]


def _skill(path: Path) -> Examined:
    loaded = read_skill(path)
    skill = loaded.skill
    return Examined(path, f"skill {skill.id} {skill.version} ({skill.adapter})", loaded.notes)


def _benchmark(path: Path, loaded: LoadedBenchmark) -> Examined:
    benchmark = loaded.benchmark
    problems = list(_missing_graders(path, loaded))
    if problems:
        raise SuiteError(problems, loaded.notes)
    kinds = Counter(task.evaluator.kind for task in benchmark.tasks)
    by = ", ".join(f"{amount} {kind}" for kind, amount in kinds.items())
    summary = f"benchmark {benchmark.id} {benchmark.version}: {count(len(benchmark.tasks), 'task')} ({by})"
    return Examined(path, summary, loaded.notes)


def _missing_graders(path: Path, loaded: LoadedBenchmark) -> Iterator[Problem]:
    for task in loaded.benchmark.tasks:
        if task.evaluator.kind == "custom":
            try:
                find_scorer(task.expected.custom_scorer or "", loaded.benchmark.source.parent)
            except UsageError as error:
                yield Problem(file=str(path), case=task.id, message=error.message, hint=error.hint)
