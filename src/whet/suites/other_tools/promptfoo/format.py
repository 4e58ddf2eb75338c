"""The format of promptfoo: each test with each prompt and each combination of its variables is a case."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.model.suite import Case, Suite
from whet.reading.fields import Fields
from whet.reading.text import shown
from whet.reading.yaml import checked_root
from whet.suites.document_formats import document_format
from whet.suites.other_tools.promptfoo.assertions import AssertionContext, lower_assertions
from whet.suites.other_tools.promptfoo.logic import UnfilledTemplate
from whet.suites.other_tools.promptfoo.prompts import PromptTemplate, prompts_of
from whet.suites.other_tools.promptfoo.sources import FILE, Sources, UnreadSource
from whet.suites.other_tools.promptfoo.templates import (
    CONVERSATION,
    absent_variables,
    fill_template,
    fill_values,
)
from whet.suites.other_tools.shared import MANIFEST, ForeignDocument, case_id, new_case
from whet.suites.split.fields import PART_FIELDS

_TOP = (
    *("description", "prompts", "providers", "targets", "tests", "scenarios", "defaultTest", "assertionTemplates"),
    "$schema",
)
_SCENARIO = ("description", "config", "tests")
_TEST = ("description", "vars", "assert", "threshold", "options", "assertScoringFunction", *PART_FIELDS)
_OPTIONS = ("prefix", "suffix", "disableDefaultAsserts", "disableVarExpansion", "transform", "postprocess")
# What changes an answer before it is checked.
_TRANSFORMS = ("transform", "postprocess")
# Of a configuration of a red team.
_WRITTEN = "name the file that promptfoo writes them into, and tests with assertions"
_MOST_CASES = 10_000
_MOST_TESTS = 100_000
# Providers that are agents, and how a runner calls them.
_AGENTS = {
    "anthropic:claude-agent-sdk": "claude-code",
    "anthropic:claude-code": "claude-code",
    "openai:codex": "codex",
    "opencode:": "opencode",
}


class PromptfooFormat:
    """A YAML or JSON file with `prompts`, or with `providers` and `tests`."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* is such a configuration."""
        return document_format(path) == "promptfoo"

    def lower(self, path: Path) -> Suite:
        """Read the file and those that it names; what cannot be carried over is a loss."""
        document = ForeignDocument.read(path)
        document.lose_unknown(document.top, _TOP)
        _lose_providers(document)
        configuration = _Configuration(document)
        cases = configuration.cases()
        sources = configuration.sources
        findings = document.top.findings
        for item in sources.findings:
            findings.problems += item.problems
            findings.warnings += item.warnings
        skill = path.parent if (path.parent / MANIFEST).is_file() else None
        return document.suite(
            cases,
            name=None,
            digest=sources.digest if len(sources.read) > 1 else None,
            description=document.top.text("description") or "",
            usual_skill=skill,
            held_out=tuple(dict.fromkeys(sources.read)),
        )


def _lose_providers(document: ForeignDocument) -> None:
    """Say which runners the settings should have instead of the providers."""
    for name in ("providers", "targets"):
        value = document.top.given(name)
        for item in value if isinstance(value, list) else [value]:
            provider = item.get("id") if isinstance(item, Mapping) else item
            if item is not None:
                document.lose(document.top, name, f"runners are named in the settings{_runner(provider)}")


def _runner(provider: Any) -> str:
    if not isinstance(provider, str):
        return ""
    kind, _, command = provider.partition(":")
    agent = next((ours for prefix, ours in _AGENTS.items() if provider.startswith(prefix)), None)
    if agent is not None:
        return f': for {provider}, type = "{agent}"'
    if kind == "exec":
        program, _, words = command.strip().partition(" ")
        return f': for {provider}, type = "command", command = {shown(program)}, args = {shown(words.split())}'
    return f": {provider} is no program and no agent that is known here"


class _WrittenTest(Struct, frozen=True):
    """A test with what holds for it: its own fields, its options and the checks of all tests."""

    fields: Fields
    id_field: str
    name: str
    options: Fields
    values: Mapping[str, Any]
    usual: Fields


