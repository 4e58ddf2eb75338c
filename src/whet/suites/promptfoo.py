"""Configurations of promptfoo: prompts with variables, tests, and those assertions that have an equal here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import ClaimError
from whet.model.eval_cases import Assertion, JsonSchema
from whet.model.suite import Case, Check, Suite
from whet.reading.document_files import document_format
from whet.reading.fields import Fields, is_number
from whet.reading.patterns import read_pattern
from whet.reading.schemas import SchemaTrouble, check_schema
from whet.reading.text import shown
from whet.suites.foreign import (
    MANIFEST,
    Foreign,
    asserted,
    case_id,
    contains_anyhow,
    find_fixture,
    holds,
    new_case,
    statement,
)

_TOP = ("description", "prompts", "providers", "targets", "tests", "defaultTest", "$schema")
_TEST = ("description", "vars", "assert")
_ASSERT = ("type", "value", "threshold", "weight", "metric")
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][\w.]*)\s*\}\}")
_LOGIC = re.compile(r"\{\{|\{%|\{#")
_MOST_CASES = 10_000
_LARGEST = 1024 * 1024
_FILE = "file://"
# Providers that are agents, and how a runner calls them.
_AGENTS = {
    "anthropic:claude-agent-sdk": "claude-code",
    "anthropic:claude-code": "claude-code",
    "openai:codex": "codex",
    "opencode:": "opencode",
}


@dataclass(frozen=True, slots=True)
class _Prompt:
    label: str
    text: str


class PromptfooFormat:
    """A YAML or JSON file with `prompts`, or with `providers` and `tests`."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* is such a configuration."""
        return document_format(path) == "promptfoo"

    def lower(self, path: Path) -> Suite:
        """Read the file; what cannot be carried over is a warning."""
        document = Foreign.read(path)
        top = document.top
        document.lose_unknown(top, _TOP)
        _lose_providers(document)
        prompts = tuple(_prompts(document))
        usual = _usual(document)
        document.lose_unknown(usual, _TEST)
        cases: list[tuple[Fields, str, Case]] = []
        for given, number in document.cases("tests", lost=_elsewhere):
            cases += _cases(document, given, number, prompts, usual)
            if len(cases) > _MOST_CASES:
                top.problem("tests", f"make more than {_MOST_CASES:,} cases with all prompts and variables")
                break
        skill = path.parent if (path.parent / MANIFEST).is_file() else None
        named = top.text("description")
        return document.suite(cases, name=None, description=named or "", usual_skill=skill)


def _elsewhere(item: Any) -> str | None:
    """Return why tests that others write down, or a program makes, are not carried over."""
    named = item.get("path") if isinstance(item, Mapping) and not {"vars", "assert"} & set(item) else item
    return f"the tests in {shown(named)}: write them into this file" if isinstance(named, str) else None


def _usual(document: Foreign) -> Fields:
    """Return what holds for every test, if this file says it."""
    top = document.top
    if isinstance(top.given("defaultTest"), str):
        document.lose(top, "defaultTest", f"what {shown(top.values['defaultTest'])} says of every test")
        return replace(top, values={})
    return top.table("defaultTest")


def _lose_providers(document: Foreign) -> None:
    """Say which runners the settings should have instead of the providers."""
    for name in ("providers", "targets"):
        value = document.top.given(name)
        for item in value if isinstance(value, list) else [value] if value is not None else []:
            written = item if isinstance(item, str) else item.get("id") if isinstance(item, Mapping) else None
            document.lose(document.top, name, f"runners are named in the settings{_runner(written)}")


def _runner(written: Any) -> str:
    if not isinstance(written, str):
        return ""
    kind, _, rest = written.partition(":")
    agent = next((ours for theirs, ours in _AGENTS.items() if written.startswith(theirs)), None)
    if agent is not None:
        return f': for {written}, type = "{agent}"'
    if kind == "exec":
        program, _, words = rest.strip().partition(" ")
        return f': for {written}, type = "command", command = {shown(program)}, args = {shown(words.split())}'
    return f": {written} is no program and no agent that is known here"


def _prompts(document: Foreign) -> Iterator[_Prompt]:
    top = document.top
    value = top.given("prompts")
    listed = value if isinstance(value, list) else [value] if value is not None else ["{{prompt}}"]
    for index, item in enumerate(listed):
        place = f"prompts[{index}]" if isinstance(value, list) else "prompts"
        given = top.object(place, item) if isinstance(item, Mapping) else None
        raw = (given.text("raw") or given.text("id")) if given else top.text_at(place, item)
        label = (given.text("label") or given.text("id")) if given else None
        text = None if raw is None else _read(document, top, place, raw)
        if text is not None:
            yield _Prompt(label or str(index + 1), text)


def _read(document: Foreign, given: Fields, place: str, text: str) -> str | None:
    """Return *text*, or what is in the file that it names; None if that cannot be carried over."""
    if not text.startswith(_FILE):
        return text
    found = find_fixture(text.removeprefix(_FILE), (document.path.parent,))
    if found is None or not found.is_file() or found.suffix not in (".txt", ".md", ".yaml", ".yml", ".json", ""):
        document.lose(given, place, f"{shown(text)} is not a text file in the folder of the configuration")
        return None
    if found.stat().st_size > _LARGEST:
        document.lose(given, place, f"{shown(text)} has more than {_LARGEST // 1024} KiB")
        return None
    return found.read_text("utf-8", "replace")


