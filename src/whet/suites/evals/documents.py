"""The documents of eval suites: read a suite or a change to one, write one, and see what it needs to run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import SuiteError
from whet.model.eval_cases import (
    LONGEST_TEXT,
    MOST_CASES,
    SOURCE_KINDS,
    VERIFIER_KINDS,
    Assertion,
    CaseKind,
    EvalCase,
    EvalSuite,
    EvalTurn,
    ExactMatch,
    JudgeHints,
    ResourceHints,
    RubricItem,
    SuiteKind,
    TaskPackage,
    VerifierKind,
)
from whet.model.run import id_problem
from whet.model.suite import Pairwise, Solution, User
from whet.reading.fields import Fields, Findings, unsound
from whet.reading.text import shown
from whet.suites.evals._cases import read_case
from whet.suites.format import note_shared_ids

CHANGEABLE = ("name", "verifier_kind", "supports_no_skill", "resource_limits_json", "cases_json")
PROVENANCE = ("source_id", "source_kind")
# What a service adds to a suite, so that a document from a service can be sent back unchanged.
ADDED = ("id", "version", "suite_kind", "runnable", "not_runnable_reasons", "created_at", "updated_at")
MANIFEST = ("name", "supports_no_skill", "resource_limits_json", "cases")
_ALWAYS_ALLOWED = ("$schema",)
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


class EvalSuitePatch(Struct, frozen=True, kw_only=True):
    """A change to a suite; `None` leaves a field as it is."""

    name: str | None = None
    verifier_kind: VerifierKind | None = None
    supports_no_skill: bool | None = None
    resource_limits: Mapping[str, Any] | None = None
    cases: tuple[EvalCase, ...] | None = None

    def apply(self, suite: EvalSuite) -> EvalSuite:
        """Return *suite* with the change made to it."""
        changes = {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name) is not None}
        return replace(suite, **changes)


def read_suite(
    value: object, *, remote_only: bool = False, most_cases: int = MOST_CASES, findings: Findings | None = None
) -> EvalSuite:
    """Return the suite that a JSON value describes; raises `SuiteError` with all of its problems.

    With *remote_only*, packages must be at an address, because a service must not read its own files. *findings*
    knows the file and the lines.
    """
    fields = read_root(value, findings)
    fields.refuse_unknown((*CHANGEABLE, *PROVENANCE, *ADDED, *_ALWAYS_ALLOWED))
    suite = EvalSuite(
        source_id=_source_id(fields),
        name=_name(fields) or "",
        source_kind=fields.choice("source_kind", SOURCE_KINDS, required=True) or "manual",
        verifier_kind=fields.choice("verifier_kind", VERIFIER_KINDS, required=True) or "deterministic",
        supports_no_skill=fields.flag("supports_no_skill", default=False),
        resource_limits=_resource_limits(fields),
        cases=_cases(fields, "cases_json", remote_only=remote_only, most=most_cases),
    )
    _raise_if_any(fields.findings)
    return suite


def read_manifest(value: object, *, most_cases: int = MOST_CASES, findings: Findings | None = None) -> EvalSuite:
    """Return the suite of an import manifest: task packages under `cases`, imported and deterministic."""
    fields = read_root(value, findings)
    fields.refuse_unknown((*MANIFEST, *_ALWAYS_ALLOWED))
    cases = _cases(_packages(fields), "cases", remote_only=False, most=most_cases)
    suite = EvalSuite(
        name=_name(fields) or "",
        source_kind="imported",
        verifier_kind="deterministic",
        supports_no_skill=fields.flag("supports_no_skill", default=False),
        resource_limits=_resource_limits(fields),
        cases=cases,
    )
    _raise_if_any(fields.findings)
    return suite


def read_patch(value: object, *, remote_only: bool = False, most_cases: int = MOST_CASES) -> EvalSuitePatch:
    """Return the change that a JSON value describes; provenance cannot be changed."""
    fields = read_root(value)
    for name in PROVENANCE:
        if name in fields.values:
            fields.problem(name, "cannot be changed: make a new suite")
    fields.refuse_unknown((*CHANGEABLE, *PROVENANCE))
    for name in CHANGEABLE:
        if name in fields.values and fields.values[name] is None:
            fields.problem(name, "must not be null: leave it out to keep it as it is")
    names = {name for name in CHANGEABLE if fields.given(name) is not None}
    patch = EvalSuitePatch(
        name=_name(fields) if "name" in names else None,
        verifier_kind=fields.choice("verifier_kind", VERIFIER_KINDS),
        supports_no_skill=fields.flag("supports_no_skill", default=False) if "supports_no_skill" in names else None,
        resource_limits=_resource_limits(fields) if "resource_limits_json" in names else None,
        cases=_cases(fields, "cases_json", remote_only=remote_only, most=most_cases) if "cases_json" in names else None,
    )
    _raise_if_any(fields.findings)
    return patch


def read_root(value: object, findings: Findings | None = None) -> Fields:
    """Return the fields of the document, once all of it can be stored."""
    findings = findings or Findings()
    findings.longest_text = LONGEST_TEXT
    findings.problems += (findings.at(path, message) for path, message in unsound(value))
    _raise_if_any(findings)
    fields = Fields({}, findings).object("", value)
    _raise_if_any(findings)
    return fields


def _raise_if_any(findings: Findings) -> None:
    if findings.problems:
        raise SuiteError(findings.problems)


def _name(fields: Fields) -> str | None:
    return fields.checked("name", fields.text("name", required=True), id_problem)


def _source_id(fields: Fields) -> str | None:
    text = fields.text("source_id")
    if text is None:
        return None
    if not _UUID.fullmatch(text):
        fields.problem("source_id", f"must be a UUID, not {shown(text)}; it may be left out")
        return None
    return str(UUID(text))


def _resource_limits(fields: Fields) -> Mapping[str, Any]:
    limits = fields.table("resource_limits_json")
    limits.number("timeout_ms", above=0)
    return {name: value for name, value in limits.values.items() if value is not None}


def _packages(fields: Fields) -> Fields:
    """Return the manifest with its cases as a suite has them: all of the kind `task_package`."""
    cases = fields.values.get("cases")
    if not isinstance(cases, list | tuple):
        return fields
    packages = [{"case_kind": TaskPackage.kind, **case} if isinstance(case, Mapping) else case for case in cases]
    for index, case in enumerate(packages):
        if isinstance(case, Mapping) and case["case_kind"] != TaskPackage.kind:
            fields.problem(f"cases[{index}].case_kind", f"must be {TaskPackage.kind} in an import manifest")
    return Fields({**fields.values, "cases": packages}, fields.findings)


def _cases(suite_fields: Fields, name: str, *, remote_only: bool, most: int) -> tuple[EvalCase, ...]:
    value = suite_fields.given(name)
    if value is None:
        suite_fields.problem(name, "is missing")
    elif isinstance(value, list | tuple) and not 1 <= len(value) <= most:
        suite_fields.problem(name, f"must have from 1 to {most} cases, not {len(value)}")
        return ()
    cases: list[EvalCase] = []
    ids: list[tuple[Fields, str, str]] = []
    for place, item in suite_fields.items(name):
        fields = suite_fields.object(place, item)
        case = read_case(fields, remote_only=remote_only) if isinstance(item, Mapping) else None
        if case is not None:
            cases.append(case)
        if case is not None and case.task_id is not None:
            ids.append((fields, "id" if fields.given("task_id") is None else "task_id", case.task_id))
    note_shared_ids(ids)
    return tuple(cases)


def to_json(suite: EvalSuite) -> dict[str, Any]:
    """Return the document of *suite*; fields that decide a grade are written also if they have their default."""
    return {
        **({"source_id": suite.source_id} if suite.source_id else {}),
        "name": suite.name,
        "source_kind": suite.source_kind,
        "verifier_kind": suite.verifier_kind,
        "supports_no_skill": suite.supports_no_skill,
        **({"resource_limits_json": dict(suite.resource_limits)} if suite.resource_limits else {}),
        "cases_json": [case_to_json(case) for case in suite.cases],
    }


def case_to_json(case: EvalCase) -> dict[str, Any]:
    """Return the object of *case* in its document."""
    document = _object(case, _LEFT_OUT)
    if isinstance(case, ExactMatch):
        # Also null, which is a value like any other.
        document["expected"] = case.expected
    if "turns" in document:
        # The instruction is the first of the turns.
        del document["instruction"]
    return {"case_kind": case.kind, **document}


# What need not be written, besides None and an empty list: the defaults of fields that do not decide a grade.
_LEFT_OUT = {"weight": 1.0, "inputs": {}, "judge": JudgeHints(), "resource_hints": ResourceHints()}


def _object(value: Any, left_out: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return the fields of *value* that say something."""
    values = {name: getattr(value, name) for name in value.__struct_fields__}
    return {
        name: _plain(item)
        for name, item in values.items()
        if item is not None and item != () and not (name in left_out and item == left_out[name])
    }