class _Configuration:
    """A configuration while its tests are read."""

    def __init__(self, document: ForeignDocument) -> None:
        self.sources = Sources(document)
        self._document = document
        self._prompts = tuple(prompts_of(document, self.sources))
        self._usual = self._read_usual()
        document.lose_unknown(self._usual, _TEST)
        self._names: Counter[str] = Counter()
        # By prompt and id: promptfoo goes on with each from test to test.
        self._conversations: set[tuple[str, str]] = set()

    def cases(self) -> list[tuple[Fields, str, Case]]:
        """Return the cases of all tests, each with its fields and the field of its id."""
        cases: list[tuple[Fields, str, Case]] = []
        for number, fields in enumerate(self._tests(), 1):
            cases += self._cases_of(self._test(fields, number))
            if len(cases) > _MOST_CASES:
                message = f"make more than {_MOST_CASES:,} cases with all prompts and variables"
                self._document.top.problem("tests", message)
                break
        return cases

    def _read_usual(self) -> Fields:
        """Return what holds for every test, here or in a file."""
        top = self._document.top
        value = top.given("defaultTest")
        if not isinstance(value, str):
            return top.table("defaultTest")
        try:
            return self.sources.table(value)
        except UnreadSource as error:
            self._document.lose_check(top, "defaultTest", f"what holds for every test: {error}")
            return replace(top, values={}, path="defaultTest")

    def _tests(self) -> Iterator[Fields]:
        """Yield the tests, here and in files; without any, what holds for all of them is the only one."""
        top = self._document.top
        value = top.given("tests")
        for place, item in top.items("scenarios"):
            yield from self._tests_of_scenario(top.object(place, item))
        if value is None and top.given("scenarios"):
            return
        if value is None and self._usual.given("assert"):
            yield replace(top, values={}, path="tests")
        elif isinstance(value, str | Mapping):
            yield from self._tests_of(top, "tests", value)
        elif value is None and top.given("redteam"):
            top.problem("redteam", "has no tests here: promptfoo makes those of a red team with models", _WRITTEN)
        elif top.has("tests", required=True):
            if value == []:
                top.problem("tests", "has no cases")
            for place, item in top.items("tests", most=_MOST_TESTS):
                yield from self._tests_of(top, place, item)

    def _tests_of_scenario(self, scenario: Fields) -> Iterator[Fields]:
        """Yield each test of a scenario with each set of its data."""
        self._document.lose_unknown(scenario, _SCENARIO)
        scenario.has("config", required=True)
        for place, item in scenario.items("config"):
            if not isinstance(item, Mapping):
                self._document.lose_case(scenario, place, "whet reads the data of scenarios in the configuration")
            elif not scenario.given("tests"):
                yield scenario.object(place, item)
            else:
                for test_place, test in scenario.items("tests"):
                    for fields in self._tests_of(scenario, test_place, test):
                        yield replace(fields, values=_with_data(fields.values, item))

    def _tests_of(self, owner: Fields, place: str, item: Any) -> Iterator[Fields]:
        """Yield the test at *place* of *owner*, or those in the files that it names."""
        is_reference = isinstance(item, Mapping) and "path" in item and not {"vars", "assert"} & set(item)
        reference = item["path"] if is_reference else item
        if not isinstance(reference, str):
            fields = owner.object(place, item)
            if fields.values:
                yield fields
            return
        try:
            yield from self.sources.tests(reference)
        except UnreadSource as error:
            self._document.lose_case(owner, place, str(error))

    def _test(self, fields: Fields, number: int) -> _WrittenTest:
        document = self._document
        id_field, name = case_id(fields, ("description",), number)
        self._names[name] += 1
        if self._names[name] > 1:
            # Authors need not give each test its own description.
            name = f"{name} ({self._names[name]})"
        fields.case = name
        document.lose_unknown(fields, _TEST)
        usual = replace(self._usual, case=name)
        options = replace(fields, values={**usual.table("options").values, **fields.table("options").values})
        values = {**self._variables(usual), **self._variables(fields)}
        return _WrittenTest(fields, id_field, name, options, fill_values(values), usual)

    def _variables(self, fields: Fields) -> dict[str, Any]:
        value = fields.given("vars")
        if isinstance(value, str | list):
            values: dict[str, Any] = {}
            for reference in value if isinstance(value, list) else [value]:
                values |= self._variables_in(fields, str(reference))
            return values
        table = fields.table("vars")
        return {name: self._value(table, name, item) for name, item in table.values.items()}

    def _variables_in(self, fields: Fields, reference: str) -> dict[str, Any]:
        try:
            return dict(self.sources.table(reference).values)
        except UnreadSource as error:
            self._document.lose(fields, "vars", f"variables from a file: {error}")
            return {}

    def _value(self, fields: Fields, name: str, value: Any) -> Any:
        """Return the value of a variable; of one that names files, their texts, and None if they cannot be read."""
        if not isinstance(value, str) or not value.startswith(FILE):
            return value
        try:
            texts = list(map(self._text_of, self.sources.paths(value)))
        except UnreadSource as error:
            self._document.lose(fields, name, str(error))
            return _Unread()
        return texts if len(texts) > 1 else texts[0]

    def _text_of(self, path: Path) -> str:
        """Return the text of a file as promptfoo puts it into a prompt: YAML as JSON, and all else without its ends."""
        text = self.sources.text(path)
        if path.suffix.lower() in (".yaml", ".yml"):
            return json.dumps(checked_root(path).plain(), ensure_ascii=False, separators=(",", ":"))
        return text.strip()

    def _cases_of(self, test: _WrittenTest) -> Iterator[tuple[Fields, str, Case]]:
        is_whole = test.options.given("disableVarExpansion") is True
        several = [value if _is_expanded(value) and not is_whole else [value] for value in test.values.values()]
        size = prod(map(len, several))
        if not 1 <= size <= _MOST_CASES:
            test.fields.problem("vars", f"must make from 1 to {_MOST_CASES:,} combinations")
            return
        for row_number, row in enumerate(product(*several), 1):
            values_of_row = dict(zip(test.values, row, strict=True))
            for prompt in self._prompts:
                parts = (
                    test.name,
                    prompt.label if len(self._prompts) > 1 else "",
                    str(row_number) if size > 1 else "",
                )
                name = " / ".join(part for part in parts if part)
                case = self._case(test, name, prompt, values_of_row)
                if case is not None:
                    yield replace(test.fields, case=name), test.id_field, case

    def _case(self, test: _WrittenTest, name: str, prompt: PromptTemplate, values: Mapping[str, Any]) -> Case | None:
        fields = replace(test.fields, case=name)
        around = (test.options.given("prefix") or "", prompt.text, test.options.given("suffix") or "")
        template = "".join(map(str, around))
        absent = absent_variables(template, values)
        all_values = {**dict.fromkeys(absent), **values}
        if CONVERSATION in template:
            if not self._begins_conversation(test.fields, prompt):
                why = "the case, because it goes on with a conversation that an earlier test began"
                self._document.lose_case(fields, test.id_field, why)
                return None
            all_values[CONVERSATION] = []
        try:
            text = fill_template(template, all_values)
        except UnfilledTemplate as error:
            self._document.lose_case(fields, test.id_field, f"the case, because its prompt {error}")
            return None
        if not text.strip():
            self._document.lose_case(fields, test.id_field, "the case, because its prompt is empty")
            return None
        if absent:
            fields.warn("vars", f"has no {' and no '.join(absent)}, so that nothing is in that place of the prompt")
        usual = replace(test.usual, case=name)
        context = AssertionContext(self._document, self.sources, text, values)
        checks = list(lower_assertions(context, fields))
        if test.options.given("disableDefaultAsserts") is not True:
            checks = [*lower_assertions(context, usual), *checks]
        self._lose_other_deciders(fields, usual, replace(test.options, case=name))
        decider = fields if fields.given("threshold") is not None else usual
        threshold = decider.number("threshold", least=0, most=1)
        passes_from = None if threshold is None else float(threshold)
        return new_case(fields, name, text, checks, pass_threshold=passes_from)

    def _begins_conversation(self, fields: Fields, prompt: PromptTemplate) -> bool:
        """Return whether no test before this one is in the same conversation."""
        metadata = fields.given("metadata")
        conversation = metadata.get("conversationId") if isinstance(metadata, Mapping) else None
        key = (prompt.label, str(conversation))
        is_first = key not in self._conversations
        self._conversations.add(key)
        return is_first

    def _lose_other_deciders(self, fields: Fields, usual: Fields, options: Fields) -> None:
        """Note what else decides whether a test passes: a program for the score, and one that changes the answer."""
        document = self._document
        owner = fields if fields.given("assertScoringFunction") is not None else usual
        if owner.given("assertScoringFunction") is not None:
            why = "whet takes the weighted mean of the checks, and lets no program decide"
            document.lose_check(owner, "assertScoringFunction", why)
        for name in options.values:
            if name in _TRANSFORMS:
                document.lose_check(fields, f"options.{name}", "whet changes no answer before its checks")
            elif name not in _OPTIONS:
                document.lose(fields, f"options.{name}")


def _is_expanded(value: Any) -> bool:
    """Return whether each item of a variable is a case of its own: of a list of texts, and of no other."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _with_data(test: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a test of a scenario with one set of its data: what the test says itself comes first."""
    test_with_data: dict[str, Any] = {**data, **test}
    for name in ("vars", "options"):
        if isinstance(data.get(name), Mapping) and isinstance(test.get(name), Mapping):
            test_with_data[name] = {**data[name], **test[name]}
    if isinstance(data.get("assert"), list) and isinstance(test.get("assert"), list):
        test_with_data["assert"] = [*test["assert"], *data["assert"]]
    return test_with_data


class _Unread:
    """The value of a variable whose file cannot be read: a prompt with it is lost."""
