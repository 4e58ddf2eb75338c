"""Evaluators that need nothing but the answer: pure functions from an output to a grade."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from whet.errors import GraderError
from whet.grade.evaluate.answer import as_text, searchable, shortened, unwrapped
from whet.model.benchmark import Evaluator, EvaluatorKind, Expected
from whet.model.grade import Grade
from whet.numbers import is_number
from whet.schemas import SchemaTrouble, schema_problems

_NUMBER = re.compile(r"[-+]?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
Plain = Callable[[Any, Expected, Evaluator], Grade]


def exact(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """The same JSON value, as a whole or unwrapped; with `compare` "text", the same text."""
    wanted, given = expected.value, unwrapped(output)
    if evaluator.compare == "text":
        texts = as_text(given).strip(), as_text(wanted).strip()
        held = _folded(texts[0], evaluator) == _folded(texts[1], evaluator) or _same_number(texts[0], wanted)
    else:
        held = same(wanted, output, evaluator) or same(wanted, given, evaluator)
    if held:
        return _grade("exact", 1.0, "as expected")
    reason = f"expected {shortened(wanted)} ({_type(wanted)}), got {shortened(given)} ({_type(given)})"
    if evaluator.compare == "json" and as_text(given).strip() == as_text(wanted).strip():
        reason += '; their texts are the same, which "compare": "text" would accept'
    return _grade("exact", 0.0, reason)


def _same_number(text: str, wanted: Any) -> bool:
    """Whether a text is the number that is wanted: 25 and "25.0" are one."""
    return is_number(wanted) and bool(_NUMBER.fullmatch(text)) and Decimal(text) == Decimal(repr(wanted))


def contains(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """The share of keywords that are in the answer."""
    text = _folded(searchable(output), evaluator)
    return _share("contains", expected.keywords, [_folded(word, evaluator) in text for word in expected.keywords])


def regex(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """The share of patterns that match somewhere in the answer; to be called where it may be ended from outside."""
    text, flags = searchable(output), re.NOFLAG if evaluator.case_sensitive else re.IGNORECASE
    found = [re.search(pattern, text, flags) is not None for pattern in expected.patterns]
    return _share("regex", expected.patterns, found)


def json_schema(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """Whether the schema allows the answer, as a whole; a string is read as JSON where the schema wants none."""
    del evaluator
    try:
        problems = schema_problems(expected.schema, output)
        if problems and isinstance(output, str):
            problems = schema_problems(expected.schema, json.loads(output))
    except SchemaTrouble as error:
        raise GraderError(f"the schema of this task cannot be used: {error}") from error
    except (ValueError, RecursionError):
        # A plain string that is no JSON: the problems with the string itself stand.
        pass
    return _grade("json_schema", 0.0 if problems else 1.0, "; ".join(problems) or "as the schema says")


PLAIN: Mapping[EvaluatorKind, Plain] = {
    "exact": exact,
    "contains": contains,
    "regex": regex,
    "json_schema": json_schema,
}


def same(wanted: Any, given: Any, evaluator: Evaluator) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not, nor is 1 and "1"."""
    if _type(wanted) != _type(given):
        return False
    match wanted:
        case bool() | None:
            equal = wanted is given
        case int() | float():
            equal = wanted == given or abs(wanted - given) <= evaluator.tolerance
        case str():
            equal = _folded(wanted, evaluator) == _folded(given, evaluator)
        case dict():
            equal = wanted.keys() == given.keys() and all(same(wanted[key], given[key], evaluator) for key in wanted)
        case _:
            pairs = zip(wanted, given, strict=False)
            equal = len(wanted) == len(given) and all(same(one, other, evaluator) for one, other in pairs)
    return equal


def _share(kind: EvaluatorKind, wanted: tuple[str, ...], found: list[bool]) -> Grade:
    missing = [word for word, there in zip(wanted, found, strict=True) if not there]
    reason = f"{sum(found)} of {len(found)}"
    if missing:
        reason += f"; missing: {', '.join(map(shortened, missing))}"
    return Grade(check=kind, value=sum(found) / len(found), passed=not missing, reason=reason)


def _grade(kind: EvaluatorKind, value: float, reason: str) -> Grade:
    return Grade(check=kind, value=value, passed=value == 1.0, reason=reason)


def _folded(text: str, evaluator: Evaluator) -> str:
    return text if evaluator.case_sensitive else text.casefold()


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case _:
            return "object"
