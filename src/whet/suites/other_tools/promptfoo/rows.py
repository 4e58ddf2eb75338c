"""Rows of a CSV file as tests: promptfoo's columns begin with two underscores, and all others are variables."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

from whet.reading.documents import DocumentError

_EXPECTED = "__expected"
_PROMPT = "prompt"
_LIMIT = re.compile(r"__config:__expected([1-9]\d*)?:threshold")
_TYPED = re.compile(r"((?:not-)?[a-z][a-z0-9:-]*?)(?:\((\d+(?:\.\d+)?)\))?(?::([\s\S]*))?")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.|"")*)"|([^,]*))\s*(?:,|$)')
_OPTIONS = ("__prefix", "__suffix")
_FIELDS = ("__description", "__threshold")
_FOR_PEOPLE = ("__metric", "__metadata")
# Other words before a colon, or in front of the path of a file.
_SHORT = {"fn": "javascript", "eval": "javascript", "grade": "llm-rubric"}
_PROGRAMS = {"js": "javascript", "mjs": "javascript", "cjs": "javascript", "ts": "javascript", "py": "python"}
_TYPES = frozenset(
    (
        *("agent-rubric", "answer-relevance", "bleu", "classifier", "contains", "contains-all", "contains-any"),
        *("contains-html", "contains-json", "contains-sql", "contains-xml", "context-faithfulness", "context-recall"),
        *("context-relevance", "conversation-relevance", "cost", "equals", "factuality", "finish-reason", "g-eval"),
        *("gleu", "guardrails", "icontains", "icontains-all", "icontains-any", "is-html", "is-json", "is-refusal"),
        *("is-sql", "is-valid-function-call", "is-valid-openai-function-call", "is-valid-openai-tools-call", "is-xml"),
        *("javascript", "latency", "levenshtein", "llm-rubric", "meteor", "model-graded-closedqa", "moderation"),
        *("model-graded-factuality", "perplexity", "perplexity-score", "pi", "python", "regex", "rouge-n", "ruby"),
        *("search-rubric", "similar", "skill-used", "starts-with", "webhook", "word-count"),
    )
)
_WITH_THRESHOLD = frozenset(("cost", "latency", "levenshtein", "perplexity", "rouge-n", "similar"))
_LISTS = frozenset(("contains-all", "contains-any", "icontains-all", "icontains-any"))
_USUAL_THRESHOLD = 0.75


def tests_in_csv(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the test of each row, and its line; raises `DocumentError`."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            yield _test(row), reader.line_num
    except csv.Error as error:
        raise DocumentError(f"is not CSV: {error}", line=reader.line_num + 1) from None


def prompts_in_csv(text: str) -> list[str]:
    """Return the prompts of a table: its column `prompt`, or each line of a file without commas."""
    if "," not in text:
        lines = list(filter(str.strip, text.splitlines()))
        return lines[1:] if lines and lines[0].strip().lower() == _PROMPT else lines
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True))
    except csv.Error:
        return []
    return [row[_PROMPT] for row in rows if row.get(_PROMPT)]


def split_values(text: str) -> list[str]:
    """Return the parts of a text at its commas; those in double quotes may have commas in them."""
    values = []
    for quoted, plain in _ITEM.findall(text.strip()):
        value = re.sub(r'\\(["\\])|""', lambda hit: hit[1] or '"', quoted) if quoted else plain.strip()
        if value:
            values.append(value)
    return values


def _test(row: dict[Any, Any]) -> dict[str, Any]:
    test: dict[str, Any] = {"vars": {}, "assert": []}
    limits: dict[int, Any] = {}
    for name, value in row.items():
        if isinstance(name, str) and isinstance(value, str):
            _take_cell(test, limits, name.strip(), value)
    if "threshold" in test:
        test["threshold"] = _number(test["threshold"])
    for number, limit in limits.items():
        if number < len(test["assert"]):
            test["assert"][number]["threshold"] = limit
    return test


def _take_cell(test: dict[str, Any], limits: dict[int, Any], name: str, value: str) -> None:
    if not name.startswith("__"):
        test["vars"][name] = value
    elif not value.strip():
        return
    elif name.startswith(_EXPECTED):
        test["assert"].append(assertion_in(value.strip()))
    elif name in _OPTIONS:
        test.setdefault("options", {})[name.removeprefix("__")] = value
    elif name in _FIELDS:
        test[name.removeprefix("__")] = value
    elif limit := _LIMIT.fullmatch(name):
        limits[int(limit[1] or 1) - 1] = _number(value)
    elif not name.startswith(_FOR_PEOPLE):
        # The reader says that it does not read it.
        test[name] = value


def _number(text: str) -> Any:
    """Return the number in a cell, or the text, which the reader refuses."""
    return float(text) if _NUMBER.fullmatch(text.strip()) else text


def assertion_in(text: str) -> dict[str, Any]:
    """Return the assertion that a cell means, such as `contains: x`; a text of no type is what the answer equals."""
    if text.startswith("file://") and (kind := _kind_of_program(text)) is not None:
        return {"type": kind, "value": text}
    word, colon, rest = text.partition(":")
    if colon and word in _SHORT:
        return {"type": _SHORT[word], "value": rest.strip()}
    typed = _TYPED.fullmatch(text)
    if typed is None or typed[1].removeprefix("not-") not in _TYPES:
        return {"type": "equals", "value": text}
    kind, limit, value = typed[1], typed[2], typed[3]
    plain_kind = kind.removeprefix("not-")
    assertion: dict[str, Any] = {"type": kind}
    if value is not None:
        assertion["value"] = split_values(value) if plain_kind in _LISTS else value.strip()
    if limit is not None:
        assertion["threshold"] = float(limit)
    elif plain_kind in _WITH_THRESHOLD:
        assertion["threshold"] = _USUAL_THRESHOLD
    return assertion


def _kind_of_program(text: str) -> str | None:
    path = text.removeprefix("file://").partition(":")[0]
    return _PROGRAMS.get(path.rpartition(".")[2])