def _plain(value: Any) -> Any:
    match value:
        case tuple():
            return [_plain(item) for item in value]
        case Assertion():
            document = _object(value, {"has_value": value.has_value, "negate": False, "pattern": False})
            return {**document, "value": value.value} if value.has_value else document
        case ResourceHints():
            return {**_object(value, {"env": {}, "network": False, "more": value.more}), **value.more}
        case Solution():
            return value.answer if value.run is None else {"run": value.run}
        case RubricItem() | JudgeHints() | User() | EvalTurn() | Pairwise():
            # Not where a stored answer was read from: it is in the document.
            place = getattr(value, "reference_file", None)
            return _object(value, {"soft": False, "majority": False, "reference_file": place})
        case _:
            return dict(value) if isinstance(value, Mapping) else value


FAMILIES: Mapping[VerifierKind, frozenset[CaseKind]] = {
    "llm_judge": frozenset({"trigger_query", "llm_rubric"}),
    "deterministic": frozenset({"exact_match", "json_schema", "boolean_assertion", "task_package"}),
    "structured_rubric": frozenset(),
}


# What a service must have to run a suite: an agent, a judge, and the buckets of packages by their scheme.
Need = Literal["agent", "judge", "r2", "s3", "network"]
_BUCKETS: tuple[Need, ...] = ("r2", "s3")
# Without an agent, a judge decides the first and the verifier alone decides the second.
WITHOUT_AGENT: frozenset[CaseKind] = frozenset({"trigger_query", "task_package"})


