"""The bench format: a suite of prompts and expectations in a JSON or YAML file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import ClaimError, Problem, SuiteError
from whet.model.grade import Location
from whet.model.run import id_problem
from whet.model.suite import BootstrapSpec, Case, Check, Limits, Suite, User, WorkspaceSpec
from whet.reading.claims.forms import Absent, Claim, Exists, ParsedClaim
from whet.reading.claims.lines import read_claim
from whet.reading.claims.objects import read_object, write_claim
from whet.reading.documents import Document, DocumentError
from whet.reading.fields import Fields, Findings, is_portable
from whet.reading.paths import glob_problem, literal_head
from whet.reading.text import path_for_people, shorten, shown
from whet.reading.toml import find_project
from whet.reading.yaml import read_document
from whet.suites.conversation import SATISFIED, USER, WrittenTurn, conversation_prompts, read_user
from whet.suites.document_formats import document_format
from whet.suites.format import held_out, note_shared_ids, read_check_files, read_pairwise, read_script, read_solution
from whet.suites.nearest import why_unknown
from whet.suites.split.fields import PART_FIELDS, read_source, read_split

TOP = ("name", "description", "model", "defaults", "protect", "check_files", "cases", "$schema", "version")
DEFAULTS = ("budget", "timeout", "model", "env", "setup")
CASE = (
    *("id", "prompt", "turns", "user", "expect", "budget", "timeout", "model", "protect", "tags", "env", "setup"),
    *("solution", "pairwise", "check_files", *PART_FIELDS),
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
    """Any `.json`, `.yaml` or `.yml` file that no other format takes."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* has such an ending, and no built-in format takes it."""
        return document_format(path) == "bench"

    def lower(self, path: Path) -> Suite:
        """Read the file, and check all that can be checked without running an agent."""
        document = _document(path)
        value = document.root.plain()
        if (reason := why_unknown(value)) is not None:
            raise SuiteError([Problem(file=str(path), message=reason)])
        # A field that is null says something else than one that is not there.
        findings = Findings(str(path), document.root, null_is_missing=False)
        findings.problems += document.repeat_problems(path)
        suite = _suite(value, path, findings)
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
        top.problem(
            "tasks",
            "are those of a benchmark for callable skills",
            f"whet eval SKILL --benchmark {path_for_people(path, Path.cwd())}",
        )
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
    fields = top.table("defaults")
    fields.warn_of_unknown(DEFAULTS, _OTHER_WORDS)
    return Defaults(
        budget_usd=_amount(fields, "budget"),
        timeout_s=_seconds(fields, "timeout"),
        model=fields.text("model") or model,
        env=fields.variables("env", _VARIABLE),
        setup=read_script(fields, "setup"),
        protect=protect,
        check_files=read_check_files(top, Path(top.findings.file)),
    )


class Defaults(Struct, frozen=True, kw_only=True):
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
    entries = top.given("cases")
    if not isinstance(entries, list) or not entries:
        top.problem("cases", "has no cases" if entries == [] else f"must be a list of cases, not {shown(entries)}")
        return ()
    case_fields = [_fields(top, place, item) for place, item in top.items("cases")]
    ids = ((fields, "id", fields.given("id")) for fields in case_fields)
    note_shared_ids(fields for fields in ids if isinstance(fields[2], str) and fields[2].strip())
    cases = tuple(
        _case(fields, defaults, project)
        for fields, item in zip(case_fields, entries, strict=True)
        if isinstance(item, Mapping)
    )
    # What a setup makes does not exist yet.
    if all(case.bootstrap is None for case in cases):
        _warn_of_nothing(top, project)
    return cases


def _fields(top: Fields, place: str, item: Any) -> Fields:
    """Return the fields of a case, with its id as its name if it has a usable one."""
    name = item.get("id") if isinstance(item, Mapping) else None
    has_usable_name = isinstance(name, str) and name.strip() and name.isprintable() and is_portable(name)
    fields = top.object(place, item)
    return replace(fields, case=shorten(name)) if has_usable_name and isinstance(name, str) else fields


