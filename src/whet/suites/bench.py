"""The bench format: a suite of prompts and expectations in a JSON or YAML file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import ClaimError, SuiteError
from whet.model.grade import Location
from whet.model.run import id_problem
from whet.model.suite import BootstrapSpec, Case, Check, Limits, Suite, User, WorkspaceSpec
from whet.reading.claim_lines import read_claim
from whet.reading.claim_objects import read_object, write_claim
from whet.reading.claims import Absent, Claim, Exists, Reading
from whet.reading.document_files import document_format, read_document
from whet.reading.documents import Document, DocumentError
from whet.reading.fields import Fields, Findings, is_portable
from whet.reading.paths import glob_problem, literal_head
from whet.reading.settings_files import find_project
from whet.reading.text import shorten, shown
from whet.suites.conversations import SATISFIED, USER, WrittenTurn, conversation_prompts, read_user
from whet.suites.format import held_out, note_shared_ids, read_check_files, read_script, read_solution

TOP = ("name", "description", "model", "defaults", "protect", "check_files", "cases", "$schema", "version")
DEFAULTS = ("budget", "timeout", "model", "env", "setup")
CASE = (
    *("id", "prompt", "turns", "user", "expect", "budget", "timeout", "model", "protect", "tags", "env", "setup"),
    *("solution", "check_files"),
)
TURN = ("prompt", "expect", "soft")
# Spellings that are too far from the right one to be found by likeness.
_OTHER_WORDS = {
    "budgetusd": "budget",
    "maxcost": "budget",
    "timeoutms": "timeout",
    "timeoutseconds": "timeout",
    "expectations": "expect",
    "assert": "expect",
    "task": "prompt",
    "tests": "cases",
    "bootstrap": "setup",
    "environment": "env",
    "title": "name",
}
USUAL_TIMEOUT_S = 600.0
_LOOKS_LIKE_MS = 10_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BenchFormat:
    """Any `.json`, `.yaml` or `.yml` file."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* ends in one of these, and has no other format."""
        return document_format(path) == "bench"

    def lower(self, path: Path) -> Suite:
        """Read the file, and check all that can be checked without running an agent."""
        document = _document(path)
        # A field that is null says something else than one that is not there.
        findings = Findings(str(path), document.root, null_is_missing=False)
        findings.problems += document.repeat_problems(path)
        suite = _suite(document.root.plain(), path, findings)
        if findings.problems or suite is None:
            raise SuiteError(findings.problems, findings.warnings)
        return suite


def _document(path: Path) -> Document:
    try:
        return read_document(path)
    except DocumentError as error:
        raise SuiteError([error.problem(path)]) from None


def _suite(value: Any, path: Path, findings: Findings) -> Suite | None:
    top = Fields({}, findings).object("", value)
    if not isinstance(value, Mapping):
        return None
    if "cases" not in top.values and "tasks" in top.values:
        top.problem("tasks", "are those of a benchmark for callable skills", f"whet eval --benchmark {path.name}")
        return None
    top.warn_of_unknown(TOP, _OTHER_WORDS)
    name = top.checked("name", top.text("name", required=True), id_problem)
    # Not the current folder, which must not change what is run.
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
        warnings=tuple(findings.warnings),
        held_out=held_out(path, cases),
    )


