"""The JSON in an agent's answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.grade.answers.assertions import NoJson, any_json, at_pointer, first_json, whole_json

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('Here:\n```json\n{"a": 1}\n```\nand [2]', {"a": 1}),
        ("```\nno json\n```\n```\n[3]\n```", [3]),
        ('it is {not} this, but [1, {"b": 2}] is', [1, {"b": 2}]),
        ("{{[7]", [7]),
    ],
)
def test_the_first_json_is_that_of_a_fence_or_else_of_the_text(text: str, value: Any) -> None:
    assert first_json(text) == value


@pytest.mark.parametrize("text", ["", "none at all", "{", "[" * 100_000])
def test_where_there_is_no_json_it_is_said(text: str) -> None:
    with pytest.raises(NoJson):
        any_json(text)


@given(_JSON)
def test_an_answer_that_is_json_is_read_as_the_value_that_it_is(value: Any) -> None:
    assert whole_json(f"\n {json.dumps(value)} ") == value


@pytest.mark.parametrize(("pointer", "value"), [("", {"a~": [1, {"/": 2}]}), ("/a~0/0", 1), ("/a~0/1/~1", 2)])
def test_a_pointer_leads_to_what_stands_there(pointer: str, value: Any) -> None:
    assert at_pointer({"a~": [1, {"/": 2}]}, pointer) == value


@pytest.mark.parametrize("pointer", ["/b", "/a/2", "/a/-1", "/a/01", "/a/0/x"])
def test_a_pointer_to_nothing_is_a_key_error(pointer: str) -> None:
    with pytest.raises(KeyError):
        at_pointer({"a": [1, 2]}, pointer)
