"""One task of a benchmark: its input, what is expected, and the evaluator that follows from it."""

from __future__ import annotations

import re
from typing import Any

from whet.fields import Fields, shown
from whet.model.benchmark import (
    COMPARISONS,
    EVALUATORS,
    MISSING,
    SUBJECTS,
    BenchmarkTask,
    Evaluator,
    EvaluatorKind,
    Expected,
)
from whet.model.naming import id_problem
from whet.schemas import SchemaTrouble, check_schema

_TASK = ("id", "description", "inputData", "expectedOutput", "evaluator", "timeoutMs", "tags", "weight")
_EXPECTED = ("type", "value", "schema", "keywords", "patterns", "judgePrompt", "customScorerPath")
_EVALUATOR = ("type", "caseSensitive", "compare", "tolerance", "threshold", "timeoutMs", "subject", "customScorerPath")
# Names by which others call the same evaluators.
ALIASES: dict[str, EvaluatorKind] = {"exact_match": "exact", "schema": "json_schema"}
# Which field of `expectedOutput` an evaluator looks at.
_SUBJECT: dict[EvaluatorKind, str] = {
    "exact": "value",
    "contains": "keywords",
    "regex": "patterns",
    "json_schema": "schema",
    "llm_judge": "judgePrompt",
    "custom": "customScorerPath",
}
# A reference answer helps a judge or a grader of the author's as well.
_TAKES_VALUE: tuple[EvaluatorKind, ...] = ("exact", "llm_judge", "custom")


def read_task(fields: Fields, default: EvaluatorKind | None) -> BenchmarkTask:
    """The task that *fields* say; what is wrong is noted in them."""
    fields.mention_unknown(_TASK)
    identifier = fields.text("id", required=True)
    trouble = id_problem(identifier) if identifier else None
    if trouble:
        fields.problem("id", trouble)
    if not isinstance(fields.values.get("inputData"), dict):
        missing = "inputData" not in fields.values
        given = "is missing" if missing else f"must be an object, not {shown(fields.values['inputData'])}"
        fields.problem("inputData", given)
    expected, evaluator = fields.table("expectedOutput", required=True), fields.table("evaluator")
    expected.mention_unknown(_EXPECTED)
    evaluator.mention_unknown(_EVALUATOR)
    kind = _kind(expected, evaluator, default)
    return BenchmarkTask(
        id=identifier,
        description=fields.text("description", empty=True),
        input=fields.values.get("inputData") or {},
        expected=_expected(expected, evaluator, kind),
        evaluator=_evaluator(evaluator, kind),
        timeout_ms=fields.number("timeoutMs"),
        tags=tuple(dict.fromkeys(fields.texts("tags"))),
        weight=float(fields.number("weight", default=1.0, least=0)),
    )


def _kind(expected: Fields, evaluator: Fields, default: EvaluatorKind | None) -> EvaluatorKind:
    """What the task says, in one place or in both; saying two things is an error."""
    wanted, named = _named(expected), _named(evaluator)
    if wanted and named and wanted != named:
        evaluator.problem("type", f'is "{named}", but expectedOutput.type is "{wanted}"', "make them the same")
    found = named or wanted or default
    if found is None:
        if not expected.values.get("type") and not evaluator.values.get("type"):
            evaluator.problem("type", "is missing, and expectedOutput.type too", f"one of {', '.join(EVALUATORS)}")
        return "exact"
    return found


def _named(fields: Fields) -> EvaluatorKind | None:
    value = fields.choice("type", (*EVALUATORS, *ALIASES))
    if value is None:
        return None
    return ALIASES.get(value) or next(kind for kind in EVALUATORS if kind == value)


def _expected(fields: Fields, evaluator: Fields, kind: EvaluatorKind) -> Expected:
    _check_subject(fields, evaluator, kind)
    patterns = fields.texts("patterns", required=kind == "regex")
    for index, pattern in enumerate(patterns):
        try:
            re.compile(pattern)
        except re.error as error:
            fields.problem(f"patterns[{index}]", f"is no regular expression: {error}")
    schema: Any = fields.values.get("schema")
    if kind == "json_schema" and "schema" in fields.values:
        try:
            check_schema(schema)
        except SchemaTrouble as error:
            fields.problem("schema", f"is no JSON Schema: {error}")
    return Expected(
        value=fields.values.get("value", MISSING),
        keywords=fields.texts("keywords", required=kind == "contains"),
        patterns=patterns,
        schema=schema,
        judge_prompt=fields.text("judgePrompt", required=kind == "llm_judge") or None,
        custom_scorer=fields.text("customScorerPath") or evaluator.text("customScorerPath") or None,
    )


def _check_subject(fields: Fields, evaluator: Fields, kind: EvaluatorKind) -> None:
    """What the evaluator looks at is there, and nothing stands there that it does not look at."""
    if kind in {"exact", "json_schema"} and _SUBJECT[kind] not in fields.values:
        fields.problem(_SUBJECT[kind], f"is missing, and {kind} looks at nothing else")
    if kind == "custom":
        here, there = fields.values.get("customScorerPath"), evaluator.values.get("customScorerPath")
        if here is None and there is None:
            fields.problem("customScorerPath", "is missing")
        elif here is not None and there is not None and here != there:
            evaluator.problem("customScorerPath", f"is {shown(there)}, but in expectedOutput it is {shown(here)}")
    for other, subject in _SUBJECT.items():
        ignored = subject in fields.values and subject != _SUBJECT[kind]
        if ignored and not (other == "exact" and kind in _TAKES_VALUE):
            fields.note(subject, f"is not looked at by {kind}")


def _evaluator(fields: Fields, kind: EvaluatorKind) -> Evaluator:
    compare = fields.choice("compare", COMPARISONS)
    subject = fields.choice("subject", SUBJECTS)
    if subject == "files" and kind != "custom":
        fields.problem("subject", f'"files" can be looked at by custom only, not by {kind}')
    return Evaluator(
        kind=kind,
        # Only keywords are looked for without regard to case, unless the task says so.
        case_sensitive=fields.flag("caseSensitive", kind != "contains"),
        compare="text" if compare == "text" else "json",
        tolerance=float(fields.number("tolerance", default=0.0, least=0)),
        threshold=float(fields.number("threshold", default=0.5, most=1.0)),
        timeout_ms=fields.number("timeoutMs"),
        subject="files" if subject == "files" else "output",
    )
