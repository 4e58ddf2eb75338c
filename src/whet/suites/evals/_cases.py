"""The cases of an eval suite: one function for each kind reads the fields of its object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from msgspec.structs import replace

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
from whet.suites.conversation import USER, WrittenTurn, conversation_prompts, read_user
from whet.suites.format import read_pairwise, read_solution
from whet.suites.split.fields import read_split

_ASSERTION_FIELDS = ("op", "type", "target", "value", "negate", "description")
_MOST = 100


def read_assertions(fields: Fields) -> tuple[Assertion, ...]:
    """Read one assertion under `assertion`, or a list of them under `assertions`."""
    single, entries = fields.given("assertion"), fields.given("assertions")
    if single is not None and entries is not None:
        fields.problem("assertion", 'cannot be used together with "assertions": put it into the list')
    if entries is not None:
        if entries == []:
            fields.problem("assertions", "must not be empty")
        assertions = (_assertion(fields.object(place, item)) for place, item in fields.items("assertions", most=_MOST))
        return tuple(assertion for assertion in assertions if assertion is not None)
    if single is None:
        fields.problem("assertion", "is missing")
        return ()
    assertion_ = _assertion(fields.object("assertion", single))
    return (assertion_,) if assertion_ else ()


def _assertion(fields: Fields) -> Assertion | None:
    fields.refuse_unknown(_ASSERTION_FIELDS)
    if fields.given("op") is not None and fields.given("type") is not None:
        fields.problem("type", 'says the same as "op": leave one of them out')
    op = fields.choice("type" if fields.given("op") is None and "type" in fields.values else "op", OPS, required=True)
    if op is None:
        return None
    target = fields.text("target", empty=True)
    value = fields.given("value")
    if op in FILE_OPS:
        target, value = _file(fields, op, target, value)
    elif op == "json_path":
        _need_pointer(fields, target)
    else:
        _check_plain(fields, op, target)
    return Assertion(
        op=op,
        target=target,
        value=value,
        has_value=value is not None or ("value" in fields.values and op == "json_path"),
        negate=fields.flag("negate", default=False),
        description=fields.text("description"),
    )


def _file(fields: Fields, op: Op, target: str | None, value: Any) -> tuple[str | None, Any]:
    """Return path and value: the path is in `target`, or for `file_exists` also in `value`."""
    if op == "file_exists" and target is None:
        path = fields.text("value", required=True)
        fields.checked("value", path, inside_problem)
        return path, None
    if not target:
        fields.problem("target", "is missing: name the file")
    fields.checked("target", target or None, inside_problem)
    if op == "file_exists":
        if value is not None:
            fields.problem("value", 'is not used by "file_exists"')
        return target, None
    _need_text(fields, op)
    return target, value


def _need_pointer(fields: Fields, target: str | None) -> None:
    if target is None:
        fields.problem("target", "is missing: a JSON pointer, such as /items/0/name")
    fields.checked("target", target, pointer_problem)


def _check_plain(fields: Fields, op: Op, target: str | None) -> None:
    if op == "skill_triggered":
        fields.text("value")
    else:
        _need_text(fields, op)
    if op in TEXT_OPS:
        fields.choice("target", TARGETS)
    elif target is not None:
        operators = (*CALL_OPS, "skill_triggered")
        fields.problem("target", f"is not used by {', '.join(operators)}; say it in value")


def _need_text(fields: Fields, op: Op) -> None:
    text = fields.text("value", required=True)
    if text is None or op not in {"regex", "file_matches"}:
        return
    try:
        pattern_of(text)
    except ClaimError as error:
        fields.problem("value", error.message, error.hint)
    except RecursionError:
        fields.problem("value", f"{shown(text)} is nested too deeply")


# Other names for fields, which a case may use besides the fields of its class.
_INSTRUCTION_NAMES = ("instruction", "query", "prompt")
_TURN = (*_INSTRUCTION_NAMES, "assertion", "assertions", "soft")
_OTHER_NAMES: Mapping[CaseKind, tuple[str, ...]] = {
    "trigger_query": (*_INSTRUCTION_NAMES, "should_trigger"),
    "boolean_assertion": (*_INSTRUCTION_NAMES, "assertion"),
    "task_package": (),
}
_KNOWN_FIELDS: Mapping[CaseKind, Sequence[str]] = {
    case.kind: list(
        dict.fromkeys(("case_kind", "id", *case.__struct_fields__, *_OTHER_NAMES.get(case.kind, _INSTRUCTION_NAMES)))
    )
    for case in get_args(EvalCase)
}
_MOST_RUNS = 100
_MOST_VOTES = 15
_MOST_RUBRIC_ITEMS = 100
_HINTS = tuple(name for name in ResourceHints.__struct_fields__ if name != "more")


def read_case(fields: Fields, *, remote_only: bool) -> EvalCase | None:
    """Read one case; None if it does not name its kind."""
    kind = fields.choice("case_kind", CASE_KINDS, required=True)
    if kind is None:
        _point_at_slip(fields, "case_kind")
        return None
    fields.refuse_unknown(_KNOWN_FIELDS[kind])
    if kind == "task_package":
        return _task_package(fields, remote_only=remote_only)
    case = _READERS[kind](fields)
    if isinstance(case, TriggerQuery):
        if remote_only:
            _refuse_folders(fields, case)
        return case
    file = fields.findings.file
    return replace(case, pairwise=read_pairwise(fields, Path(file).parent if file and not remote_only else None))


def _point_at_slip(fields: Fields, name: str) -> None:
    """Note a field that looks like *name*, which is missing and decides which other fields are known."""
    if name not in fields.values and len(fields.findings.problems) < MOST_HINTS:
        for near in get_close_matches(name, list(fields.values), n=1, cutoff=0.8):
            fields.problem(near, "is not a known field", f'did you mean "{name}"?')


def _trigger_query(fields: Fields) -> TriggerQuery:
    return TriggerQuery(
        **_common(fields),
        query=_instruction(fields, "query"),
        expectation=_expectation(fields),
        invocation_type=fields.choice("invocation_type", INVOCATION_TYPES),
        competing_skills=fields.texts("competing_skills"),
        runs=fields.whole("runs", most=_MOST_RUNS),
        threshold=fields.number("threshold", above=0, most=1, default=DEFAULT_SHARE),
    )


def _refuse_folders(fields: Fields, case: TriggerQuery) -> None:
    for index, text in enumerate(case.competing_skills):
        if competitor_of(text) is None:
            fields.problem(
                f"competing_skills[{index}]", 'must be a name and a description, such as "deploy: Ships it."'
            )


def _expectation(fields: Fields) -> Any:
    """Read the expectation, in words or as true or false."""
    if "should_trigger" in fields.values and "expectation" not in fields.values:
        must_trigger = fields.flag("should_trigger", default=True)
        return "should_trigger" if must_trigger else "should_not_trigger"
    if "should_trigger" in fields.values:
        fields.problem("should_trigger", 'says the same as "expectation": leave one of them out')
    return fields.choice("expectation", EXPECTATIONS, required=True)


def _conversation(fields: Fields) -> dict[str, Any]:
    """Read what the agent is asked: an instruction, which a user may go on from, or turns."""
    names = [name for name in _INSTRUCTION_NAMES if fields.given(name) is not None]
    turns = tuple(_turn(fields, place, item) for place, item in fields.items("turns"))
    written_turns = tuple(WrittenTurn(prompt=turn.instruction) for turn in turns)
    if fields.given("turns") is None:
        prompt = _instruction(fields, "instruction")
    else:
        prompt = conversation_prompts(fields, written_turns, name=names[0] if names else "instruction")[0]
    user = fields.table("user") if fields.given("user") is not None else None
    if user is not None:
        user.refuse_unknown(USER)
    return {"instruction": prompt, "turns": turns, "user": None if user is None else read_user(user)}


def _turn(fields: Fields, place: str, item: Any) -> EvalTurn:
    if isinstance(item, str):
        return EvalTurn(instruction=fields.text_at(place, item) or "")
    turn = fields.object(place, item)
    turn.refuse_unknown(_TURN)
    has_assertions = any(turn.given(name) is not None for name in ("assertion", "assertions"))
    return EvalTurn(
        instruction=_instruction(turn, "instruction") if turn.values else "",
        assertions=read_assertions(turn) if has_assertions else (),
        soft=turn.flag("soft"),
    )


def _llm_rubric(fields: Fields) -> LlmRubric:
    judge = fields.table("judge")
    judge.refuse_unknown(("model", "votes"))
    return LlmRubric(
        **_common(fields),
        solution=read_solution(fields),
        **_conversation(fields),
        rubric=_rubric(fields),
        pass_threshold=fields.number("pass_threshold", least=0, most=1, default=DEFAULT_THRESHOLD),
        judge=JudgeHints(model=judge.text("model"), votes=judge.whole("votes", most=_MOST_VOTES)),
        reference=fields.text("reference"),
        inputs=fields.table("inputs").values,
    )


def _rubric(fields: Fields) -> tuple[RubricItem, ...]:
    """Read a sentence, or a list of sentences and objects."""
    value = fields.given("rubric")
    if value is None or isinstance(value, str):
        text = fields.text("rubric", required=True)
        return (RubricItem(id="1", description=text),) if text else ()
    items = tuple(
        _rubric_item(fields, place, number, item)
        for number, (place, item) in enumerate(fields.items("rubric", most=_MOST_RUBRIC_ITEMS), 1)
    )
    if value == []:
        fields.problem("rubric", "must not be empty")
    _refuse_twins(fields, [(f"rubric[{index}].id", item.id) for index, item in enumerate(items)])
    return items


def _rubric_item(fields: Fields, place: str, number: int, value: Any) -> RubricItem:
    if isinstance(value, str):
        return RubricItem(id=str(number), description=fields.text_at(place, value) or "")
    item = fields.object(place, value)
    item.refuse_unknown(RubricItem.__struct_fields__)
    return RubricItem(
        id=item.text("id") or str(number),
        description=item.text("description", required=True) or "",
        weight=item.number("weight", above=0, default=1.0),
        required=item.flag("required", default=False),
    )


def _exact_match(fields: Fields) -> ExactMatch:
    if "expected" not in fields.values:
        fields.problem("expected", "is missing")
    return ExactMatch(
        **_common(fields),
        solution=read_solution(fields),
        **_conversation(fields),
        expected=fields.given("expected"),
        path=fields.checked("path", fields.text("path", empty=True), pointer_problem),
        case_sensitive=fields.flag("case_sensitive", default=True),
        trim=fields.flag("trim", default=True),
        numeric_tolerance=fields.number("numeric_tolerance", least=0, default=0.0),
    )


def _json_schema(fields: Fields) -> JsonSchema:
    return JsonSchema(
        **_common(fields),
        solution=read_solution(fields),
        **_conversation(fields),
        schema=_schema(fields),
        extract=fields.choice("extract", EXTRACTS) or "whole",
    )


def _schema(fields: Fields) -> Any:
    value = fields.given("schema")
    if value is None:
        fields.problem("schema", "is missing")
        return True
    try:
        check_schema(value)
    except SchemaTrouble as error:
        fields.problem("schema", f"is not a JSON Schema: {error}")
    return value


def _boolean_assertion(fields: Fields) -> BooleanAssertion:
    return BooleanAssertion(
        **_common(fields),
        solution=read_solution(fields),
        **_conversation(fields),
        assertions=read_assertions(fields),
        match=fields.choice("match", MATCHES) or "all",
    )


def _task_package(fields: Fields, *, remote_only: bool) -> TaskPackage:
    reference = fields.text("environment_ref", required=True)
    digest = fields.checked("environment_sha256", fields.text("environment_sha256"), digest_problem)
    return TaskPackage(
        **_common(fields),
        environment_ref=fields.checked(
            "environment_ref", reference, lambda text: reference_problem(text, remote_only=remote_only)
        )
        or "",
        instruction=fields.text("instruction", empty=True),
        environment_sha256=digest.lower() if digest else None,
        verifier_ref=_inside(fields, "verifier_ref") or DEFAULT_VERIFIER,
        skill_bundle_ref=_inside(fields, "skill_bundle_ref") or DEFAULT_SKILL_PLACE,
        oracle_ref=_inside(fields, "oracle_ref"),
        resource_hints=_resource_hints(fields.table("resource_hints")),
    )


def _inside(fields: Fields, name: str) -> str | None:
    return fields.checked(name, fields.text(name), inside_problem)


def _resource_hints(fields: Fields) -> ResourceHints:
    return ResourceHints(
        working_dir=_inside(fields, "working_dir") or ".",
        timeout_ms=fields.number("timeout_ms", above=0),
        oracle_timeout_ms=fields.number("oracle_timeout_ms", above=0),
        env=fields.variables("env"),
        network=fields.flag("network", default=False),
        more={name: value for name, value in fields.values.items() if name not in _HINTS},
    )


def _common(fields: Fields) -> dict[str, Any]:
    """Read the fields that every kind has."""
    if fields.given("id") is not None and fields.given("task_id") is not None:
        fields.problem("id", 'says the same as "task_id": leave one of them out')
    name = "id" if fields.given("task_id") is None else "task_id"
    return {
        "task_id": fields.checked(name, fields.text(name), id_problem),
        "tags": tuple(dict.fromkeys(fields.texts("tags"))),
        "weight": fields.number("weight", above=0, default=1.0),
        "source": fields.text("source"),
        "split": read_split(fields),
    }


def _instruction(fields: Fields, usual: str) -> str:
    """Read what the agent is asked, under one of its names."""
    names = [name for name in _INSTRUCTION_NAMES if fields.given(name) is not None]
    for name in names[1:]:
        fields.problem(name, f'says the same as "{names[0]}": leave one of them out')
    return fields.text(names[0] if names else usual, required=True) or ""


def _refuse_twins(fields: Fields, places: list[tuple[str, str]]) -> None:
    names: set[str] = set()
    for place, name in places:
        if name in names:
            fields.problem(place, f"{shown(name)} is the id of another item too")
        names.add(name)


_READERS: Mapping[CaseKind, Callable[[Fields], EvalCase]] = {
    "trigger_query": _trigger_query,
    "llm_rubric": _llm_rubric,
    "exact_match": _exact_match,
    "json_schema": _json_schema,
    "boolean_assertion": _boolean_assertion,
}
