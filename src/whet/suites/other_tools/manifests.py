"""Import benchmark manifests: their tasks become the cases of an eval suite, and packages stay where they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import PackageError, Problem, SuiteError, UsageError
from whet.model.eval_cases import EvalCase, EvalSuite, TaskPackage
from whet.packages.settings import kind_of, local_path
from whet.reading.documents import DocumentError
from whet.reading.fields import Findings
from whet.reading.yaml import read_plain
from whet.suites.evals.documents import read_manifest
from whet.suites.other_tools.harbor import TASK, tasks_in

_MOST_CASES = 100_000
# Fields that every task of a manifest should have, and a case of a suite need not have.
_WANTED = ("task_id", "instruction", "verifier_ref")
_LARGEST = 64 * 1024 * 1024


class ManifestImport(Struct, frozen=True, kw_only=True):
    """The suite, and what it lacks; the case of each problem is the name of its task."""

    suite: EvalSuite
    lost: tuple[Problem, ...] = ()


def import_path(path: Path, folder: Path) -> ManifestImport:
    """Import the manifest at *path* into a suite in *folder*."""
    if path.is_file() and path.name != TASK:
        return import_manifest(_document(path), path, folder)
    root = path.parent if path.name == TASK else path
    if not root.is_dir():
        raise UsageError(f"{path} does not exist")
    if tasks_in(root):
        raise UsageError(f"{path} holds tasks, which need no import", hint=f"they run as they are: whet run {root}")
    raise UsageError(f"{path} is a folder", hint="name the file of a benchmark manifest")


def _document(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise SuiteError([Problem(file=str(path), message="is too large for a manifest")])
        return read_plain(path)
    except DocumentError as error:
        raise SuiteError([error.problem(path)]) from error


def import_manifest(document: Any, path: Path, folder: Path) -> ManifestImport:
    """Return the suite of the manifest *document*, read from *path*."""
    suite = read_manifest(document, most_cases=_MOST_CASES, findings=Findings(str(path)))
    cases = tuple(_move_package(case, path.parent, folder) for case in suite.cases)
    return ManifestImport(suite=replace(suite, cases=cases), lost=tuple(_missing_fields(document["cases"])))


def _move_package(case: EvalCase, base_dir: Path, folder: Path) -> EvalCase:
    """Return the case with its local package as seen from *folder*, where the suite will be."""
    assert isinstance(case, TaskPackage)
    try:
        if kind_of(case.environment_ref) != "local" or "://" in case.environment_ref:
            return case
        return replace(case, environment_ref=relative_ref(local_path(case.environment_ref, base_dir), folder))
    except PackageError:
        return case


def _missing_fields(cases: list[dict[str, Any]]) -> list[Problem]:
    """Return the fields that a manifest should give and this one leaves to their defaults."""
    return [
        Problem(
            file="",
            case=str(case.get("task_id") or f"cases[{index}]"),
            message=f"the manifest does not say {name}",
        )
        for index, case in enumerate(cases)
        for name in _WANTED
        if not case.get(name) and not (name == "task_id" and case.get("id"))
    ]


def relative_ref(path: Path, folder: Path) -> str:
    """Return *path* as a suite in *folder* refers to it."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
