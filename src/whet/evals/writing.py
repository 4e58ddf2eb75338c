"""Writing an eval suite as the document that reads back to the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from whet.evals.kinds import Assertion, BooleanAssertion, EvalCase, EvalSuite, ResourceHints, RubricItem


def to_json(suite: EvalSuite) -> dict[str, Any]:
    """The document of *suite*; what decides how a case is graded is said also where it is the default."""
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
    """The object of *case* in its document."""
    told: dict[str, Any] = {"case_kind": case.kind}
    for each in fields(case):
        value = getattr(case, each.name)
        if each.name == "assertions" and isinstance(case, BooleanAssertion):
            told["assertions"] = [_assertion(item) for item in case.assertions]
        elif each.name == "resource_hints":
            told |= {"resource_hints": _hints(value)} if value != ResourceHints() else {}
        elif each.name == "judge":
            told |= {"judge": _without_none(value)} if _without_none(value) else {}
        elif each.name == "expected" or not _says_nothing(each.name, value):
            told[each.name] = _plain(value)
    return told


def _says_nothing(name: str, value: Any) -> bool:
    """Whether leaving the field out says the same."""
    return value is None or value == () or (name == "weight" and value == 1.0) or (name == "inputs" and not value)


def _plain(value: Any) -> Any:
    match value:
        case tuple():
            return [_plain(item) for item in value]
        case RubricItem():
            return _without_none(value)
        case Mapping():
            return dict(value)
        case _:
            return value


def _without_none(value: Any) -> dict[str, Any]:
    told = {each.name: getattr(value, each.name) for each in fields(value)}
    return {name: item for name, item in told.items() if item is not None}


def _assertion(assertion: Assertion) -> dict[str, Any]:
    told = _without_none(assertion)
    del told["has_value"]
    if assertion.has_value:
        told["value"] = assertion.value
    if not assertion.negate:
        del told["negate"]
    return told


def _hints(hints: ResourceHints) -> dict[str, Any]:
    told = _without_none(hints)
    more = told.pop("more")
    if not told["env"]:
        del told["env"]
    if not told["network"]:
        del told["network"]
    return {**told, **more}
