"""expect.soft: what does not hold is collected, and a check fails once with all of it."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent
from typing import Any

import pytest

from whet import Session, expect
from whet.checks.asserts.rewrite import compile_rewritten
from whet.checks.collect import SoftThenCrashed, collecting
from whet.checks.message import ExpectationFailed, ExpectationsFailed, questions_of
from whet.model.events import CommandRun
from whet.model.grade import FailureClass

REPORT = Session(
    runner="demo", agent="scripted", prompt="Go.", final_output="done", events=(CommandRun(command="pnpm test"),)
)
GROUPS = ("skills", "commands", "file_reads", "tool_calls", "output", "files", "usage")
BASICS = ("ok", "equal", "not_equal", "match", "does_not_match", "raises")


def _checked(check: Callable[[], object]) -> BaseException:
    """What comes of a check in the scope that every check has."""
    with pytest.raises(BaseException) as caught, collecting():
        check()
    return caught.value


def _methods(group: object) -> dict[str, inspect.Signature]:
    found = inspect.getmembers(group, inspect.ismethod)
    return {name: inspect.signature(method) for name, method in found if not name.startswith("_")}


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_has_a_soft_mirror_with_the_same_methods(group: str) -> None:
    hard, soft = getattr(expect, group), getattr(expect.soft, group)

    assert type(soft) is type(hard)
    assert soft is not hard
    assert _methods(soft) == _methods(hard)
    assert _methods(hard)


@pytest.mark.parametrize("name", BASICS)
def test_every_basic_has_a_soft_mirror(name: str) -> None:
    assert inspect.signature(getattr(expect.soft, name)) == inspect.signature(getattr(expect, name))


def test_all_that_does_not_hold_is_told_at_the_end_in_order_with_its_places() -> None:
    seen: list[str] = []

    def check() -> None:
        expect.soft.commands.includes(REPORT, "cargo")
        expect.soft.commands.includes(REPORT, "pnpm")
        expect.soft.output.includes(REPORT, "finished")
        expect.soft.equal(1, 2)
        seen.append("went on")

    error = _checked(check)

    assert seen == ["went on"]
    assert isinstance(error, ExpectationsFailed)
    first = check.__code__.co_firstlineno
    assert str(error) == dedent(f"""\
        3 expectations do not hold
        1. test_expect_soft.py:{first + 1}: expected a command matching "cargo"
           observed 1 command:
             1. pnpm test
        2. test_expect_soft.py:{first + 3}: expected the output to match "finished"
           observed 4 characters: done
        3. test_expect_soft.py:{first + 4}: expected 2
           observed 1""")
    assert error.location is not None
    assert (error.location.file, error.location.line) == (__file__, first + 1)


def test_what_holds_softly_is_no_failure() -> None:
    with collecting() as failures:
        expect.soft.commands.includes(REPORT, "pnpm")
        expect.soft.ok(True)

    assert failures == []


def test_a_single_one_is_told_as_it_is() -> None:
    error = _checked(lambda: expect.soft.equal(1, 2))

    assert isinstance(error, ExpectationFailed)
    assert str(error) == "expected 2\nobserved 1"


def test_a_hard_failure_that_follows_comes_last() -> None:
    def check() -> None:
        expect.soft.ok(False, "first")
        expect.soft.ok(False, "second")
        expect.ok(False, "third")
        raise AssertionError("never reached")

    error = _checked(check)

    assert isinstance(error, ExpectationsFailed)
    assert [str(each).split("\n")[0] for each in error.failures] == ["first", "second", "third"]
    assert str(error).startswith("3 expectations do not hold\n1. ")


def test_another_exception_that_follows_comes_last_and_loses_nothing() -> None:
    def check() -> None:
        expect.soft.ok(False, "first")
        raise KeyError("second")

    error = _checked(check)

    assert isinstance(error, SoftThenCrashed)
    assert isinstance(error.crash, KeyError)
    assert isinstance(error.__cause__, KeyError)
    assert "1. test_expect_soft.py" in str(error)
    assert "KeyError: 'second'" in str(error)


def test_an_exception_without_soft_failures_before_it_stays_what_it_is() -> None:
    def check() -> None:
        raise KeyError("alone")

    assert type(_checked(check)) is KeyError


def test_an_exit_that_follows_loses_nothing_either() -> None:
    def check() -> None:
        expect.soft.ok(False, "first")
        sys.exit(3)

    error = _checked(check)

    assert "first" in str(error)


def test_outside_of_a_check_a_soft_failure_is_raised_at_once() -> None:
    with pytest.raises(ExpectationFailed, match="not so"):
        expect.soft.ok(False, "not so")

    with pytest.raises(AssertionError, match="not so"), expect.soft():
        raise AssertionError("not so")


def test_a_check_that_is_over_collects_nothing_any_more() -> None:
    _checked(lambda: expect.soft.ok(False))

    with pytest.raises(ExpectationFailed, match="later"):
        expect.soft.ok(False, "later")


def test_soft_failures_of_async_checks_are_collected() -> None:
    async def part(name: str) -> None:
        await asyncio.sleep(0)
        expect.soft.ok(False, name)

    async def check() -> None:
        await part("one")
        await asyncio.gather(part("two"), part("three"))

    error = _checked(lambda: asyncio.run(check()))

    assert isinstance(error, ExpectationsFailed)
    assert [str(each).split("\n")[0] for each in error.failures] == ["one", "two", "three"]


def test_checks_in_threads_of_their_own_do_not_mix() -> None:
    found: dict[str, BaseException] = {}
    both = threading.Barrier(2)

    def check(name: str) -> None:
        expect.soft.ok(False, f"{name} one")
        both.wait()
        expect.soft.ok(False, f"{name} two")

    def work(name: str) -> None:
        found[name] = _checked(lambda: check(name))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert "b one" not in str(found["a"])
    assert "a one" not in str(found["b"])


def _in_a_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_what_fails_in_a_thread_of_a_check_is_not_lost() -> None:
    def fails_plainly() -> None:
        raise AssertionError("three")

    def check() -> None:
        _in_a_thread(lambda: expect.soft.ok(False, "one"))
        _in_a_thread(lambda: expect.ok(False, "two"))
        _in_a_thread(fails_plainly)
        with ThreadPoolExecutor(1) as pool:
            list(pool.map(lambda name: expect.soft.ok(False, name), ("four", "five")))

    error = _checked(check)

    assert isinstance(error, ExpectationsFailed)
    assert [str(each).split("\n")[0] for each in error.failures] == ["one", "two", "three", "four", "five"]


def test_a_thread_is_let_fail_as_ever_when_the_check_is_over() -> None:
    before = threading.excepthook

    _checked(lambda: _in_a_thread(lambda: expect.ok(False)))

    assert threading.excepthook is before


def test_all_that_fails_in_a_group_of_tasks_is_told() -> None:
    async def one(name: str) -> None:
        expect.ok(False, name)

    async def check() -> None:
        with expect.classify("slow"):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(one("first"))
                tasks.create_task(one("second"))

    error = _checked(lambda: asyncio.run(check()))

    assert isinstance(error, ExpectationsFailed)
    assert [str(each).split("\n")[0] for each in error.failures] == ["first", "second"]
    assert error.failure_class == FailureClass(id="slow")


def test_a_crash_in_a_group_of_tasks_stays_a_crash_and_is_named() -> None:
    def check() -> None:
        raise ExceptionGroup("tasks", [ValueError("broken"), ExceptionGroup("more", [AssertionError("not so")])])

    error = _checked(check)

    assert isinstance(error, SoftThenCrashed)
    assert "not so" in str(error)
    assert "ValueError: broken" in str(error)


def test_a_group_of_one_is_that_one() -> None:
    def check() -> None:
        raise ExceptionGroup("tasks", [KeyError("x")])

    error = _checked(check)

    assert isinstance(error, KeyError)


def _rewritten(source: str, **names: Any) -> dict[str, Any]:
    """A module whose asserts explain themselves, as suites have them."""
    exec(compile_rewritten(dedent(source).encode(), "/suites/shop.py"), names)
    return names


def test_every_plain_assert_of_a_soft_block_is_collected() -> None:
    module = _rewritten(
        """
        def check(value, seen):
            with expect.soft():
                assert value == 1
                assert value == 3
                assert value < 2, "too many"
                seen.append("inside")
            seen.append("after")
            assert value == 5
        """,
        expect=expect,
    )
    seen: list[str] = []

    error = _checked(lambda: module["check"](3, seen))

    assert seen == ["inside", "after"]
    assert isinstance(error, ExpectationsFailed)
    assert str(error).splitlines() == [
        "3 expectations do not hold",
        "1. shop.py:4: assert value == 1",
        "     left:  value = 3",
        "2. shop.py:6: too many",
        "   assert value < 2",
        "     left:  value = 3",
        "3. shop.py:9: assert value == 5",
        "     left:  value = 3",
    ]


def test_every_expectation_of_a_soft_block_is_soft() -> None:
    seen: list[str] = []

    def check() -> None:
        with expect.soft():
            expect.ok(False, "first")
            with expect.classify("wrong"):
                expect.commands.includes(REPORT, "cargo", message="second")
            seen.append("inside")
        expect.ok(False, "third")

    error = _checked(check)

    assert seen == ["inside"]
    assert isinstance(error, ExpectationsFailed)
    assert [str(each).split("\n")[0] for each in error.failures] == ["first", "second", "third"]
    assert error.failure_class == FailureClass(id="wrong")


def test_a_soft_block_outside_of_a_check_tells_all_of_it_at_its_end() -> None:
    seen: list[str] = []

    def test() -> None:
        with expect.soft():
            expect.ok(False, "first")
            with expect.soft():
                expect.soft.ok(False, "second")
            seen.append("inside")

    with pytest.raises(ExpectationsFailed) as caught:
        test()

    assert seen == ["inside"]
    assert [str(each).split("\n")[0] for each in caught.value.failures] == ["first", "second"]


def test_after_a_soft_block_expectations_are_hard_again() -> None:
    def check() -> None:
        with expect.soft():
            pass
        expect.ok(False, "first")
        expect.ok(False, "never")

    error = _checked(check)

    assert "never" not in str(error)


def test_another_exception_leaves_a_soft_block() -> None:
    def check() -> None:
        with expect.soft():
            expect.soft.ok(False, "first")
            raise KeyError("second")

    error = _checked(check)

    assert isinstance(error, SoftThenCrashed)
    assert "first" in str(error)


def test_soft_methods_that_give_values_give_none_where_there_is_none() -> None:
    given: list[object] = []

    def check() -> None:
        given.append(expect.soft.output.json(REPORT))
        given.append(expect.soft.output.matches_schema(REPORT, {}))
        given.append(expect.soft.raises(ValueError, lambda: None))

    assert str(_checked(check)).startswith("3 expectations do not hold")
    assert given == [None, None, None]


def test_the_questions_of_all_are_kept_in_order_with_their_places() -> None:
    def check() -> None:
        expect.soft.commands.includes(REPORT, "cargo", explain="Why no cargo?")
        expect.soft.ok(False)
        expect.output.includes(REPORT, "x", explain="Why no x?")

    asked = questions_of(_checked(check))

    assert [each.question for each in asked] == ["Why no cargo?", "Why no x?"]
    assert [each.location.line - check.__code__.co_firstlineno for each in asked if each.location] == [1, 3]


def test_classes_survive_merging_and_the_first_is_that_of_the_whole() -> None:
    def check() -> None:
        expect.soft.ok(False, "no class")
        with expect.classify("alias", label="Wrong alias"):
            expect.soft.ok(False, "one")
        with expect.classify("tests"), expect.soft():
            expect.ok(False, "two")
        expect.ok(False, "hard")

    error = _checked(check)

    assert isinstance(error, ExpectationsFailed)
    assert [getattr(each, "failure_class", None) for each in error.failures] == [
        None,
        FailureClass(id="alias", label="Wrong alias"),
        FailureClass(id="tests"),
        None,
    ]
    assert error.failure_class == FailureClass(id="alias", label="Wrong alias")


def test_a_class_survives_an_exception_that_follows() -> None:
    def check() -> None:
        with expect.classify("alias"):
            expect.soft.ok(False)
        raise KeyError("x")

    error = _checked(check)

    assert isinstance(error, SoftThenCrashed)
    assert error.failure_class == FailureClass(id="alias")
