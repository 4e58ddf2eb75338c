"""Eval suites as the model sees them: every case lowered, every problem found at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from whet.errors import Problem, SuiteError
from whet.evals import EvalSuite, EvalSuiteError, read_manifest, read_suite
from whet.evals.problems import FieldProblem
from whet.formats.document import Document, DocumentError, Node, read_document
from whet.formats.document.peeking import eval_suite_in, is_eval_suite, is_manifest
from whet.formats.evals.cases import lower_case
from whet.formats.evals.ids import case_ids
from whet.model.grade import Location
from whet.model.suite import NO_SKILL, SKILL, Case, Suite
from whet.packages.showing import sources_of

USUAL_TIMEOUT_S = 600.0
# Of a service; on one's own machine a suite may be as long as one likes.
_MOST_CASES = 100_000
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class EvalsFormat:
    """A JSON or YAML file with `cases_json`, or an import manifest."""

    def recognizes(self, path: Path) -> bool:
        """By what is in it."""
        return is_eval_suite(path)

    def lower(self, path: Path) -> Suite:
        """Read the file and check all that can be checked before anything starts."""
        root = _root(path)
        try:
            read = read_manifest if is_manifest(root) else read_suite
            suite = read(root.plain(), most_cases=_MOST_CASES)
        except EvalSuiteError as error:
            raise SuiteError([_placed(path, root, problem) for problem in error.problems]) from None
        problems: list[Problem] = []
        cases = _cases(suite, path, root, problems)
        if problems:
            raise SuiteError(problems)
        return Suite(
            name=suite.name,
            cases=cases,
            source=path,
            digest=hashlib.sha256(path.read_bytes()).hexdigest(),
            variants=(SKILL, NO_SKILL) if suite.supports_no_skill else (SKILL,),
            usual_timeout_s=USUAL_TIMEOUT_S,
            held_out=_held_out(path, cases),
        )


def _root(path: Path) -> Node:
    try:
        document = read_document(path)
    except DocumentError as error:
        place = f"line {error.line}" if error.line else None
        raise SuiteError([Problem(file=str(path), field=place, message=error.message, hint=error.hint)]) from None
    _refuse_repeats(path, document)
    found = eval_suite_in(document.root)
    assert found is not None
    return found


def _refuse_repeats(path: Path, document: Document) -> None:
    problems = [
        Problem(
            file=str(path),
            field=f"line {repeat.line}",
            message=f'has the key "{repeat.key}" a second time; the first is in line {repeat.first}',
            hint="only one of them would count: remove the other",
        )
        for repeat in document.repeats
    ]
    if problems:
        raise SuiteError(problems)


def _cases(suite: EvalSuite, path: Path, root: Node, problems: list[Problem]) -> tuple[Case, ...]:
    def trouble(case: str, field: str, message: str) -> None:
        problems.append(Problem(file=str(path), case=case, field=field, message=message))

    key = "cases" if is_manifest(root) else "cases_json"
    named = enumerate(zip(case_ids(suite.cases), suite.cases, strict=True))
    return tuple(
        replace(
            lower_case(name, case, suite, path.parent, trouble),
            location=Location(file=str(path), line=_line_of(root, f"{key}[{index}]")),
        )
        for index, (name, case) in named
    )


def _held_out(path: Path, cases: tuple[Case, ...]) -> tuple[Path, ...]:
    """The suite itself, and the packages of all of its cases: one may tell the answer of another."""
    packages = (case.workspace.package for case in cases if case.workspace is not None)
    sources = (source for package in packages if package is not None for source in sources_of(package))
    return tuple(dict.fromkeys((path, *sources)))


def _placed(path: Path, root: Node, problem: FieldProblem) -> Problem:
    """The problem with the line where it stands."""
    line = _line_of(root, problem.path)
    field = f"{problem.path} (line {line})" if problem.path else f"line {line}"
    return Problem(file=str(path), field=field, message=problem.message, hint=problem.hint)


def _line_of(root: Node, place: str) -> int:
    """The line of the innermost thing at *place* that is there."""
    node = root
    for name, index in _STEP.findall(place):
        inner: Node | None = None
        if name and isinstance(node.value, Mapping):
            inner = node.value.get(name)
        elif index and isinstance(node.value, tuple) and int(index) < len(node.value):
            inner = node.value[int(index)]
        if inner is None:
            break
        node = inner
    return node.line
