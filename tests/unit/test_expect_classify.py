"""expect.classify: failures are given a class, as a block or around a call, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

from whet import FailureClass, Session, expect
from whet.checks.asserts.rewrite import compile_rewritten
from whet.checks.message import ExpectationFailed
from whet.model.events import CommandRun

REPORT = Session(runner="demo", agent="scripted", prompt="Go.", events=(CommandRun(command="pnpm test"),))
ALIAS = FailureClass(id="wrong-cli-alias", label="Wrong CLI alias")


def _class(call: Callable[[], object]) -> FailureClass | None:
    with pytest.raises(AssertionError) as caught:
        call()
    found: FailureClass | None = getattr(caught.value, "failure_class", None)
    return found


def test_a_failure_inside_a_block_has_its_class() -> None:
    def check() -> None:
        with expect.classify("wrong-cli-alias", label="Wrong CLI alias"):
            expect.commands.includes(REPORT, "npm run")

    assert _class(check) == ALIAS


def test_a_plain_assert_inside_a_block_has_its_class() -> None:
    def check() -> None:
        with expect.classify("wrong-cli-alias"):
            raise AssertionError("not so")

    assert _class(check) == FailureClass(id="wrong-cli-alias")


def test_a_plain_assert_of_a_suite_has_its_class() -> None:
    source = """
        def check(value):
            with expect.classify("wrong-cli-alias"):
                assert value == 4
    """
    names: dict[str, Any] = {"expect": expect}
    exec(compile_rewritten(dedent(source).encode(), "/suites/shop.py"), names)

    assert _class(lambda: names["check"](3)) == FailureClass(id="wrong-cli-alias")


def test_a_class_may_be_given_whole() -> None:
    def check() -> None:
        with expect.classify(ALIAS):
            expect.ok(False)

    assert _class(check) == ALIAS


def test_a_failure_after_the_block_has_no_class() -> None:
    def check() -> None:
        with expect.classify(ALIAS):
            expect.ok(True)
        expect.ok(False)

    assert _class(check) is None


def test_the_innermost_block_wins() -> None:
    def check() -> None:
        with expect.classify("outer"), expect.classify("inner"):
            expect.ok(False)

    assert _class(check) == FailureClass(id="inner")


def test_after_an_inner_block_the_outer_one_holds_again() -> None:
    def check() -> None:
        with expect.classify("outer"):
            with expect.classify("inner"):
                expect.ok(True)
            expect.ok(False)

    assert _class(check) == FailureClass(id="outer")


def test_a_failure_that_has_a_class_keeps_it() -> None:
    def check() -> None:
        with expect.classify("outer"):
            error = ExpectationFailed("not so")
            error.failure_class = ALIAS
            raise error

    assert _class(check) == ALIAS


def test_a_call_gives_what_it_gives_and_its_failure_has_the_class() -> None:
    assert expect.classify("alias", lambda: 42) == 42

    assert _class(lambda: expect.classify("alias", lambda: expect.ok(False), label="Alias")) == FailureClass(
        id="alias", label="Alias"
    )


def test_an_async_call_is_awaited_and_its_failure_has_the_class() -> None:
    async def answers(value: int) -> int:
        await asyncio.sleep(0)
        expect.equal(value, 42)
        return value

    async def check(value: int) -> int:
        found: int = await expect.classify("alias", lambda: answers(value))
        return found

    assert asyncio.run(check(42)) == 42
    assert _class(lambda: asyncio.run(check(41))) == FailureClass(id="alias")


def test_a_block_holds_across_an_await_and_not_in_other_tasks() -> None:
    classes: list[FailureClass | None] = []

    async def other(started: asyncio.Event) -> None:
        await started.wait()
        classes.append(_class(lambda: expect.ok(False)))

    async def check() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(other(started))
        with expect.classify("alias"):
            started.set()
            await task
            expect.ok(False)

    classes.append(_class(lambda: asyncio.run(check())))

    assert classes == [None, FailureClass(id="alias")]


def test_any_exception_inside_a_block_has_its_class() -> None:
    with pytest.raises(KeyError) as caught, expect.classify("alias"):
        raise KeyError("x")

    assert getattr(caught.value, "failure_class", None) == FailureClass(id="alias")


def test_an_exception_that_is_no_assertion_passes_through_as_it_is() -> None:
    with pytest.raises(KeyError, match="x"), expect.classify("alias"):
        raise KeyError("x")


def test_a_call_gives_what_it_gives() -> None:
    assert expect.classify("slow", lambda: 42) == 42


@pytest.mark.parametrize(("given", "error"), [(None, TypeError), (3, TypeError), ("", ValueError), (" ", ValueError)])
def test_a_class_without_an_id_is_refused_at_once(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="a failure class has an id"):
        expect.classify(given)


def test_what_a_call_gave_in_place_of_the_function_is_refused() -> None:
    async def look() -> None:
        pass

    call: Any = look()

    with pytest.raises(TypeError, match="pass the function itself, not the coroutine"):
        expect.classify("slow", call)