def _case(fields: Fields, defaults: Defaults, project: Path) -> Case:
    fields.warn_of_unknown(CASE, _OTHER_WORDS)
    identifier = fields.checked("id", fields.text("id", required=True), id_problem)
    env = {**defaults.env, **fields.variables("env", _VARIABLE)}
    setup = read_script(fields, "setup") or defaults.setup
    if setup is None:
        _warn_of_nothing(fields, project)
    turns = tuple(_turns(fields))
    prompts = conversation_prompts(fields, turns)
    turn_checks = [check for turn in turns for check in turn.checks]
    return Case(
        id=identifier or "",
        prompt=prompts[0],
        then=prompts[1:],
        user=_user(fields),
        checks=(
            *turn_checks,
            *_checks(fields, required=not turn_checks),
            *((SATISFIED,) if fields.given("user") else ()),
        ),
        tags=tuple(dict.fromkeys(fields.texts("tags"))),
        limits=Limits(
            timeout_s=_seconds(fields, "timeout") or defaults.timeout_s,
            budget_usd=_amount(fields, "budget") or defaults.budget_usd,
        ),
        model=fields.text("model") or defaults.model,
        env=env,
        protect=tuple(dict.fromkeys((*defaults.protect, *fields.texts("protect", reason=glob_problem)))),
        bootstrap=BootstrapSpec(command="/bin/sh", args=("-c", setup), env=env) if setup else None,
        solution=read_solution(fields),
        pairwise=read_pairwise(fields, Path(fields.findings.file).parent),
        check_files=tuple(
            dict.fromkeys((*defaults.check_files, *read_check_files(fields, Path(fields.findings.file))))
        ),
        location=Location(file=fields.findings.file, line=fields.findings.line(fields.path)),
        split=read_split(fields),
        source=read_source(fields),
    )


def _turns(fields: Fields) -> Iterator[WrittenTurn]:
    """Yield the turns of a conversation: texts, and objects with expectations of their own."""
    for number, (place, item) in enumerate(fields.items("turns"), 1):
        if isinstance(item, str):
            yield WrittenTurn(prompt=fields.text_at(place, item) or "")
            continue
        turn = fields.object(place, item)
        turn.warn_of_unknown(TURN, _OTHER_WORDS)
        soft = turn.flag("soft")
        checks = (replace(check, turn=number, soft=soft) for check in _checks(turn, required=False))
        yield WrittenTurn(prompt=turn.text("prompt", required=isinstance(item, Mapping)) or "", checks=tuple(checks))


def _user(fields: Fields) -> User | None:
    if fields.given("user") is None:
        return None
    user = fields.table("user")
    user.warn_of_unknown(USER)
    return read_user(user)


def _checks(fields: Fields, *, required: bool) -> Iterator[Check]:
    """Yield a check for each expectation."""
    if not fields.has("expect", required=required, hint='write at least one, such as "test:npm test"'):
        return
    expectations = fields.given("expect")
    if not isinstance(expectations, list):
        fields.problem("expect", f"must be a list of expectations, not {shown(expectations)}", "put it into a list")
        return
    if not expectations:
        fields.problem("expect", "is empty: the case would pass whatever the agent does", 'such as "test:npm test"')
    claims: list[Claim] = []
    for place, item in fields.items("expect"):
        reading = _reading(fields, place, item)
        if reading is None:
            continue
        for warning in (*reading.warnings, *_contradictions(reading.claim, claims)):
            fields.warn(place, warning)
        claims.append(reading.claim)
        raw = item.strip() if isinstance(item, str) else write_claim(reading.claim)
        line = fields.findings.line(fields.place(place))
        yield Check(grader="claim", params={"claim": reading.claim, "line": line}, label=raw)


def _reading(fields: Fields, place: str, item: Any) -> ParsedClaim | None:
    try:
        if isinstance(item, str):
            return read_claim(item)
        if isinstance(item, Mapping):
            return read_object(item)
    except ClaimError as error:
        fields.problem(place, error.message, error.hint)
        return None
    fields.problem(place, f"must be a string or an object, not {fields.shown(place, item)}")
    return None


def _contradictions(claim: Claim, earlier: list[Claim]) -> Iterator[str]:
    if claim in earlier:
        yield "says the same as an expectation before it"
    if not isinstance(claim, Exists | Absent):
        return
    opposite = Absent(claim.path) if isinstance(claim, Exists) else Exists(claim.path)
    if opposite in earlier:
        yield "can never hold together with an expectation before it"


def _amount(fields: Fields, name: str) -> float | None:
    value = fields.number(name, above=0)
    return None if value is None else float(value)


def _seconds(fields: Fields, name: str) -> float | None:
    """Read a time limit; warn of one of hours, which is more likely one in milliseconds."""
    value = _amount(fields, name)
    if value is not None and value >= _LOOKS_LIKE_MS:
        fields.warn(name, f"is {value:g} seconds, which looks like milliseconds", f"write {value / 1000:g}")
    return value


def _warn_of_nothing(fields: Fields, project: Path) -> None:
    """Warn of patterns that protect nothing, because they begin with a name that the project does not have."""
    items = fields.given("protect")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        head = literal_head(item) if isinstance(item, str) and not glob_problem(item) else ""
        if head and not os.path.lexists(project / head):
            fields.warn(f"protect[{index}]", f'"{item}" protects nothing: there is no "{head}" in {project}')