def _cases(
    document: Foreign, given: Fields, number: int, prompts: Sequence[_Prompt], usual: Fields
) -> Iterator[tuple[Fields, str, Case]]:
    id_field, name = case_id(given, ("description",), number)
    given.case = name
    document.lose_unknown(given, _TEST)
    variables = {**_variables(document, usual), **_variables(document, given)}
    several = [value if isinstance(value, list) else [value] for value in variables.values()]
    rows = list(product(*several)) if _size(several) <= _MOST_CASES else []
    if not rows:
        given.problem("vars", f"must make from 1 to {_MOST_CASES:,} combinations")
    for row_number, row in enumerate(rows, 1):
        values = dict(zip(variables, row, strict=True))
        for prompt in prompts:
            parts = (name, prompt.label if len(prompts) > 1 else "", str(row_number) if len(rows) > 1 else "")
            own = replace(given, case=" / ".join(part for part in parts if part))
            text = _filled(prompt.text, values)
            if text is None:
                document.lose(own, id_field, "the case, because its prompt has more than plain variables in it")
                continue
            checks = (*_checks(document, usual, text, values), *_checks(document, own, text, values))
            yield own, id_field, new_case(own, own.case or name, text, checks)


def _size(several: list[list[Any]]) -> int:
    size = 1
    for values in several:
        size *= len(values)
    return size


def _variables(document: Foreign, given: Fields) -> dict[str, Any]:
    if isinstance(given.given("vars"), str):
        document.lose(given, "vars", "variables from a file")
        return {}
    found: dict[str, Any] = {}
    table = given.table("vars")
    for name, value in table.values.items():
        found[name] = _read(document, table, name, value) if isinstance(value, str) else value
    return found


def _filled(text: str, values: Mapping[str, Any]) -> str | None:
    """Return *text* with its variables filled in; None if it has anything else of a template in it."""
    unknown = False

    def fill(found: re.Match[str]) -> str:
        nonlocal unknown
        value = values.get(found[1])
        if not isinstance(value, str | int | float):
            unknown = True
        return str(value).lower() if isinstance(value, bool) else str(value)

    plain = _VARIABLE.sub("", text)
    filled = _VARIABLE.sub(fill, text)
    return None if unknown or _LOGIC.search(plain) else filled


def _checks(document: Foreign, given: Fields, prompt: str, values: Mapping[str, Any]) -> Iterator[Check]:
    for place, item in given.items("assert"):
        own = given.object(place, item)
        kind = own.text("type", required=True)
        if kind == "assert-set" and own.given("threshold") is None:
            yield from _checks(document, own, prompt, values)
            continue
        if kind is None:
            continue
        document.lose_unknown(own, _ASSERT)
        if own.given("weight") == 0:
            document.lose(own, "weight", "an assertion that decides nothing")
            continue
        value = own.given("value")
        if isinstance(value, str):
            value = _filled(value, values)
        elif isinstance(value, list):
            value = [_filled(each, values) if isinstance(each, str) else each for each in value]
        check = _check(document, own, kind, value, prompt) if value is not None or "value" not in own.values else None
        if check is None:
            document.lose(own, "type", f"whet has no equivalent of {kind} with this value")
        else:
            yield replace(check, weight=own.number("weight", above=0) or 1.0)


def _check(document: Foreign, given: Fields, kind: str, value: Any, prompt: str) -> Check | None:
    negate, kind = kind.startswith("not-"), kind.removeprefix("not-")
    label = f"{'not-' if negate else ''}{kind} {shown(value, 100)}" if value is not None else kind
    texts = [str(each) for each in (value if isinstance(value, list) else [value])]
    match kind:
        case "llm-rubric" | "model-graded-closedqa" if isinstance(value, str) and not negate:
            if given.given("threshold") is not None:
                document.lose(given, "threshold", "a statement holds from 0.7 on")
            return statement(value, prompt)
        case "contains-all" | "icontains-all" | "contains-any" | "icontains-any" if isinstance(value, list):
            every = kind.endswith("all") != negate
            parts = (_contains(each, any_case=kind.startswith("i"), negate=negate) for each in texts)
            return asserted(prompt, label, *parts, match="all" if every else "any") if texts else None
        case "is-json" | "contains-json" if not negate:
            return _json(value, whole=kind == "is-json", prompt=prompt, label=label)
        case "cost" | "latency" if is_number(most := given.given("threshold")) and not negate:
            name, size = ("cost_usd", most) if kind == "cost" else ("seconds", most / 1000)
            return asserted(prompt, f"{kind} {most}", holds("at_most", size, target=name))
        case _ if isinstance(value, str | int | float):
            found = _by_type(kind, texts[0], negate=negate)
            return None if found is None else asserted(prompt, label, found)
        case _:
            return None


def _contains(text: str, *, any_case: bool, negate: bool) -> Assertion:
    return contains_anyhow(text, negate=negate) if any_case else holds("contains", text, negate=negate)


def _by_type(kind: str, text: str, *, negate: bool) -> Assertion | None:
    match kind:
        case "equals":
            return holds("equals", text, negate=negate)
        case "contains" | "icontains":
            return _contains(text, any_case=kind == "icontains", negate=negate)
        case "starts-with":
            begins = str(contains_anyhow(text, start="^").value).removesuffix("i")
            return holds("regex", begins, negate=negate, description=f"starts with {text!r}")
        case "regex":
            try:
                read_pattern(f"/{text}/")
            except ClaimError:
                return None
            return holds("regex", f"/{text}/", negate=negate)
        case _:
            return None


def _json(schema: Any, *, whole: bool, prompt: str, label: str) -> Check | None:
    if schema is not None and not isinstance(schema, Mapping):
        return None
    try:
        check_schema(True if schema is None else schema)
    except SchemaTrouble:
        return None
    extract = "whole" if whole else "first_json_block"
    case = JsonSchema(instruction=prompt, schema=True if schema is None else schema, extract=extract)  # type: ignore[arg-type]
    return Check(grader="answer", params={"case": case}, label=label)