def needs_of(suite: EvalSuite, *, agent: bool = True) -> tuple[Need, ...]:
    """Return what the suite needs to run; without an *agent*, a judge decides whether a skill is triggered."""
    needs: list[Need] = []
    for case in suite.cases:
        if case.kind not in WITHOUT_AGENT:
            needs.append("agent")
        if case.kind == "llm_rubric" or (case.kind == "trigger_query" and not agent):
            needs.append("judge")
        if isinstance(case, TaskPackage):
            scheme = case.environment_ref.partition("://")[0].lower()
            needs += [need for need in _BUCKETS if need == scheme]
            needs += ["network"] if case.resource_hints.network else []
    return tuple(sorted(set(needs)))


def suite_kind(cases: Sequence[EvalCase]) -> SuiteKind:
    """Return the kind that all cases have, or `mixed`."""
    kinds = {case.kind for case in cases}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def not_runnable_reasons(suite: EvalSuite) -> tuple[str, ...]:
    """Return why a service does not run the suite. The command line runs whatever can run."""
    reasons: list[str] = []
    if suite.source_kind not in {"manual", "imported"}:
        reasons.append(f"source_kind {suite.source_kind} is not runnable; manual and imported are")
    if suite.source_kind == "imported":
        if suite.verifier_kind != "deterministic":
            reasons.append(f"an imported suite must be deterministic, not {suite.verifier_kind}")
        if suite_kind(suite.cases) != "task_package":
            reasons.append("every case of an imported suite must be a task_package")
    if suite.verifier_kind == "structured_rubric":
        reasons.append("verifier_kind structured_rubric is not runnable; llm_judge and deterministic are")
    else:
        reasons += _outside_family(suite)
    return tuple(reasons)


def _outside_family(suite: EvalSuite) -> list[str]:
    """Return a line for each kind that the suite's verifier does not decide, with its place."""
    places: dict[str, list[int]] = {}
    for index, case in enumerate(suite.cases):
        if case.kind not in FAMILIES[suite.verifier_kind]:
            places.setdefault(case.kind, []).append(index)
    return [
        f"verifier_kind {suite.verifier_kind} does not allow {kind} (cases_json[{indexes[0]}]"
        + (f" and {len(indexes) - 1} more)" if len(indexes) > 1 else ")")
        for kind, indexes in places.items()
    ]


def suite_schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    schema = json.loads(files("whet.suites").joinpath("suite.schema.json").read_text("utf-8"))
    assert isinstance(schema, dict)
    return schema
