"""What assertions of promptfoo become: checks of the answer, of the session, by a judge, or by JavaScript."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import ClaimError, SuiteError
from whet.model.eval_cases import (
    Assertion,
    ExactMatch,
    JavascriptCall,
    JsonSchema,
    LlmRubric,
    Match,
    RubricItem,
    ToolMatch,
)
from whet.model.suite import Check, CheckSet
from whet.reading.documents import DocumentError
from whet.reading.fields import Fields, is_number, is_whole
from whet.reading.patterns import read_pattern
from whet.reading.schemas import SchemaTrouble, check_schema
from whet.reading.text import shown
from whet.reading.yaml import read_yaml
from whet.suites.other_tools.promptfoo.logic import UnfilledTemplate
from whet.suites.other_tools.promptfoo.rows import split_values
from whet.suites.other_tools.promptfoo.sources import FILE, Sources, UnreadSource
from whet.suites.other_tools.promptfoo.templates import fill_template
from whet.suites.other_tools.shared import ForeignDocument, assertion_check, contains_anyhow, holds, statement

_ASSERT = ("type", "value", "threshold", "weight", "metric", "config", "transform", "provider", "rubricPrompt")
_SET = ("type", "assert", "threshold", "weight", "metric")
_SCRIPTS = (".js", ".mjs", ".cjs")
_NODE = "node"
_JUDGED = ("llm-rubric", "model-graded-closedqa", "factuality", "model-graded-factuality", "g-eval")
_REFERENCE = "The answer agrees with this reference, and does not contradict it: "
_SHOWN = 100
# What a pattern of JavaScript reads as something else, and the wildcards among it.
_SIGNS, _WILD = re.compile(r"[\\^$.*+?()\[\]{}|/]"), {"*": ".*", "?": "."}


class LostAssertion(Exception):
    """An assertion has no equal here, and why."""


class AssertionContext(Struct, frozen=True):
    """What the assertions of one case share: the prompt and the variables that it is made of."""

    document: ForeignDocument
    sources: Sources
    prompt: str
    values: Mapping[str, Any]


def lower_assertions(context: AssertionContext, fields: Fields) -> Iterator[Check]:
    """Yield the checks of a test; what is lost is noted with its case."""
    for place, item in fields.items("assert"):
        assertion = fields.object(place, _dereferenced(context, fields, place, item))
        kind = assertion.text("type", required=True)
        if kind == "assert-set":
            yield from _set(context, assertion)
        elif kind is not None:
            check = _lower(context, assertion, kind)
            if check is not None:
                yield check


def _dereferenced(context: AssertionContext, fields: Fields, place: str, item: Any) -> Any:
    """Return an assertion, or the one of the configuration that it refers to, such as `#/assertionTemplates/short`."""
    reference = item.get("$ref") if isinstance(item, Mapping) else None
    if not isinstance(reference, str):
        return item
    target: Any = context.document.top.values
    for step in reference.removeprefix("#/").split("/"):
        target = target.get(step) if isinstance(target, Mapping) else None
    if not isinstance(target, Mapping) or "$ref" in target:
        what = "is another reference" if isinstance(target, Mapping) else "is nothing"
        fields.problem(f"{place}.$ref", f"there {what} at {shown(reference)}", "write #/assertionTemplates/NAME")
        return {"type": "equals", "value": ""}
    return {**target, **{name: value for name, value in item.items() if name != "$ref"}}


def _set(context: AssertionContext, fields: Fields) -> Iterator[Check]:
    """Yield the checks of a set, which together weigh as much as the set, and need its threshold or have all to hold.

    A check that is lost takes its part of the score along.
    """
    context.document.lose_unknown(fields, _SET)
    checks = tuple(lower_assertions(context, fields))
    weight = _weight(context, fields)
    if weight is None or not checks:
        return
    threshold = fields.number("threshold", least=0, most=1)
    part = None if threshold is None else CheckSet(place=fields.path, threshold=float(threshold))
    sum_of_weights = sum(check.weight for check in checks)
    for check in checks:
        yield replace(check, weight=weight * check.weight / sum_of_weights, part_of=part or check.part_of)


def _weight(context: AssertionContext, fields: Fields) -> float | None:
    """Return how much an assertion counts; None if it decides nothing."""
    if fields.given("weight") == 0:
        context.document.lose(fields, "weight", "an assertion that decides nothing")
        return None
    return fields.number("weight", above=0) or 1.0


def _lower(context: AssertionContext, fields: Fields, kind: str) -> Check | None:
    document = context.document
    document.lose_unknown(fields, _ASSERT)
    weight = _weight(context, fields)
    if weight is None:
        return None
    if fields.given("transform") is not None:
        document.lose_check(fields, "transform", f"{kind}, because whet changes no answer before a check")
        return None
    for name in ("provider", "rubricPrompt"):
        if fields.given(name) is not None:
            document.lose(fields, name, "the settings name the judge, and whet asks it in its own words")
    try:
        check = _check(context, fields, kind, _value(context, fields, kind))
    except (LostAssertion, UnreadSource) as error:
        document.lose_check(fields, "type", str(error))
    except UnfilledTemplate as error:
        document.lose_check(fields, "value", f"{kind}, because its value {error}")
    else:
        return replace(check, weight=weight)
    return None


def _value(context: AssertionContext, fields: Fields, kind: str) -> Any:
    """Return the value with its variables filled in and its files read; a script stays a reference to its file."""
    value = fields.given("value")
    if isinstance(value, list):
        return [_filled(context, item, kind) for item in value]
    return _filled(context, value, kind)


def _filled(context: AssertionContext, value: Any, kind: str) -> Any:
    if not isinstance(value, str):
        return value
    if not value.startswith(FILE):
        return fill_template(value, context.values)
    if kind.removeprefix("not-") in ("javascript", "python", "ruby"):
        return value
    path = context.sources.paths(value)[0]
    if path.suffix.lower() in (".yaml", ".yml", ".json") and kind.endswith("json"):
        return context.sources.value(value)
    return context.sources.text(path)


def _check(context: AssertionContext, fields: Fields, kind: str, value: Any) -> Check:
    negate, plain_kind = kind.startswith("not-"), kind.removeprefix("not-")
    if plain_kind == "javascript" and isinstance(value, str):
        return _javascript(context, fields, value, negate=negate)
    if plain_kind in _JUDGED:
        return _judged(context, fields, plain_kind, value, negate=negate)
    label = kind if value is None else f"{kind} {shown(value, _SHOWN)}"
    if plain_kind in ("cost", "latency") and not negate:
        return _limit(context.prompt, plain_kind, fields.given("threshold"))
    if plain_kind == "trajectory:tool-used":
        return _tools_used(context.prompt, label, value, negate=negate)
    if kind == "trajectory:tool-sequence":
        return _tools_in_order(context.prompt, label, value)
    return _of_answer(context.prompt, label, plain_kind, value, negate=negate)


def _limit(prompt: str, kind: str, most: Any) -> Check:
    if not is_number(most):
        raise LostAssertion(f"{kind} without a threshold")
    name, size = ("cost_usd", most) if kind == "cost" else ("seconds", most / 1000)
    return assertion_check(prompt, f"{kind} {most:g}", holds("at_most", size, target=name))


def _of_answer(prompt: str, label: str, kind: str, value: Any, *, negate: bool) -> Check:
    """Return the check of the answer, or of the skills that were loaded."""
    match kind:
        case "contains-all" | "icontains-all" | "contains-any" | "icontains-any":
            return _several(prompt, label, kind, value, negate=negate)
        case "is-json" | "contains-json" if not negate:
            return _json(prompt, label, value, is_whole=kind == "is-json")
        case "equals" if isinstance(value, Mapping | list) and not negate:
            return _exact(prompt, label, value)
        case "skill-used":
            return _skills(prompt, label, value, negate=negate)
        case "word-count":
            assertion = _words(value, negate=negate)
        case _ if isinstance(value, str | int | float) and not isinstance(value, bool):
            assertion = _by_type(kind, str(value), negate=negate)
        case _:
            raise LostAssertion(f"whet has no equivalent of {'not-' * negate}{kind} with this value")
    return assertion_check(prompt, label, assertion)


def _exact(prompt: str, label: str, value: Any) -> Check:
    return Check(grader="answer", params={"case": ExactMatch(instruction=prompt, expected=value)}, label=label)


def _judged(context: AssertionContext, fields: Fields, kind: str, value: Any, *, negate: bool) -> Check:
    """Return the check by a judge; the threshold of an assertion outranks the usual one."""
    texts = [str(text) for text in (value if isinstance(value, list) and kind == "g-eval" else [value])]
    if not isinstance(value, str | list) or not all(text.strip() for text in texts) or not texts:
        raise LostAssertion(f"whet has no equivalent of {kind} with this value")
    if kind.endswith("factuality"):
        texts = [f"{_REFERENCE}{texts[0]}"]
    if negate:
        texts = [f"This is not the case: {text}" for text in texts]
    check = statement(texts[0], context.prompt)
    case: LlmRubric = check.params["case"]
    if len(texts) > 1:
        items = tuple(RubricItem(id=str(number), description=text) for number, text in enumerate(texts, 1))
        case = replace(case, rubric=items)
        check = Check(grader="rubric", params={"case": case}, label="g-eval")
    threshold = fields.number("threshold", least=0, most=1)
    if threshold is None:
        return check
    return replace(check, params={**check.params, "case": replace(case, pass_threshold=float(threshold))})


def _several(prompt: str, label: str, kind: str, value: Any, *, negate: bool) -> Check:
    texts = split_values(value) if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise LostAssertion(f"{kind} without texts to look for")
    match: Match = "all" if kind.endswith("all") != negate else "any"
    parts = [_contains(str(text), any_case=kind.startswith("i"), negate=negate) for text in texts]
    return assertion_check(prompt, label, *parts, match=match)


def _contains(text: str, *, any_case: bool, negate: bool) -> Assertion:
    return contains_anyhow(text, negate=negate) if any_case else holds("contains", text, negate=negate)


def _skills(prompt: str, label: str, value: Any, *, negate: bool) -> Check:
    """Return whether skills were loaded; that asks about the skill, so it has no part in comparisons."""
    tool = value.get("name") if isinstance(value, Mapping) and set(value) == {"name"} else value
    names = tool if isinstance(tool, list) else [tool]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise LostAssertion("skill-used with more than names")
    parts = [holds("skill_triggered", name, negate=negate) for name in names]
    return assertion_check(prompt, label, *parts, compared=False)


def _tools_used(prompt: str, label: str, value: Any, *, negate: bool) -> Check:
    """Return whether tools were called, or how often those were whose names a pattern matches."""
    table = value if isinstance(value, Mapping) else {}
    tool = table.get("pattern", table.get("name")) if table else value
    names = tool if isinstance(tool, list) else [tool]
    least, most = table.get("min"), table.get("max")
    if not is_whole(least or 0, 0) or not is_whole(most or 0, 0):
        raise LostAssertion("trajectory:tool-used without whole numbers")
    bounds = {"least": least, "most": most}
    parts = [holds("tool_matched", match, negate=negate, **bounds) for match in _tool_matches(names)]
    return assertion_check(prompt, label, *parts)


def _tools_in_order(prompt: str, label: str, value: Any) -> Check:
    table = value if isinstance(value, Mapping) else {"steps": value}
    if table.get("mode", "in_order") != "in_order" or not isinstance(table.get("steps"), list):
        raise LostAssertion("trajectory:tool-sequence other than steps in their order")
    return assertion_check(prompt, label, holds("tools_in_order", tuple(_tool_matches(table["steps"]))))


def _tool_matches(names: Sequence[Any]) -> list[ToolMatch]:
    """Return what calls of tools with these names look like, where `*` is any characters."""
    if not names or not all(isinstance(name, str) and name for name in names):
        raise LostAssertion("tools without names")
    sources = (_SIGNS.sub(lambda hit: _WILD.get(hit[0], rf"\{hit[0]}"), name) for name in names)
    return [ToolMatch(name=f"/^{source}$/") for source in sources]


def _words(value: Any, *, negate: bool) -> Assertion:
    """Return the assertion about the number of words, which is a pattern of words with blanks between them."""
    table = value if isinstance(value, Mapping) else {"min": value, "max": value}
    least, most = table.get("min", 0), table.get("max")
    if not isinstance(least, int) or not isinstance(most, int | None) or (most is not None and most < max(least, 1)):
        raise LostAssertion("word-count without whole numbers")
    upper = "" if most is None else str(most - 1)
    some = rf"\s*(?:\S+\s+){{{max(least - 1, 0)},{upper}}}\S+\s*"
    none = "" if least else r"|\s*"
    pattern = f"/^(?:{some}{none})$/"
    title = f"{'not ' if negate else ''}from {least} to {'any number of' if most is None else most} words"
    return holds("regex", pattern, negate=negate, description=title)


def _by_type(kind: str, text: str, *, negate: bool) -> Assertion:
    match kind:
        case "equals":
            return holds("equals", text, negate=negate)
        case "contains" | "icontains":
            return _contains(text, any_case=kind == "icontains", negate=negate)
        case "starts-with":
            begins = str(contains_anyhow(text, start="^").value).removesuffix("i")
            return holds("regex", begins, negate=negate, description=f"{'not ' * negate}starts with {text!r}")
        case "regex":
            try:
                read_pattern(f"/{text}/")
            except ClaimError as error:
                raise LostAssertion(f"regex, because {error.message}") from None
            return holds("regex", f"/{text}/", negate=negate)
        case _:
            raise LostAssertion(f"whet has no equivalent of {'not-' * negate}{kind} with this value")


def _json(prompt: str, label: str, value: Any, *, is_whole: bool) -> Check:
    schema = _schema(value)
    try:
        check_schema(schema)
    except SchemaTrouble as error:
        raise LostAssertion(f"its schema cannot be used: {error}") from None
    extract = "whole" if is_whole else "first_json_block"
    case = JsonSchema(instruction=prompt, schema=schema, extract=extract)  # type: ignore[arg-type]
    return Check(grader="answer", params={"case": case}, label=label)


def _schema(value: Any) -> Any:
    """Return a schema that may be written as YAML in a text; without one any JSON will do."""
    if isinstance(value, str):
        try:
            value = read_yaml(value).root.plain()
        except (DocumentError, SuiteError):
            raise LostAssertion("a schema that is no YAML") from None
    if value is None:
        return True
    if not isinstance(value, Mapping):
        raise LostAssertion("a schema that is no object")
    return value


def _javascript(context: AssertionContext, fields: Fields, value: str, *, negate: bool) -> Check:
    """Return the check that Node.js decides, which is where promptfoo is; whet needs it for nothing else."""
    if shutil.which(_NODE) is None:
        raise LostAssertion("javascript, because there is no node on PATH")
    file, function, code = None, "", ""
    if value.startswith(FILE):
        name, _, function = value.removeprefix(FILE).partition(":")
        file = context.sources.paths(name)[0]
        if file.suffix not in _SCRIPTS:
            raise LostAssertion(f"javascript in {file.name}, which node does not run as it is")
        context.sources.read.append(file)
    else:
        code = value.rstrip()
    threshold = fields.number("threshold")
    call = JavascriptCall(
        code=code,
        file=None if file is None else str(file),
        function=function,
        threshold=None if threshold is None else float(threshold),
        negate=negate,
        prompt=context.prompt,
        values=dict(context.values),
        config=fields.given("config"),
    )
    label = " ".join(f"{'not-' * negate}javascript {value}".split())
    return Check(grader="javascript", params={"call": call}, label=shown(label, _SHOWN).strip('"'))
