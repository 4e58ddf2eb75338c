"""Compare answers: pure functions from an output and an expectation to a grade."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from whet.errors import GraderError
from whet.model.benchmark import Evaluator, EvaluatorKind, Expected
from whet.model.grade import Grade
from whet.reading.fields import is_number
from whet.reading.schemas import SchemaTrouble, schema_problems
from whet.reading.text import shown

# Many skills wrap their answer in an object; the first of these names counts.
WRAPPERS = ("result", "output", "answer")


def unwrapped(output: Any) -> Any:
    """Return the value of `result`, `output` or `answer` in an object, or else *output* itself."""
    names = [name for name in WRAPPERS if isinstance(output, dict) and name in output]
    return output[names[0]] if names else output


def as_text(value: Any) -> str:
    """Return a string as it is, and anything else as JSON; 25.0 becomes 25, as in most languages."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def searchable(output: Any) -> str:
    """Return the text to search for words, without the names of the fields of a wrapped answer.

    A skill that answers `{"result": ""}` has not said the word "result".
    """
    if isinstance(output, dict) and any(name in output for name in WRAPPERS):
        return "\n".join(as_text(value) for value in output.values())
    return as_text(output)


_NUMBER = re.compile(r"[-+]?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
Plain = Callable[[Any, Expected, Evaluator], Grade]


def exact(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """Accept the same JSON value, as a whole or unwrapped; with `compare` "text", the same text."""
    wanted, given = expected.value, unwrapped(output)
    if evaluator.compare == "text":
        texts = as_text(given).strip(), as_text(wanted).strip()
        held = _folded(texts[0], evaluator) == _folded(texts[1], evaluator) or _same_number(texts[0], wanted)
    else:
        held = same(wanted, output, evaluator) or same(wanted, given, evaluator)
    if held:
        return _grade("exact", 1.0, "as expected")
    reason = f"expected {shown(wanted, 200)} ({_type(wanted)}), got {shown(given, 200)} ({_type(given)})"
    if evaluator.compare == "json" and as_text(given).strip() == as_text(wanted).strip():
        reason += '; their texts are the same, which "compare": "text" would accept'
    return _grade("exact", 0.0, reason)


def _same_number(text: str, wanted: Any) -> bool:
    """Return whether *text* is the number that is wanted: "25.0" is 25."""
    return is_number(wanted) and bool(_NUMBER.fullmatch(text)) and Decimal(text) == Decimal(repr(wanted))


def contains(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """Return the share of keywords that are in the answer."""
    text = _folded(searchable(output), evaluator)
    return _share("contains", expected.keywords, [_folded(word, evaluator) in text for word in expected.keywords])


def regex(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """Return the share of patterns that match; call it in a worker, because a search may never end."""
    text, flags = searchable(output), re.NOFLAG if evaluator.case_sensitive else re.IGNORECASE
    found = [re.search(pattern, text, flags) is not None for pattern in expected.patterns]
    return _share("regex", expected.patterns, found)


def json_schema(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """Accept an answer that the schema allows; if it does not allow a string, reads the string as JSON."""
    del evaluator
    try:
        problems = schema_problems(expected.schema, output)
        if problems and isinstance(output, str):
            problems = schema_problems(expected.schema, json.loads(output))
    except SchemaTrouble as error:
        raise GraderError(f"the schema of this task cannot be used: {error}") from error
    except (ValueError, RecursionError):
        # A string that is not JSON: the problems of the string itself count.
        pass
    return _grade("json_schema", 0.0 if problems else 1.0, "; ".join(problems) or "it matches the schema")


PLAIN: Mapping[EvaluatorKind, Plain] = {
    "exact": exact,
    "contains": contains,
    "regex": regex,
    "json_schema": json_schema,
}


def same(wanted: Any, given: Any, evaluator: Evaluator) -> bool:
    """Return whether two JSON values are equal: 1 and 1.0 are; 1 and true are not, nor are 1 and "1"."""
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
        reason += f"; missing: {', '.join(shown(word, 200) for word in missing)}"
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
