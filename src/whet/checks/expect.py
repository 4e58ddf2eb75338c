"""`expect`: all groups under one name, hard and soft."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar, overload

from whet.checks.basics import Basics
from whet.checks.collect import classifying, fail_hard, fail_softly, soft_block
from whet.checks.files import FilesGroup
from whet.checks.lines import CommandsGroup, FileReadsGroup
from whet.checks.message import Fail
from whet.checks.output import OutputGroup, UsageGroup
from whet.checks.skills import SkillsGroup
from whet.checks.tools import ToolCallsGroup
from whet.model.grade import FailureClass

T = TypeVar("T")


class _Groups(Basics):
    """Every group, with one place where failures go."""

    def __init__(self, fail: Fail) -> None:
        super().__init__(fail)
        self.skills = SkillsGroup(fail)
        self.commands = CommandsGroup(fail)
        self.file_reads = FileReadsGroup(fail)
        self.tool_calls = ToolCallsGroup(fail)
        self.output = OutputGroup(fail)
        self.files = FilesGroup(fail)
        self.usage = UsageGroup(fail)


class Soft(_Groups):
    """The same expectations, collected: the check goes on, and the trial fails once with all of them."""

    def __init__(self) -> None:
        super().__init__(fail_softly)

    def __call__(self) -> AbstractContextManager[None]:
        """A block whose plain asserts are collected too, each of them; the check goes on after it."""
        return soft_block()


class Expect(_Groups):
    """Expectations over what an agent did."""

    def __init__(self) -> None:
        super().__init__(fail_hard)
        self.soft = Soft()

    @overload
    def classify(self, id: str | FailureClass, *, label: str | None = None) -> AbstractContextManager[None]: ...
    @overload
    def classify(self, id: str | FailureClass, call: Callable[[], T], *, label: str | None = None) -> T: ...
    def classify(
        self,
        id: str | FailureClass,  # noqa: A002 - the author's word
        call: Callable[[], Any] | None = None,
        *,
        label: str | None = None,
    ) -> Any:
        """Give failures a class: as a block, or around a call, which may be async; what the call gives."""
        failure_class = _class(id, label)
        if call is None:
            return classifying(failure_class)
        if not callable(call):
            raise TypeError(f"pass the function itself, not the {_close_and_name(call)} that calling it returned")
        with classifying(failure_class):
            result = call()
        return _await_classified(result, failure_class) if inspect.isawaitable(result) else result


def _close_and_name(foreign: object) -> str:
    """Return the name of its type; close a coroutine, so that Python does not complain about it too."""
    if inspect.iscoroutine(foreign):
        foreign.close()
    return type(foreign).__name__


def _class(identifier: str | FailureClass, label: str | None) -> FailureClass:
    if isinstance(identifier, FailureClass):
        return identifier
    if not isinstance(identifier, str):
        raise TypeError(f"a failure class has an id, a string, not a {type(identifier).__name__}")
    if not identifier.strip():
        raise ValueError("a failure class has an id, which must not be empty")
    return FailureClass(id=identifier, label=label)


async def _await_classified(awaitable: Any, failure_class: FailureClass) -> Any:
    with classifying(failure_class):
        return await awaitable


expect = Expect()
