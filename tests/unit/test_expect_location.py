"""Where a failure says that it happened: the line of the author's that asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from whet import Changes, CheckContext, Session, expect
from whet.checks.message import ExpectationFailed
from whet.model.events import CommandRun

REPORT = Session(runner="demo", agent="scripted", prompt="Go.", events=(CommandRun(command="pnpm test"),))


def _failure(call: Callable[[], object]) -> ExpectationFailed:
    with pytest.raises(ExpectationFailed) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    "call",
    [
        lambda: expect.ok(False),
        lambda: expect.equal(1, 2),
        lambda: expect.raises(ValueError, lambda: None),
        lambda: expect.commands.includes(REPORT, "x"),
        lambda: expect.commands.exactly_one(REPORT, "x"),
        lambda: expect.commands.succeeded(REPORT, "x"),
        lambda: expect.file_reads.first(REPORT, "x"),
        lambda: expect.tool_calls.sequence(REPORT, ["x"]),
        lambda: expect.skills.has(REPORT, "x"),
        lambda: expect.output.json(REPORT),
        lambda: expect.usage.steps(REPORT, at_most=-1),
        lambda: expect.soft.commands.last(REPORT, "x"),
        lambda: expect.classify("x", lambda: expect.ok(False)),
    ],
)
def test_a_failure_names_the_line_that_asked(call: Callable[[], object]) -> None:
    error = _failure(call)

    assert error.location is not None
    assert error.location.file == __file__
    assert error.location.line == call.__code__.co_firstlineno


def test_a_failure_of_files_names_the_line_that_asked(tmp_path: Path) -> None:
    ctx = CheckContext(REPORT, tmp_path, Changes(), lambda argv, timeout_s: pytest.fail("nothing runs"))

    error = _failure(lambda: expect.files.created(ctx, "x"))

    assert error.location is not None
    assert error.location.file == __file__


def _helper(report: Session) -> None:
    expect.commands.includes(report, "cargo")


def test_a_helper_s_line_is_named_where_a_helper_asks() -> None:
    error = _failure(lambda: _helper(REPORT))

    assert error.location is not None
    assert error.location.line == _helper.__code__.co_firstlineno + 1


def test_a_suite_beside_the_package_is_not_taken_for_it() -> None:
    path = f"{Path(whet.__file__).parent}_suites/shop.py"
    names: dict[str, Any] = {"expect": expect}
    exec(compile("def check():\n    expect.ok(False)\n", path, "exec"), names)

    error = _failure(names["check"])

    assert error.location is not None
    assert (error.location.file, error.location.line) == (path, 2)


def test_a_question_stays_with_the_failure() -> None:
    error = _failure(lambda: expect.commands.includes(REPORT, "cargo", explain="Why did you not use cargo?"))

    assert error.question == "Why did you not use cargo?"
    assert _failure(lambda: expect.commands.includes(REPORT, "cargo")).question is None