def _defaults(top: Fields) -> Defaults:
    model = top.text("model")
    protect = top.texts("protect", reason=glob_problem)
    given = top.table("defaults")
    given.warn_of_unknown(DEFAULTS, _OTHER_WORDS)
    return Defaults(
        budget_usd=_amount(given, "budget"),
        timeout_s=_seconds(given, "timeout"),
        model=given.text("model") or model,
        env=given.variables("env", _VARIABLE),
        setup=read_script(given, "setup"),
        protect=protect,
        check_files=read_check_files(top, Path(top.findings.file)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The values of cases that do not set their own; `protect` and `check_files` are added to those of each case."""

    budget_usd: float | None = None
    timeout_s: float | None = None
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    setup: str | None = None
    protect: tuple[str, ...] = ()
    check_files: tuple[Path, ...] = ()


def lower_cases(top: Fields, defaults: Defaults, project: Path) -> tuple[Case, ...]:
    """Return the cases of the model, which work in copies of *project*; note their problems."""
    if "cases" not in top.values:
        top.problem("cases", "is missing")
        return ()
    given = top.given("cases")
    if not isinstance(given, list) or not given:
        top.problem("cases", "has no cases" if given == [] else f"must be a list of cases, not {shown(given)}")
        return ()
    written = [_fields(top, place, item) for place, item in top.items("cases")]
    ids = ((each, "id", each.given("id")) for each in written)
    note_shared_ids(each for each in ids if isinstance(each[2], str) and each[2].strip())
    cases = tuple(
        _case(each, defaults, project) for each, item in zip(written, given, strict=True) if isinstance(item, Mapping)
    )
    # What a setup makes does not exist yet.
    if all(case.bootstrap is None for case in cases):
        _warn_of_nothing(top, project)
    return cases


def _fields(top: Fields, place: str, item: Any) -> Fields:
    """Return the fields of a case, with its id as its name if it has a usable one."""
    name = item.get("id") if isinstance(item, Mapping) else None
    named = isinstance(name, str) and name.strip() and name.isprintable() and is_portable(name)
    fields = top.object(place, item)
    return replace(fields, case=shorten(name)) if named and isinstance(name, str) else fields


def _case(given: Fields, defaults: Defaults, project: Path) -> Case:
    given.warn_of_unknown(CASE, _OTHER_WORDS)
    identifier = given.checked("id", given.text("id", required=True), id_problem)
    env = {**defaults.env, **given.variables("env", _VARIABLE)}
    setup = read_script(given, "setup") or defaults.setup
    if setup is None:
        _warn_of_nothing(given, project)
    turns = tuple(_turns(given))
    prompts = conversation_prompts(given, turns)
    checked = [check for turn in turns for check in turn.checks]
    return Case(
        id=identifier or "",
        prompt=prompts[0],
        then=prompts[1:],
        user=_user(given),
        checks=(*checked, *_checks(given, required=not checked), *((SATISFIED,) if given.given("user") else ())),
        tags=tuple(dict.fromkeys(given.texts("tags"))),
        limits=Limits(
            timeout_s=_seconds(given, "timeout") or defaults.timeout_s,
            budget_usd=_amount(given, "budget") or defaults.budget_usd,
        ),
        model=given.text("model") or defaults.model,
        env=env,
        protect=tuple(dict.fromkeys((*defaults.protect, *given.texts("protect", reason=glob_problem)))),
        bootstrap=BootstrapSpec(command="/bin/sh", args=("-c", setup), env=env) if setup else None,
        solution=read_solution(given),
        check_files=tuple(dict.fromkeys((*defaults.check_files, *read_check_files(given, Path(given.findings.file))))),
        location=Location(file=given.findings.file, line=given.findings.line(given.path)),
    )


def _turns(given: Fields) -> Iterator[WrittenTurn]:
    """Yield the turns of a conversation: texts, and objects with expectations of their own."""
    for number, (place, item) in enumerate(given.items("turns"), 1):
        if isinstance(item, str):
            yield WrittenTurn(prompt=given.text_at(place, item) or "")
            continue
        turn = given.object(place, item)
        turn.warn_of_unknown(TURN, _OTHER_WORDS)
        soft = turn.flag("soft")
        checks = (replace(check, turn=number, soft=soft) for check in _checks(turn, required=False))
        yield WrittenTurn(prompt=turn.text("prompt", required=isinstance(item, Mapping)) or "", checks=tuple(checks))


def _user(given: Fields) -> User | None:
    if given.given("user") is None:
        return None
    user = given.table("user")
    user.warn_of_unknown(USER)
    return read_user(user)


def _checks(given: Fields, *, required: bool) -> Iterator[Check]:
    """Yield a check for each expectation."""
    if not given.has("expect", required=required, hint='write at least one, such as "test:npm test"'):
        return
    expected = given.given("expect")
    if not isinstance(expected, list):
        given.problem("expect", f"must be a list of expectations, not {shown(expected)}", "put it into a list")
        return
    if not expected:
        given.problem("expect", "is empty: the case would pass whatever the agent does", 'such as "test:npm test"')
    seen: list[Claim] = []
    for place, item in given.items("expect"):
        reading = _reading(given, place, item)
        if reading is None:
            continue
        for warning in (*reading.warnings, *_contradictions(reading.claim, seen)):
            given.warn(place, warning)
        seen.append(reading.claim)
        raw = item.strip() if isinstance(item, str) else write_claim(reading.claim)
        line = given.findings.line(given.place(place))
        yield Check(grader="claim", params={"claim": reading.claim, "line": line}, label=raw)


def _reading(given: Fields, place: str, item: Any) -> Reading | None:
    try:
        if isinstance(item, str):
            return read_claim(item)
        if isinstance(item, Mapping):
            return read_object(item)
    except ClaimError as error:
        given.problem(place, error.message, error.hint)
        return None
    given.problem(place, f"must be a string or an object, not {given.shown(place, item)}")
    return None


def _contradictions(claim: Claim, earlier: list[Claim]) -> Iterator[str]:
    if claim in earlier:
        yield "says the same as an expectation before it"
    opposite = Absent if isinstance(claim, Exists) else Exists if isinstance(claim, Absent) else None
    if opposite is not None and isinstance(claim, Exists | Absent) and opposite(claim.path) in earlier:
        yield "can never hold together with an expectation before it"


def _amount(given: Fields, name: str) -> float | None:
    value = given.number(name, above=0)
    return None if value is None else float(value)


def _seconds(given: Fields, name: str) -> float | None:
    """Read a time limit; warn of one of hours, which is more likely one in milliseconds."""
    value = _amount(given, name)
    if value is not None and value >= _LOOKS_LIKE_MS:
        given.warn(name, f"is {value:g} seconds, which looks like milliseconds", f"write {value / 1000:g}")
    return value


def _warn_of_nothing(given: Fields, project: Path) -> None:
    """Warn of patterns that protect nothing, because they begin with a name that the project does not have."""
    items = given.given("protect")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        head = literal_head(item) if isinstance(item, str) and not glob_problem(item) else ""
        if head and not os.path.lexists(project / head):
            given.warn(f"protect[{index}]", f'"{item}" protects nothing: there is no "{head}" in {project}')
