"""Where a failed expectation goes: it is raised at once, or collected until the check is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from whet.asserting.failure import collecting as explained_asserts
from whet.expectations.failure import ExpectationsFailed
from whet.model.grade import FailureClass

E = TypeVar("E", bound=Exception)

_collected: ContextVar[list[AssertionError] | None] = ContextVar("collected", default=None)
_class: ContextVar[FailureClass | None] = ContextVar("failure_class", default=None)


@contextmanager
def collecting() -> Iterator[list[AssertionError]]:
    """A scope, such as one check, in which soft failures are collected; the failures are raised together at its end.

    Whatever else is raised inside comes last in the list, so that nothing that was seen before it is lost.
    """
    failures: list[AssertionError] = []
    token = _collected.set(failures)
    try:
        yield failures
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if not failures:
            raise
        raise _together([*failures, error]) from error
    finally:
        _collected.reset(token)
    if failures:
        raise _together(failures)


def _together(failures: Sequence[BaseException]) -> BaseException:
    last = failures[-1]
    if len(failures) == 1:
        return last
    merged = ExpectationsFailed(failures)
    if isinstance(last, AssertionError):
        return merged
    return SoftThenCrashed(merged, last)


class SoftThenCrashed(Exception):
    """A check that raised something else after soft expectations had failed; it tells of both."""

    def __init__(self, merged: ExpectationsFailed, crash: BaseException) -> None:
        super().__init__(str(merged))
        self.failures = merged.failures
        self.location = merged.location
        self.failure_class = merged.failure_class
        self.crash = crash


def fail_hard(error: AssertionError) -> None:
    """Raise it."""
    raise classified(error)


def fail_softly(error: AssertionError) -> None:
    """Collect it, or raise it where nobody collects, so that it is never lost."""
    failures = _collected.get()
    if failures is None:
        raise classified(error)
    failures.append(classified(error))


def classified(error: E) -> E:
    """The error with the class of the block around it, unless it has one of its own."""
    current = _class.get()
    if current is not None and getattr(error, "failure_class", None) is None:
        error.failure_class = current  # type: ignore[attr-defined] # any exception can be classified
    return error


@contextmanager
def classifying(failure_class: FailureClass) -> Iterator[None]:
    """Give every failure inside this class; the innermost block wins."""
    token = _class.set(failure_class)
    try:
        yield
    except Exception as error:
        classified(error)
        raise
    finally:
        _class.reset(token)


@contextmanager
def soft_block() -> Iterator[None]:
    """A block whose failures are all collected: each plain assert in turn, and whatever assertion ends the block."""

    def take(error: AssertionError) -> bool:
        fail_softly(error)
        return True

    try:
        with explained_asserts(take):
            yield
    except AssertionError as error:
        fail_softly(error)
