"""Reading the assertions of a `boolean_assertion` case."""

from __future__ import annotations

from typing import Any

from whet.claims import ClaimError
from whet.claims.patterns import pattern_of
from whet.evals.fields import Fields, shown
from whet.evals.kinds import CALL_OPS, FILE_OPS, OPS, TARGETS, TEXT_OPS, Assertion, Op
from whet.evals.paths import inside_problem, pointer_problem

_KNOWN = ("op", "type", "target", "value", "negate", "description")
_MOST = 100


def read_assertions(given: Fields) -> tuple[Assertion, ...]:
    """One, under `assertion`, or a list of them under `assertions`."""
    one, several = given.given("assertion"), given.given("assertions")
    if one is not None and several is not None:
        given.problem("assertion", 'stands beside "assertions": put it into the list')
    if several is not None:
        if several == []:
            given.problem("assertions", "must not be empty")
        found = (_assertion(given.object(place, item)) for place, item in given.items("assertions", most=_MOST))
        return tuple(each for each in found if each is not None)
    if one is None:
        given.problem("assertion", "is missing")
        return ()
    read = _assertion(given.object("assertion", one))
    return (read,) if read else ()


def _assertion(given: Fields) -> Assertion | None:
    given.refuse_unknown(_KNOWN)
    if given.given("op") is not None and given.given("type") is not None:
        given.problem("type", 'says the same as "op": leave one of them out')
    op = given.choice("type" if given.given("op") is None and "type" in given.values else "op", OPS, required=True)
    if op is None:
        return None
    target = given.text("target", empty=True)
    value = given.given("value")
    if op in FILE_OPS:
        target, value = _file(given, op, target, value)
    elif op == "json_path":
        _need_pointer(given, target)
    else:
        _check_plain(given, op, target)
    return Assertion(
        op=op,
        target=target,
        value=value,
        has_value=value is not None or ("value" in given.values and op == "json_path"),
        negate=given.flag("negate", default=False),
        description=given.text("description"),
    )


def _file(given: Fields, op: Op, target: str | None, value: Any) -> tuple[str | None, Any]:
    """The path stands in `target`; where only that it exists is asserted, it may stand in `value`."""
    if op == "file_exists" and target is None:
        path = given.text("value", required=True)
        given.checked("value", path, inside_problem)
        return path, None
    if not target:
        given.problem("target", "is missing: name the file")
    given.checked("target", target or None, inside_problem)
    if op == "file_exists":
        if value is not None:
            given.problem("value", 'is not used by "file_exists"')
        return target, None
    _need_text(given, op)
    return target, value


def _need_pointer(given: Fields, target: str | None) -> None:
    if target is None:
        given.problem("target", "is missing: a JSON pointer, such as /items/0/name")
    given.checked("target", target, pointer_problem)


def _check_plain(given: Fields, op: Op, target: str | None) -> None:
    if op == "skill_triggered":
        given.text("value")
    else:
        _need_text(given, op)
    if op in TEXT_OPS:
        given.choice("target", TARGETS)
    elif target is not None:
        others = (*CALL_OPS, "skill_triggered")
        given.problem("target", f"is not used by {', '.join(others)}; say it in value")


def _need_text(given: Fields, op: Op) -> None:
    text = given.text("value", required=True)
    if text is None or op not in {"regex", "file_matches"}:
        return
    try:
        pattern_of(text)
    except ClaimError as error:
        given.problem("value", error.message, error.hint)
    except RecursionError:
        given.problem("value", f"{shown(text)} is nested too deeply")
