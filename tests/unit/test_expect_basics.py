"""The strict basics of expect: truth, equality, patterns and exceptions."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from whet import expect


def _said(call: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("value", [True, 1, "x", [0], object()])
def test_what_is_true_is_ok(value: object) -> None:
    expect.ok(value)


@pytest.mark.parametrize(("value", "shown"), [(False, "False"), (0, "0"), ("", "''"), ([], "[]"), (None, "None")])
def test_what_is_not_true_is_shown(value: object, shown: str) -> None:
    assert _said(lambda: expect.ok(value)) == f"expected something true, observed {shown}"


@pytest.mark.parametrize("value", [1, 1.5, "a", [1, {"a": (2,)}], None, True])
def test_equal_values_of_one_type_are_equal(value: object) -> None:
    expect.equal(value, value)

    assert _said(lambda: expect.not_equal(value, value)) == f"expected anything but {value!r}"


@pytest.mark.parametrize(("observed", "expected"), [(1, 2), ("1", 1), ([1], (1,)), (None, 0)])
def test_values_that_differ_or_are_of_two_types_are_not_equal(observed: object, expected: object) -> None:
    expect.not_equal(observed, expected)

    assert _said(lambda: expect.equal(observed, expected)) == f"expected {expected!r}\nobserved {observed!r}"


@pytest.mark.parametrize("pattern", [r"\d+", re.compile("IT", re.IGNORECASE)])
def test_a_pattern_is_searched_in_a_text(pattern: str | re.Pattern[str]) -> None:
    expect.match("it is 42", pattern)

    said = _said(lambda: expect.match("nothing", pattern))

    shown = pattern if isinstance(pattern, str) else pattern.pattern
    assert said == f"expected a match of /{shown}/\nobserved 'nothing'"


def test_a_pattern_that_must_not_be_found_is_told_with_what_it_found() -> None:
    expect.does_not_match("nothing", r"\d")

    said = _said(lambda: expect.does_not_match("it is 42", r"\d+"))

    assert said == "expected no match of /\\d+/, found '42'\nobserved 'it is 42'"


def _fails(kind: type[BaseException]) -> Callable[[], NoReturn]:
    def call() -> NoReturn:
        raise kind("no such luck")

    return call


@pytest.mark.parametrize("kind", [ValueError, (KeyError, ValueError), Exception])
def test_the_exception_that_was_asked_for_is_given(kind: Any) -> None:
    found = expect.raises(kind, _fails(ValueError))

    assert isinstance(found, ValueError)
    assert str(found) == "no such luck"


def test_another_exception_or_none_is_told() -> None:
    assert _said(lambda: expect.raises((KeyError, OSError), _fails(ValueError))) == (
        "expected KeyError or OSError, observed ValueError: no such luck"
    )
    assert _said(lambda: expect.raises(ValueError, lambda: None)) == "expected ValueError, observed no exception"


def test_what_ends_a_program_is_only_caught_where_it_is_asked_for() -> None:
    found = expect.raises(SystemExit, lambda: sys.exit(3))

    assert isinstance(found, SystemExit)
    with pytest.raises(SystemExit):
        expect.raises(ValueError, lambda: sys.exit(3))


@pytest.mark.parametrize(
    "call",
    [
        lambda: expect.ok(0, "first words"),
        lambda: expect.equal(1, 2, "first words"),
        lambda: expect.not_equal(1, 1, "first words"),
        lambda: expect.match("a", "b", "first words"),
        lambda: expect.does_not_match("a", "a", "first words"),
        lambda: expect.raises(ValueError, lambda: None, "first words"),
    ],
)
def test_the_words_of_the_author_come_first(call: Callable[[], object]) -> None:
    said = _said(call)

    assert said.startswith("first words\nexpected ")


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


def test_a_value_that_cannot_be_shown_still_fails_for_the_right_reason() -> None:
    said = _said(lambda: expect.equal(Broken(), 3))

    assert said == "expected 3\nobserved a Broken whose repr raises RuntimeError"


def test_two_types_that_look_alike_are_told_apart() -> None:
    class Name(str):
        __slots__ = ()

    said = _said(lambda: expect.equal(Name("a"), "a"))

    assert "Name" in said


def test_values_that_differ_in_their_type_alone_are_shown_with_it() -> None:
    assert _said(lambda: expect.equal(True, 1)) == "expected 1 (int)\nobserved True (bool)"
    assert _said(lambda: expect.equal(1, 1.0)) == "expected 1.0 (float)\nobserved 1 (int)"


@pytest.mark.parametrize(
    ("observed", "expected", "told"),
    [
        ([1], [True], "differs at [0]: 1 (int), expected True (bool)"),
        ({"a": [1, 2, 3]}, {"a": [1, 2, 4]}, "differs at ['a'][2]: 3, expected 4"),
        ({"a": (1, [2])}, {"a": (1, (2,))}, "differs at ['a'][1]: [2] (list), expected (2,) (tuple)"),
        ([1, 2], [1], "only observed has [1]: 2"),
        ("one\ntwo\n", "one\ntow\n", "- observed, + expected"),
    ],
)
def test_equality_looks_inside_and_says_where_values_differ(observed: object, expected: object, told: str) -> None:
    expect.not_equal(observed, expected)

    assert f"\n  {told}" in _said(lambda: expect.equal(observed, expected))


def test_equality_follows_no_circle_forever() -> None:
    one: list[object] = []
    one.append(one)

    expect.equal(one, one)
    expect.not_equal(one, [1])


def test_a_block_raises_what_was_asked_for() -> None:
    with expect.raises(ValueError, match="no.* number") as raised:
        raise ValueError("not a number")

    assert str(raised.error) == "not a number"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "expected ValueError with a match of /number/, observed no exception"),
        (KeyError("x"), "expected ValueError with a match of /number/, observed KeyError: 'x'"),
        (ValueError("a word"), "expected ValueError with a match of /number/, observed ValueError: a word"),
    ],
)
def test_a_block_or_a_call_that_raises_something_else_is_told(error: Exception | None, said: str) -> None:
    def call() -> None:
        if error is not None:
            raise error

    def block() -> None:
        with expect.raises(ValueError, match="number"):
            call()

    assert _said(block) == said
    assert _said(lambda: expect.raises(ValueError, call, match="number")) == said


def test_what_ends_a_program_leaves_the_block() -> None:
    def block() -> None:
        with expect.raises(ValueError):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        block()


def test_a_soft_block_around_it_does_not_take_what_must_be_raised() -> None:
    with expect.soft(), expect.raises(AssertionError, match="not so") as raised:
        expect.ok(False, "not so")

    assert raised.error is not None


async def _later() -> None:
    raise ValueError("later")


def test_what_is_awaited_in_a_block_may_raise() -> None:
    async def check() -> None:
        with expect.raises(ValueError, match="later"):
            await _later()

    asyncio.run(check())


@pytest.mark.parametrize("call", [_later, lambda: _later()])  # noqa: PLW0108 - a function that gives a coroutine
def test_a_call_that_is_async_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"await it in `with expect\.raises"):
        expect.raises(ValueError, call)


def test_a_coroutine_is_not_taken_for_something_true() -> None:
    with pytest.raises(TypeError, match="await it first"):
        expect.ok(_later())


@pytest.mark.parametrize(
    ("ask", "error", "said"),
    [
        (lambda given: given.raises(None, print), TypeError, "give the class of an exception"),
        (lambda given: given.raises(()), TypeError, "at least one"),
        (lambda given: given.raises(ValueError, 3), TypeError, "give a function to call, not a int"),
        (lambda given: given.match(None, "a"), TypeError, "looked for in a string, not in a NoneType"),
        (lambda given: given.match(b"abc", "a"), TypeError, "looked for in a string, not in a bytes"),
        (lambda given: given.match("abc", b"a"), TypeError, "not of bytes"),
        (lambda given: given.match("abc", 3), TypeError, "a pattern is a string or a compiled pattern, not a int"),
        (lambda given: given.does_not_match("abc", "("), ValueError, "is not a regular expression: missing"),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: Callable[[Any], object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ask(expect)
