"""Say why a document is no suite: which format is nearest to it, and what that has where the document has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

UNKNOWN = "is in no known format"
# What holds the cases of a document, in whatever format.
_LISTS = ("cases", "evals", "scenarios", "tests", "stimuli", "examples", "queries")
_MOST_SHOWN = 5
# One of these in a case, or in a list of tasks, says that its author means our own formats.
_OWN_CASE = frozenset(("prompt", "turns", "user", "expect", "expectations", "solution", "setup", "budget"))
_OWN_TOP = frozenset(("name", "cases", "tasks", "defaults", "protect", "check_files"))
_TASK = frozenset(("inputData", "expectedOutput", "evaluator"))


class _Shape(Struct, frozen=True):
    """A format by what its cases have: the keys that people write for a prompt, and for what is expected."""

    name: str
    prompt: str
    expectation: str
    keys: frozenset[str]


_SHAPES = (
    _Shape(
        "evals.json", "prompt", "expectations",
        frozenset((
            "evals", "skill_name", "skill", "skills", "prompt", "query", "question", "expectations", "assertions",
            "expected_output", "expected_behavior", "ground_truth", "should_trigger", "files",
        )),
    ),
    _Shape("bench", "prompt", "expect", frozenset(("cases", "prompt", "expect", "turns", "budget", "setup", "env"))),
    _Shape("promptfoo", "vars", "assert", frozenset(("tests", "vars", "assert", "providers", "prompts", "threshold"))),
    _Shape("eval.yaml", "prompt", "assertions", frozenset(("scenarios", "rubric", "expect_tools", "max_turns"))),
)  # fmt: skip


def why_unknown(document: Any) -> str | None:
    """Return why *document* is no suite of any format; None of one that is meant as a suite or tasks of our own."""
    if document == []:
        return f"{UNKNOWN}: it is an empty list"
    if isinstance(document, Mapping):
        cases = _cases(document)
        case_keys = _keys(cases)
        is_own = bool(case_keys & _OWN_CASE) if case_keys else bool(_OWN_TOP & set(document)) or not document
        # The reader of our format knows which of its words is meant by `tests`.
        if is_own or ("name" in document and "evals" not in document and "cases" not in document):
            return None
        return _say(case_keys, set(document))
    keys = _keys(document)
    return _say(keys, set()) if keys and not keys & _TASK else None


def _cases(document: Mapping[str, Any]) -> Any:
    return next((document[name] for name in _LISTS if isinstance(document.get(name), list)), None)


def _keys(cases: Any) -> set[str]:
    items = cases if isinstance(cases, list) else []
    return {str(key) for item in items if isinstance(item, Mapping) for key in item}


def _say(case_keys: set[str], top_keys: set[str]) -> str:
    """Return the sentence about a document of other keys."""
    shared_counts = [(len(shape.keys & (case_keys | top_keys)), shape) for shape in _SHAPES]
    most, nearest = max(shared_counts, key=lambda pair: pair[0])
    if not most:
        return UNKNOWN
    keys = case_keys or top_keys
    names = ", ".join(sorted(keys)[:_MOST_SHOWN])
    more = f" and {len(keys) - _MOST_SHOWN} more" if len(keys) > _MOST_SHOWN else ""
    needed = f"{nearest.prompt} and {nearest.expectation}"
    return f"{UNKNOWN}; nearest: {nearest.name}, whose cases have {needed}, and these have {names}{more}"
