"""Eval suites: documents of cases for a skill, read with every problem by its path, and written back."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from whet.evals.kinds import (
    CASE_KINDS,
    MOST_CASES,
    SOURCE_KINDS,
    VERIFIER_KINDS,
    Assertion,
    BooleanAssertion,
    CaseKind,
    EvalCase,
    EvalSuite,
    ExactMatch,
    JsonSchema,
    JudgeHints,
    LlmRubric,
    ResourceHints,
    RubricItem,
    SourceKind,
    SuiteKind,
    TaskPackage,
    TriggerQuery,
    VerifierKind,
)
from whet.evals.problems import EvalSuiteError, FieldProblem
from whet.evals.reading import EvalSuitePatch, read_manifest, read_patch, read_suite
from whet.evals.runnable import FAMILIES, WITHOUT_AGENT, Need, needs_of, not_runnable_reasons, suite_kind
from whet.evals.writing import case_to_json, to_json

__all__ = [
    "CASE_KINDS",
    "FAMILIES",
    "MOST_CASES",
    "SOURCE_KINDS",
    "VERIFIER_KINDS",
    "WITHOUT_AGENT",
    "Assertion",
    "BooleanAssertion",
    "CaseKind",
    "EvalCase",
    "EvalSuite",
    "EvalSuiteError",
    "EvalSuitePatch",
    "ExactMatch",
    "FieldProblem",
    "JsonSchema",
    "JudgeHints",
    "LlmRubric",
    "Need",
    "ResourceHints",
    "RubricItem",
    "SourceKind",
    "SuiteKind",
    "TaskPackage",
    "TriggerQuery",
    "VerifierKind",
    "case_to_json",
    "needs_of",
    "not_runnable_reasons",
    "read_manifest",
    "read_patch",
    "read_suite",
    "suite_kind",
    "suite_schema",
    "to_json",
]


def suite_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    found = json.loads(files("whet.evals").joinpath("suite.schema.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found
