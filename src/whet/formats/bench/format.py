"""Bench suites as the model sees them: every default settled, every problem found at once."""

from __future__ import annotations

import hashlib
from pathlib import Path

from whet.config.search import find_project
from whet.errors import Problem, SuiteError
from whet.formats.bench.cases import Defaults, lower_cases
from whet.formats.bench.fields import Fields, Notes
from whet.formats.document import SUFFIXES, Document, DocumentError, read_document
from whet.formats.document.peeking import is_eval_suite
from whet.model.naming import id_problem
from whet.model.suite import Suite, WorkspaceSpec

TOP = ("name", "description", "model", "defaults", "protect", "cases", "$schema", "version")
USUAL_TIMEOUT_S = 600.0
DEFAULTS = ("budget", "timeout", "model", "env", "setup")


class BenchFormat:
    """Any `.json`, `.yaml` or `.yml` file."""

    def recognizes(self, path: Path) -> bool:
        """By its ending, unless it is an eval suite."""
        return path.suffix.lower() in SUFFIXES and not is_eval_suite(path)

    def lower(self, path: Path) -> Suite:
        """Read the file and check all that can be checked without running an agent."""
        notes = Notes(path)
        suite = _suite(_document(path, notes), path, notes)
        if notes.problems or suite is None:
            raise SuiteError(notes.problems, notes.warnings)
        return suite


def _document(path: Path, notes: Notes) -> Document:
    try:
        found = read_document(path)
    except DocumentError as error:
        place = f"line {error.line}" if error.line else None
        problem = Problem(file=str(path), field=place, message=error.message, hint=error.hint)
        raise SuiteError([problem]) from None
    notes.problems += (
        Problem(
            file=str(path),
            field=f"line {repeat.line}",
            message=f'has the key "{repeat.key}" a second time; the first is in line {repeat.first}',
            hint="only one of them would count: remove the other",
        )
        for repeat in found.repeats
    )
    return found


def _suite(document: Document, path: Path, notes: Notes) -> Suite | None:
    top = Fields(notes, document.root)
    if not top.is_object():
        return None
    if "cases" not in top.members and "tasks" in top.members:
        top.note("tasks", "are those of a benchmark for callable skills", f"whet eval --benchmark {path.name}")
        return None
    top.warn_unknown(TOP)
    name = top.text("name", required=True)
    if name is not None and (problem := id_problem(name)):
        top.note("name", problem)
    # Not the current folder: where somebody stands must not change what is tried.
    project = find_project(path.parent) or path.parent
    cases = lower_cases(top, _defaults(top), project)
    return Suite(
        name=name or "",
        cases=cases,
        source=path,
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        workspace=WorkspaceSpec(mode="isolated", template_dir=project),
        description=top.text("description") or "",
        usual_timeout_s=USUAL_TIMEOUT_S,
        warnings=tuple(notes.warnings),
    )


def _defaults(top: Fields) -> Defaults:
    model = top.text("model")
    protect = top.texts("protect")
    if "defaults" not in top.members:
        return Defaults(model=model, protect=protect)
    given = Fields(top.notes, top.members["defaults"], "defaults")
    if not given.is_object():
        return Defaults(model=model, protect=protect)
    given.warn_unknown(DEFAULTS)
    return Defaults(
        budget_usd=given.number("budget"),
        timeout_s=given.seconds("timeout"),
        model=given.text("model") or model,
        env=given.variables("env"),
        setup=given.script("setup"),
        protect=protect,
    )
