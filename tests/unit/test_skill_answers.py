"""Answers of skills are read strictly, and what strangers tell of tokens is believed within reason."""

from __future__ import annotations

import pytest

from whet.callable.clients.contract import read_answer
from whet.model.session import token_count
from whet.reading.documents import DEEPEST_VALUE as DEEPEST
from whet.reading.documents import DocumentError


@pytest.mark.parametrize("text", ['{"a": [1, 2.5, null, true, "x"]}', "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1), '"x"'])
def test_json_is_an_answer(text: str) -> None:
    assert read_answer(text) is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not JSON"),
        ("{'a': 1}", "is not JSON"),
        ("[NaN]", "has the number NaN"),
        ('{"a": -Infinity}', "has the number -Infinity"),
        ("[[1e999]]", "a number that is too large"),
        ("9" * 5000, "number is too long"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested deeper than"),
        ("[" * 500_000, "nested deeper than"),
        ('{"a":' * 900 + "1" + "}" * 900, "nested deeper than"),
    ],
)
def test_what_others_could_not_read_is_no_answer(text: str, told: str) -> None:
    with pytest.raises(DocumentError, match=told):
        read_answer(text)


@pytest.mark.parametrize(("told", "tokens"), [(7, 7), ("7", 7), (0, 0)])
def test_a_number_of_tokens_is_one(told: object, tokens: int) -> None:
    assert token_count(told) == tokens


@pytest.mark.parametrize("told", [None, True, -1, 1.5, "", "-3", "seven", "\u0667", "9" * 400, 10**30, [1]])
def test_what_can_be_no_number_of_tokens_is_as_good_as_nothing(told: object) -> None:
    assert token_count(told) is None
