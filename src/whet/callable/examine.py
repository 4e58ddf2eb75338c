"""Examine a file or folder that `whet eval` could use: a benchmark, a list of tasks, or callable skills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.callable.manifest import MANIFEST, find_skills, manifests, read_skill
from whet.errors import Problem, SuiteError, UsageError
from whet.grade.answers.evaluators import find_scorer
from whet.reading.documents import DocumentError
from whet.reading.text import count
from whet.reading.yaml import SUFFIXES, read_plain
from whet.suites.benchmark import FILES, LoadedBenchmark, read_benchmark, read_tasks
from whet.suites.document_formats import document_format
from whet.suites.nearest import why_unknown


class ExaminedFile(Struct, frozen=True):
    """A file without problems: what it is in a few words, warnings about it, and what is not carried over."""

    file: Path
    summary: str
    notes: tuple[Problem, ...]
    lost: tuple[Problem, ...] = ()
    # How many of these are checks, and how many are whole cases.
    lost_checks: int = 0
    lost_cases: int = 0


def examine(path: Path) -> list[ExaminedFile] | None:
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
        if (reason := why_unknown(document)) is not None:
            raise SuiteError([Problem(file=str(path), message=reason)])
        return [_benchmark(path, read_tasks(path))]
    return _object(path, document) if isinstance(document, dict) else None


def _object(path: Path, document: dict[str, Any]) -> list[ExaminedFile] | None:
    look = next((look for key, look in _OBJECTS if key in document), None)
    return None if look is None else [look(path)]


def _folder(path: Path) -> list[ExaminedFile] | None:
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


def _skill(path: Path) -> ExaminedFile:
    loaded_skill = read_skill(path)
    skill = loaded_skill.skill
    return ExaminedFile(path, f"skill {skill.id} {skill.version} ({skill.adapter})", loaded_skill.notes)


def _benchmark(path: Path, loaded_benchmark: LoadedBenchmark) -> ExaminedFile:
    benchmark = loaded_benchmark.benchmark
    problems = list(_missing_graders(path, loaded_benchmark))
    if problems:
        raise SuiteError(problems, loaded_benchmark.notes)
    kinds = Counter(task.evaluator.kind for task in benchmark.tasks)
    by = ", ".join(f"{amount} {kind}" for kind, amount in kinds.items())
    summary = f"benchmark {benchmark.id} {benchmark.version}: {count(len(benchmark.tasks), 'task')} ({by})"
    return ExaminedFile(path, summary, loaded_benchmark.notes)


# What an object is, by a key that nothing else has. The first row that fits decides; a suite is none of these.
_OBJECTS: tuple[tuple[str, Callable[[Path], ExaminedFile] | None], ...] = (
    ("cases", None),
    ("adapterType", _skill),
    ("entrypoint", _skill),
    ("tasks", lambda path: _benchmark(path, read_benchmark(path))),
)


def _missing_graders(path: Path, loaded_benchmark: LoadedBenchmark) -> Iterator[Problem]:
    for task in loaded_benchmark.benchmark.tasks:
        if task.evaluator.kind == "custom":
            try:
                find_scorer(task.expected.custom_scorer or "", loaded_benchmark.benchmark.source.parent)
            except UsageError as error:
                yield Problem(file=str(path), case=task.id, message=error.message, hint=error.hint)
