"""expect.output: the answer's text, or the JSON that it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from whet import Session, expect

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "ports": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name"],
}


def _answer(text: str) -> Session:
    return Session(runner="demo", agent="scripted", prompt="Go.", final_output=text)


def _said(call: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("matcher", ["42", re.compile(r"\d+"), str.isascii], ids=["string", "pattern", "predicate"])
def test_the_answer_is_matched_by_every_kind_of_matcher(matcher: Any) -> None:
    report = _answer("It is 42.")

    expect.output.includes(report, matcher)

    said = _said(lambda: expect.output.not_includes(report, matcher))
    assert said.startswith("expected the output not to match ")
    assert said.endswith("\nobserved 9 characters: It is 42.")


def test_an_answer_that_does_not_match_is_shown() -> None:
    expect.output.not_includes(_answer("It is\n42."), "43")

    said = _said(lambda: expect.output.includes(_answer("It is\n42."), "43"))

    assert said == 'expected the output to match "43"\nobserved 9 characters: It is\\n42.'
    assert _said(lambda: expect.output.includes(_answer(""), re.compile("x"))) == (
        "expected the output to match /x/\nobserved no output"
    )


def test_an_answer_says_something() -> None:
    expect.output.not_empty(_answer(" yes "))

    assert _said(lambda: expect.output.not_empty(_answer(""))) == "expected some output\nobserved no output"
    assert _said(lambda: expect.output.not_empty(_answer(" \n"))) == "expected some output\nobserved 2 characters:  \\n"


@pytest.mark.parametrize("method", ["includes", "not_includes"])
@pytest.mark.parametrize("matcher", [None, 3, ["a"], b"a"], ids=repr)
def test_what_cannot_look_for_anything_is_refused(method: str, matcher: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(matcher).__name__}"):
        getattr(expect.output, method)(_answer("a"), matcher)


@pytest.mark.parametrize(
    "text",
    ['{"name": "web"}', ' {"name": "web"}\n', '```json\n{"name": "web"}\n```', '\n```\n{"name":\n"web"}\n```\n'],
)
def test_an_answer_that_is_json_is_given_as_its_value(text: str) -> None:
    value = expect.output.json(_answer(text))

    assert value == {"name": "web"}
    assert expect.output.json(_answer(text), lambda found: found["name"] == "web") == value


def test_an_answer_that_is_no_json_is_told_where_it_ceases_to_be() -> None:
    said = _said(lambda: expect.output.json(_answer('{"name": web}')))

    assert said == (
        "expected the output to be JSON, but Expecting value: line 1 column 10 (char 9)\n"
        'observed 13 characters: {"name": web}'
    )
    assert "observed no output" in _said(lambda: expect.output.json(_answer("")))


def test_json_that_does_not_satisfy_is_told_with_the_name_of_the_condition() -> None:
    def has_a_port(found: Any) -> bool:
        return "port" in found

    said = _said(lambda: expect.output.json(_answer('{"name": "web"}'), has_a_port))

    assert said.startswith("expected the output to be JSON that satisfies has_a_port\nobserved 15 characters")


def test_json_that_is_nested_without_end_is_a_failure_of_the_agent() -> None:
    said = _said(lambda: expect.output.json(_answer("[" * 100_000)))

    assert said.startswith("expected the output to be JSON, but ")


def test_an_answer_that_its_schema_allows_is_given_as_its_value() -> None:
    value = expect.output.matches_schema(_answer('{"name": "web", "ports": [80]}'), SCHEMA)

    assert value == {"name": "web", "ports": [80]}


def test_everything_that_a_schema_does_not_allow_is_told_with_its_place() -> None:
    said = _said(lambda: expect.output.matches_schema(_answer('{"ports": [80, "x"]}'), SCHEMA))

    lines = said.splitlines()
    assert lines[0] == "expected the output to match the schema, but"
    assert sorted(lines[1:3]) == [
        '  (the whole): "name" is a required property',
        '  ports/1: "x" is not of type "integer"',
    ]
    assert lines[3] == 'observed 20 characters: {"ports": [80, "x"]}'


def test_of_very_many_problems_the_first_are_told() -> None:
    ports = ", ".join(['"x"'] * 1000)

    said = _said(lambda: expect.output.matches_schema(_answer(f'{{"name": "web", "ports": [{ports}]}}'), SCHEMA))

    lines = said.splitlines()
    assert lines[11] == "  and more"
    assert len(lines) == 13


def test_an_answer_that_is_no_json_has_no_schema_to_be_held_to() -> None:
    said = _said(lambda: expect.output.matches_schema(_answer("nothing"), SCHEMA))

    assert said.startswith("expected the output to be JSON, but Expecting value")


def test_a_schema_says_by_itself_which_draft_it_follows() -> None:
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": True}

    expect.output.matches_schema(_answer("2"), draft_4)

    assert "3 is greater than or equal to the maximum of 3" in _said(
        lambda: expect.output.matches_schema(_answer("3"), draft_4)
    )


def test_a_schema_that_is_none_is_the_author_s_mistake_and_no_failure() -> None:
    with pytest.raises(ValueError, match="strin"):
        expect.output.matches_schema(_answer("1"), {"type": "strin"})


def test_the_words_of_the_author_come_first() -> None:
    said = _said(lambda: expect.output.json(_answer("x"), message="tools read this"))

    assert said.splitlines()[0] == "tools read this"


@pytest.mark.parametrize("schema", [None, 3, "object", [1]])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(TypeError, match="a schema is a map"):
        expect.output.matches_schema(_answer("{}"), schema)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "objekt"}, "objekt"),
        ({"$ref": "#/$defs/nope"}, "nope"),
        ({"$ref": "http://127.0.0.1:9/x.json"}, "is outside of the schema, and whet fetches nothing"),
        ({"$ref": "file:///etc/hostname"}, "is outside of the schema, and whet fetches nothing"),
    ],
)
def test_a_schema_with_a_fault_in_it_is_refused_whatever_was_said(schema: dict[str, Any], said: str) -> None:
    for output in ("{}", "no JSON"):
        with pytest.raises(ValueError, match=f"this is not a JSON Schema: .*{re.escape(said)}"):
            expect.output.matches_schema(_answer(output), schema)


def test_a_schema_may_allow_everything_or_nothing() -> None:
    expect.output.matches_schema(_answer("{}"), True)

    with pytest.raises(AssertionError):
        expect.output.matches_schema(_answer("{}"), False)
