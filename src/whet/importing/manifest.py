"""Benchmark manifests: a name, and task packages under `cases`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.errors import PackageError, Problem, SuiteError
from whet.evals import EvalCase, EvalSuiteError, TaskPackage, read_manifest
from whet.importing.base import Imported, Lost, seen_from
from whet.packages.fetch import kind_of, local_path

_MOST_CASES = 100_000
# What a manifest should say of every task, and a suite need not.
_WANTED = ("task_id", "instruction", "verifier_ref")


def import_manifest(document: Any, path: Path, folder: Path) -> Imported:
    """The suite that the manifest *document*, read from *path*, stands for."""
    try:
        suite = read_manifest(document, most_cases=_MOST_CASES)
    except EvalSuiteError as error:
        problems = [
            Problem(file=str(path), field=problem.path or None, message=problem.message, hint=problem.hint)
            for problem in error.problems
        ]
        raise SuiteError(problems) from error
    cases = tuple(_moved(case, path.parent, folder) for case in suite.cases)
    return Imported(suite=replace(suite, cases=cases), lost=tuple(_unsaid(document["cases"])))


def _moved(case: EvalCase, base_dir: Path, folder: Path) -> EvalCase:
    """A local package as it is seen from where the suite will lie."""
    assert isinstance(case, TaskPackage)
    try:
        if kind_of(case.environment_ref) != "local" or "://" in case.environment_ref:
            return case
        return replace(case, environment_ref=seen_from(local_path(case.environment_ref, base_dir), folder))
    except PackageError:
        return case


def _unsaid(cases: list[dict[str, Any]]) -> list[Lost]:
    """Fields that a manifest should give and this one leaves to their defaults."""
    return [
        Lost(task=str(case.get("task_id") or f"cases[{index}]"), what=f"the manifest does not say {name}")
        for index, case in enumerate(cases)
        for name in _WANTED
        if not case.get(name) and not (name == "task_id" and case.get("id"))
    ]
