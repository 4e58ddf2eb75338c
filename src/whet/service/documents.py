"""Eval suites between callers and storage: read by the one reader there is, kept as JSON, shown again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from whet.errors import Problem, SuiteError
from whet.model.eval_cases import EvalSuite, TriggerQuery, competitor_of
from whet.service.http import Refused
from whet.service.service import reasons_against
from whet.service.stored_suites import StoredSuite
from whet.suites.eval_documents import Need, needs_of, not_runnable_reasons, read_patch, read_suite, suite_kind, to_json

# A document with thousands of mistakes is told of the first ones.
_MOST_DETAILS = 200


def read_document(value: Any) -> EvalSuite:
    """The suite that a caller sent; nothing in it may be a path, because that would be one of the server."""
    try:
        suite = read_suite(value, remote_only=True)
    except SuiteError as error:
        raise _refused(error.problems) from None
    return _without_paths(suite)


def patched(stored: StoredSuite, value: Any) -> EvalSuite:
    """The stored suite with the change that a caller sent."""
    try:
        suite = read_patch(value, remote_only=True).apply(suite_of(stored))
    except SuiteError as error:
        raise _refused(error.problems) from None
    return _without_paths(suite)


def suite_of(stored: StoredSuite) -> EvalSuite:
    """The suite in a row."""
    return read_suite(document_of(stored))


def document_of(stored: StoredSuite) -> dict[str, Any]:
    """The document in a row, as `whet run` reads it."""
    head = msgspec.json.decode(stored.head)
    return {**head["document"], "cases_json": msgspec.json.decode(stored.cases)}


def packed(suite: EvalSuite) -> tuple[bytes, bytes]:
    """A suite as rows keep it: its head with what follows from the cases, and the cases."""
    document = to_json(suite)
    cases = document.pop("cases_json")
    reasons = not_runnable_reasons(suite)
    derived: dict[str, Any] = {
        "suite_kind": suite_kind(suite.cases),
        "case_count": len(suite.cases),
        "runnable": not reasons,
        "not_runnable_reasons": reasons,
        "needs": needs_of(suite),
    }
    return msgspec.json.encode({"document": document, "derived": derived}), msgspec.json.encode(cases)


def shown_suite(stored: StoredSuite, lacking: Mapping[Need, str]) -> dict[str, Any]:
    """A suite as callers see it; without its cases where the row was read without them."""
    head = msgspec.json.decode(stored.head)
    derived = head["derived"]
    # The rest of the reasons is this server's, which may have more tomorrow.
    reasons = [*derived["not_runnable_reasons"], *reasons_against(derived.pop("needs", ()), lacking)]
    shown = {
        "id": stored.id,
        "version": stored.version,
        **_EMPTY,
        **head["document"],
        **derived,
        "runnable": not reasons,
        "not_runnable_reasons": reasons,
        "created_at": shown_time(stored.created_us),
        "updated_at": shown_time(stored.updated_us),
    }
    if not stored.cases:
        return shown
    # Who sees the cases can count them; and they are sent as they were written, because reading them costs most.
    del shown["case_count"]
    return {**shown, "cases_json": msgspec.Raw(stored.cases)}


_EMPTY: dict[str, Any] = {"name": "", "source_id": None, "supports_no_skill": False, "resource_limits_json": {}}


def shown_time(moment_us: int) -> str:
    """A moment as text, in UTC."""
    return datetime.fromtimestamp(moment_us / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _without_paths(suite: EvalSuite) -> EvalSuite:
    problems = [
        Problem(
            file="",
            field=f"cases_json[{index}].competing_skills[{place}]",
            message='must be a name with a description: "deploy: Ships it."',
        )
        for index, case in enumerate(suite.cases)
        if isinstance(case, TriggerQuery)
        for place, text in enumerate(case.competing_skills)
        if competitor_of(text) is None
    ]
    if problems:
        raise _refused(problems)
    return suite


def _refused(problems: Sequence[Problem]) -> Refused:
    found = [
        (problem.field or "", f"{problem.message}; {problem.hint}" if problem.hint else problem.message)
        for problem in problems
    ]
    more = len(found) - _MOST_DETAILS
    details = found[:_MOST_DETAILS] + ([("", f"and {more} problems more")] if more > 0 else [])
    return Refused(422, "the suite is not valid", details=details)
