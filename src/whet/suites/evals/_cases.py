"""The cases of an eval suite: one function for each kind reads the fields of its object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, get_args

from whet.errors import ClaimError
from whet.model.eval_cases import (
    CALL_OPS,
    CASE_KINDS,
    DEFAULT_SHARE,
    DEFAULT_SKILL_PLACE,
    DEFAULT_THRESHOLD,
    DEFAULT_VERIFIER,
    EXPECTATIONS,
    EXTRACTS,
    FILE_OPS,
    INVOCATION_TYPES,
    MATCHES,
    OPS,
    TARGETS,
    TEXT_OPS,
    Assertion,
    BooleanAssertion,
    CaseKind,
    EvalCase,
    EvalTurn,
    ExactMatch,
    JsonSchema,
    JudgeHints,
    LlmRubric,
    Op,
    ResourceHints,
    RubricItem,
    TaskPackage,
    TriggerQuery,
    competitor_of,
)
from whet.model.run import id_problem
from whet.reading.fields import MOST_HINTS, Fields
from whet.reading.paths import digest_problem, inside_problem, pointer_problem, reference_problem
from whet.reading.patterns import pattern_of
from whet.reading.schemas import SchemaTrouble, check_schema
from whet.reading.text import shown
from whet.suites.conversations import USER, WrittenTurn, conversation_prompts, read_user
from whet.suites.format import read_solution

_KNOWN = ("op", "type", "target", "value", "negate", "description")
_MOST = 100


def read_assertions(given: Fields) -> tuple[Assertion, ...]:
    """Read one assertion under `assertion`, or a list of them under `assertions`."""
    one, several = given.given("assertion"), given.given("assertions")
    if one is not None and several is not None:
        given.problem("assertion", 'cannot be used together with "assertions": put it into the list')
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
    """Return path and value: the path is in `target`, or for `file_exists` also in `value`."""
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


# Other names for fields, which a case may use besides the fields of its class.
_ASKED = ("instruction", "query", "prompt")
_TURN = (*_ASKED, "assertion", "assertions", "soft")
_OTHER_NAMES: Mapping[CaseKind, tuple[str, ...]] = {
    "trigger_query": (*_ASKED, "should_trigger"),
    "boolean_assertion": (*_ASKED, "assertion"),
    "task_package": (),
}
_KNOWN_FIELDS: Mapping[CaseKind, Sequence[str]] = {
    case.kind: list(
        dict.fromkeys(("case_kind", "id", *(each.name for each in fields(case)), *_OTHER_NAMES.get(case.kind, _ASKED)))
    )
    for case in get_args(EvalCase)
}
_MOST_RUNS = 100
_MOST_VOTES = 15
_MOST_RUBRIC_ITEMS = 100
_HINTS = tuple(each.name for each in fields(ResourceHints) if each.name != "more")


def read_case(given: Fields, *, remote_only: bool) -> EvalCase | None:
    """Read one case; None if it does not name its kind."""
    kind = given.choice("case_kind", CASE_KINDS, required=True)
    if kind is None:
        _point_at_slip(given, "case_kind")
        return None
    given.refuse_unknown(_KNOWN_FIELDS[kind])
    if kind == "task_package":
        return _task_package(given, remote_only=remote_only)
    case = _READERS[kind](given)
    if remote_only and isinstance(case, TriggerQuery):
        _refuse_folders(given, case)
    return case


def _point_at_slip(given: Fields, name: str) -> None:
    """Note a field that looks like *name*, which is missing and decides which other fields are known."""
    if name not in given.values and len(given.findings.problems) < MOST_HINTS:
        for near in get_close_matches(name, list(given.values), n=1, cutoff=0.8):
            given.problem(near, "is not a known field", f'did you mean "{name}"?')


def _trigger_query(given: Fields) -> TriggerQuery:
    return TriggerQuery(
        **_common(given),
        query=_asked(given, "query"),
        expectation=_expectation(given),
        invocation_type=given.choice("invocation_type", INVOCATION_TYPES),
        competing_skills=given.texts("competing_skills"),
        runs=given.whole("runs", most=_MOST_RUNS),
        threshold=given.number("threshold", above=0, most=1, default=DEFAULT_SHARE),
    )


def _refuse_folders(given: Fields, case: TriggerQuery) -> None:
    for index, text in enumerate(case.competing_skills):
        if competitor_of(text) is None:
            given.problem(f"competing_skills[{index}]", 'must be a name and a description, such as "deploy: Ships it."')


def _expectation(given: Fields) -> Any:
    """Read the expectation, in words or as true or false."""
    if "should_trigger" in given.values and "expectation" not in given.values:
        wanted = given.flag("should_trigger", default=True)
        return "should_trigger" if wanted else "should_not_trigger"
    if "should_trigger" in given.values:
        given.problem("should_trigger", 'says the same as "expectation": leave one of them out')
    return given.choice("expectation", EXPECTATIONS, required=True)


def _conversation(given: Fields) -> dict[str, Any]:
    """Read what the agent is asked: an instruction, which a user may go on from, or turns."""
    names = [name for name in _ASKED if given.given(name) is not None]
    turns = tuple(_turn(given, place, item) for place, item in given.items("turns"))
    written = tuple(WrittenTurn(prompt=turn.instruction) for turn in turns)
    if given.given("turns") is None:
        prompt = _asked(given, "instruction")
    else:
        prompt = conversation_prompts(given, written, name=names[0] if names else "instruction")[0]
    user = given.table("user") if given.given("user") is not None else None
    if user is not None:
        user.refuse_unknown(USER)
    return {"instruction": prompt, "turns": turns, "user": None if user is None else read_user(user)}


def _turn(given: Fields, place: str, item: Any) -> EvalTurn:
    if isinstance(item, str):
        return EvalTurn(instruction=given.text_at(place, item) or "")
    turn = given.object(place, item)
    turn.refuse_unknown(_TURN)
    has_assertions = any(turn.given(name) is not None for name in ("assertion", "assertions"))
    return EvalTurn(
        instruction=_asked(turn, "instruction") if turn.values else "",
        assertions=read_assertions(turn) if has_assertions else (),
        soft=turn.flag("soft"),
    )


def _llm_rubric(given: Fields) -> LlmRubric:
    judge = given.table("judge")
    judge.refuse_unknown(("model", "votes"))
    return LlmRubric(
        **_common(given),
        solution=read_solution(given),
        **_conversation(given),
        rubric=_rubric(given),
        pass_threshold=given.number("pass_threshold", least=0, most=1, default=DEFAULT_THRESHOLD),
        judge=JudgeHints(model=judge.text("model"), votes=judge.whole("votes", most=_MOST_VOTES)),
        reference=given.text("reference"),
        inputs=given.table("inputs").values,
    )


def _rubric(given: Fields) -> tuple[RubricItem, ...]:
    """Read a sentence, or a list of sentences and objects."""
    value = given.given("rubric")
    if value is None or isinstance(value, str):
        text = given.text("rubric", required=True)
        return (RubricItem(id="1", description=text),) if text else ()
    found = tuple(
        _rubric_item(given, place, number, item)
        for number, (place, item) in enumerate(given.items("rubric", most=_MOST_RUBRIC_ITEMS), 1)
    )
    if value == []:
        given.problem("rubric", "must not be empty")
    _refuse_twins(given, [(f"rubric[{index}].id", item.id) for index, item in enumerate(found)])
    return found


def _rubric_item(given: Fields, place: str, number: int, value: Any) -> RubricItem:
    if isinstance(value, str):
        return RubricItem(id=str(number), description=given.text_at(place, value) or "")
    item = given.object(place, value)
    item.refuse_unknown([each.name for each in fields(RubricItem)])
    return RubricItem(
        id=item.text("id") or str(number),
        description=item.text("description", required=True) or "",
        weight=item.number("weight", above=0, default=1.0),
        required=item.flag("required", default=False),
    )


def _exact_match(given: Fields) -> ExactMatch:
    if "expected" not in given.values:
        given.problem("expected", "is missing")
    return ExactMatch(
        **_common(given),
        solution=read_solution(given),
        **_conversation(given),
        expected=given.given("expected"),
        path=given.checked("path", given.text("path", empty=True), pointer_problem),
        case_sensitive=given.flag("case_sensitive", default=True),
        trim=given.flag("trim", default=True),
        numeric_tolerance=given.number("numeric_tolerance", least=0, default=0.0),
    )


def _json_schema(given: Fields) -> JsonSchema:
    return JsonSchema(
        **_common(given),
        solution=read_solution(given),
        **_conversation(given),
        schema=_schema(given),
        extract=given.choice("extract", EXTRACTS) or "whole",
    )


def _schema(given: Fields) -> Any:
    value = given.given("schema")
    if value is None:
        given.problem("schema", "is missing")
        return True
    try:
        check_schema(value)
    except SchemaTrouble as error:
        given.problem("schema", f"is not a JSON Schema: {error}")
    return value


def _boolean_assertion(given: Fields) -> BooleanAssertion:
    return BooleanAssertion(
        **_common(given),
        solution=read_solution(given),
        **_conversation(given),
        assertions=read_assertions(given),
        match=given.choice("match", MATCHES) or "all",
    )


def _task_package(given: Fields, *, remote_only: bool) -> TaskPackage:
    reference = given.text("environment_ref", required=True)
    digest = given.checked("environment_sha256", given.text("environment_sha256"), digest_problem)
    return TaskPackage(
        **_common(given),
        environment_ref=given.checked(
            "environment_ref", reference, lambda text: reference_problem(text, remote_only=remote_only)
        )
        or "",
        instruction=given.text("instruction", empty=True),
        environment_sha256=digest.lower() if digest else None,
        verifier_ref=_inside(given, "verifier_ref") or DEFAULT_VERIFIER,
        skill_bundle_ref=_inside(given, "skill_bundle_ref") or DEFAULT_SKILL_PLACE,
        oracle_ref=_inside(given, "oracle_ref"),
        resource_hints=_resource_hints(given.table("resource_hints")),
    )


def _inside(given: Fields, name: str) -> str | None:
    return given.checked(name, given.text(name), inside_problem)


def _resource_hints(given: Fields) -> ResourceHints:
    return ResourceHints(
        working_dir=_inside(given, "working_dir") or ".",
        timeout_ms=given.number("timeout_ms", above=0),
        oracle_timeout_ms=given.number("oracle_timeout_ms", above=0),
        env=given.variables("env"),
        network=given.flag("network", default=False),
        more={name: value for name, value in given.values.items() if name not in _HINTS},
    )


def _common(given: Fields) -> dict[str, Any]:
    """Read the fields that every kind has."""
    if given.given("id") is not None and given.given("task_id") is not None:
        given.problem("id", 'says the same as "task_id": leave one of them out')
    name = "id" if given.given("task_id") is None else "task_id"
    return {
        "task_id": given.checked(name, given.text(name), id_problem),
        "tags": tuple(dict.fromkeys(given.texts("tags"))),
        "weight": given.number("weight", above=0, default=1.0),
        "source": given.text("source"),
    }


def _asked(given: Fields, usual: str) -> str:
    """Read what the agent is asked, under one of its names."""
    names = [name for name in _ASKED if given.given(name) is not None]
    for name in names[1:]:
        given.problem(name, f'says the same as "{names[0]}": leave one of them out')
    return given.text(names[0] if names else usual, required=True) or ""


def _refuse_twins(given: Fields, named: list[tuple[str, str]]) -> None:
    seen: set[str] = set()
    for place, name in named:
        if name in seen:
            given.problem(place, f"{shown(name)} is the id of another item too")
        seen.add(name)


_READERS: Mapping[CaseKind, Callable[[Fields], EvalCase]] = {
    "trigger_query": _trigger_query,
    "llm_rubric": _llm_rubric,
    "exact_match": _exact_match,
    "json_schema": _json_schema,
    "boolean_assertion": _boolean_assertion,
}
