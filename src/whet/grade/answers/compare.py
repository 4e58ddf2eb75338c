"""Compare answers: pure functions from an output and an expectation to a grade."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from whet.errors import GraderError
from whet.model.callable import Evaluator, EvaluatorKind, Expected
from whet.model.grade import Grade
from whet.reading.fields import is_number
from whet.reading.schemas import SchemaTrouble, schema_problems
from whet.reading.text import shown

# Many skills wrap their answer in an object; the first of these names counts.
WRAPPERS = ("result", "output", "answer")


def unwrap_answer(output: Any) -> Any:
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
    expected_value, answer = expected.value, unwrap_answer(output)
    if evaluator.compare == "text":
        texts = as_text(answer).strip(), as_text(expected_value).strip()
        is_equal = _fold_case(texts[0], evaluator) == _fold_case(texts[1], evaluator) or _same_number(
            texts[0], expected_value
        )
    else:
        is_equal = values_equal(expected_value, output, evaluator) or values_equal(expected_value, answer, evaluator)
    if is_equal:
        return _grade("exact", 1.0, "as expected")
    reason = (
        f"expected {shown(expected_value, 200)} ({_type(expected_value)}), got {shown(answer, 200)} ({_type(answer)})"
    )
    if evaluator.compare == "json" and as_text(answer).strip() == as_text(expected_value).strip():
        reason += '; their texts are the same, which "compare": "text" would accept'
    return _grade("exact", 0.0, reason)


def _same_number(text: str, expected_number: Any) -> bool:
    """Return whether *text* is the number that is wanted: "25.0" is 25."""
    return (
        is_number(expected_number) and bool(_NUMBER.fullmatch(text)) and Decimal(text) == Decimal(repr(expected_number))
    )


def contains(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """Return the share of keywords that are in the answer."""
    text = _fold_case(searchable(output), evaluator)
    return _share("contains", expected.keywords, [_fold_case(word, evaluator) in text for word in expected.keywords])


def regex(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """Return the share of patterns that match; call it in a worker, because a search may never end."""
    text, flags = searchable(output), re.NOFLAG if evaluator.case_sensitive else re.IGNORECASE
    matches = [re.search(pattern, text, flags) is not None for pattern in expected.patterns]
    return _share("regex", expected.patterns, matches)


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


def values_equal(expected_value: Any, answer: Any, evaluator: Evaluator) -> bool:
    """Return whether two JSON values are equal: 1 and 1.0 are; 1 and true are not, nor are 1 and "1"."""
    if _type(expected_value) != _type(answer):
        return False
    match expected_value:
        case bool() | None:
            equal = expected_value is answer
        case int() | float():
            equal = expected_value == answer or abs(expected_value - answer) <= evaluator.tolerance
        case str():
            equal = _fold_case(expected_value, evaluator) == _fold_case(answer, evaluator)
        case dict():
            equal = expected_value.keys() == answer.keys() and all(
                values_equal(expected_value[key], answer[key], evaluator) for key in expected_value
            )
        case _:
            pairs = zip(expected_value, answer, strict=False)
            equal = len(expected_value) == len(answer) and all(
                values_equal(expected_item, answer_item, evaluator) for expected_item, answer_item in pairs
            )
    return equal


def _share(kind: EvaluatorKind, words: tuple[str, ...], matches: list[bool]) -> Grade:
    missing = [word for word, is_present in zip(words, matches, strict=True) if not is_present]
    reason = f"{sum(matches)} of {len(matches)}"
    if missing:
        reason += f"; missing: {', '.join(shown(word, 200) for word in missing)}"
    return Grade(check=kind, value=sum(matches) / len(matches), passed=not missing, reason=reason)


def _grade(kind: EvaluatorKind, value: float, reason: str) -> Grade:
    return Grade(check=kind, value=value, passed=value == 1.0, reason=reason)


def _fold_case(text: str, evaluator: Evaluator) -> str:
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
