"""The cases of a bench suite, with what they take from its defaults."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from whet.dataclass import dataclass
from whet.errors import Problem, SuiteError
from whet.model.grade import Location
from whet.model.run import folder_name, id_problem
from whet.model.suite import BootstrapSpec, Case, Check, Limits, Suite, WorkspaceSpec
from whet.reading.claim_lines import read_claim
from whet.reading.claim_objects import read_object, write_claim
from whet.reading.claims import Absent, Claim, ClaimError, Exists, Reading
from whet.reading.document_files import SUFFIXES, is_eval_suite, read_document
from whet.reading.documents import Document, DocumentError, Node
from whet.reading.paths import glob_problem, literal_head
from whet.reading.settings_files import find_project
from whet.suites.bench_fields import Fields, Notes, shown, text_problem


def check_protect(given: Fields) -> None:
    """Note the patterns that cannot be used."""
    for pattern, place in _patterns(given):
        if problem := glob_problem(pattern):
            place.note("", problem)


def warn_of_nothing(given: Fields, project: Path) -> None:
    """Tell of patterns that protect nothing, because they begin with a name that the project does not have."""
    for pattern, place in _patterns(given):
        head = literal_head(pattern)
        if head and not glob_problem(pattern) and not os.path.lexists(project / head):
            place.warn("", f'"{pattern}" protects nothing: there is no "{head}" in {project}')


def _patterns(given: Fields) -> Iterator[tuple[str, Fields]]:
    node = given.members.get("protect")
    items = node.value if node is not None and isinstance(node.value, tuple) else ()
    prefix = f"{given.path}." if given.path else ""
    for index, item in enumerate(items):
        if isinstance(item.value, str) and item.value.strip():
            yield item.value, Fields(given.notes, item, f"{prefix}protect[{index}]", given.case)


CASE = ("id", "prompt", "expect", "budget", "timeout", "model", "protect", "tags", "env", "setup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a case has that does not say otherwise; what is protected is so for all of them."""

    budget_usd: float | None = None
    timeout_s: float | None = None
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    setup: str | None = None
    protect: tuple[str, ...] = ()


def lower_cases(top: Fields, defaults: Defaults, project: Path) -> tuple[Case, ...]:
    """The cases of the model, which work in copies of *project*; what is wrong with any of them is noted."""
    check_protect(top)
    node = top.members.get("cases")
    if node is None:
        top.note("cases", "is missing")
        return ()
    if not isinstance(node.value, tuple) or not node.value:
        top.note("cases", "has no cases" if node.value == () else f"must be a list of cases, not {shown(node)}")
        return ()
    written = [_fields(top, index, item) for index, item in enumerate(node.value)]
    _note_clashes(written)
    cases = tuple(_case(each, defaults, project) for each in written if each.is_object())
    # What a setup makes is not there yet.
    if all(case.bootstrap is None for case in cases):
        warn_of_nothing(top, project)
    return cases


def _fields(top: Fields, index: int, item: Node) -> Fields:
    """The fields of a case, called by its id where it has a usable one."""
    identifier = item.value.get("id") if isinstance(item.value, Mapping) else None
    named = identifier is not None and text_problem(identifier) is None and str(identifier.value).isprintable()
    case = str(identifier.value)[:60] if named and identifier else None
    return Fields(top.notes, item, f"cases[{index}]", case)


def _case(given: Fields, defaults: Defaults, project: Path) -> Case:
    given.warn_unknown(CASE)
    check_protect(given)
    identifier = given.text("id", required=True)
    if identifier is not None and (problem := id_problem(identifier)):
        given.note("id", problem)
    env = {**defaults.env, **given.variables("env")}
    setup = given.script("setup") or defaults.setup
    if setup is None:
        warn_of_nothing(given, project)
    return Case(
        id=identifier or "",
        prompt=given.text("prompt", required=True) or "",
        checks=tuple(_checks(given)),
        tags=given.texts("tags"),
        limits=Limits(
            timeout_s=given.seconds("timeout") or defaults.timeout_s,
            budget_usd=given.number("budget") or defaults.budget_usd,
        ),
        model=given.text("model") or defaults.model,
        env=env,
        protect=tuple(dict.fromkeys((*defaults.protect, *given.texts("protect")))),
        bootstrap=BootstrapSpec(command="/bin/sh", args=("-c", setup), env=env) if setup else None,
        location=Location(file=str(given.notes.file), line=given.node.line),
    )


def _checks(given: Fields) -> Iterator[Check]:
    """A check for each expectation."""
    node = given.members.get("expect")
    if node is None:
        given.note("expect", "is missing", 'expect at least one thing, such as "test:npm test"')
        return
    if not isinstance(node.value, tuple):
        given.note("expect", f"must be a list of expectations, not {shown(node)}", "put it into a list")
        return
    if not node.value:
        given.note("expect", "is empty: the case would pass whatever the agent does", 'such as "test:npm test"')
    seen: list[Claim] = []
    for index, item in enumerate(node.value):
        each = Fields(given.notes, item, f"{given.path}.expect[{index}]", given.case)
        reading = _reading(each)
        if reading is None:
            continue
        for warning in (*reading.warnings, *_contradictions(reading.claim, seen)):
            each.warn("", warning)
        seen.append(reading.claim)
        raw = item.value.strip() if isinstance(item.value, str) else write_claim(reading.claim)
        yield Check(grader="claim", params={"claim": reading.claim, "line": item.line}, label=raw)


def _reading(each: Fields) -> Reading | None:
    value = each.node.value
    try:
        if isinstance(value, str):
            return read_claim(value)
        if isinstance(value, Mapping):
            return read_object(each.node.plain())
    except ClaimError as error:
        each.note("", error.message, error.hint)
        return None
    each.note("", f"must be a string or an object, not {shown(each.node)}")
    return None


def _contradictions(claim: Claim, earlier: list[Claim]) -> Iterator[str]:
    if claim in earlier:
        yield "says the same as an expectation before it"
    opposite = Absent if isinstance(claim, Exists) else Exists if isinstance(claim, Absent) else None
    if opposite is not None and isinstance(claim, Exists | Absent) and opposite(claim.path) in earlier:
        yield "can never hold together with an expectation before it"


def _note_clashes(written: list[Fields]) -> None:
    """Ids that are the same, or would be the same folder, also where letter case does not count."""
    first: dict[str, tuple[Fields, str]] = {}
    for each in written:
        node = each.members.get("id")
        if node is None or not isinstance(node.value, str) or not node.value.strip():
            continue
        earlier, identifier = first.setdefault(folder_name(node.value).casefold(), (each, node.value))
        if earlier is each:
            continue
        if identifier == node.value:
            each.note("id", f"is the id of {earlier.path} (line {earlier.node.line}) too", "give each case its own")
        else:
            each.note("id", f'would share the folder "{folder_name(node.value)}" with {earlier.path}, "{identifier}"')


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
