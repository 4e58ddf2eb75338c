"""Where a failed expectation goes: raised at once, or collected until the check is over."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeVar

from whet.checks.asserts.explain import collecting as explained_asserts
from whet.checks.message import ExpectationsFailed
from whet.model.grade import FailureClass

E = TypeVar("E", bound=BaseException)
_failures: ContextVar[list[AssertionError] | None] = ContextVar("collected", default=None)
_class: ContextVar[FailureClass | None] = ContextVar("failure_class", default=None)
_in_soft_block: ContextVar[bool] = ContextVar("in_soft_block", default=False)
# The lists of all scopes that are open in this process, in which a check is alone.
_open: list[list[AssertionError]] = []
_lock = threading.Lock()


@contextmanager
def collecting() -> Iterator[list[AssertionError]]:
    """Collect soft failures during the block, such as one check, and raise them together at its end.

    Any other exception comes last in the list, so that nothing before it is lost.
    """
    failures: list[AssertionError] = []
    token = _failures.set(failures)
    try:
        with threads_may_fail(failures):
            yield failures
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        errors = [*failures, *_members(error)]
        if len(errors) == 1 and errors[0] is error:
            raise
        raise _merge_failures(errors) from error
    finally:
        _failures.reset(token)
    if failures:
        raise _merge_failures(failures)


def _members(error: BaseException) -> list[BaseException]:
    """Return the members of a group of exceptions, as `asyncio.TaskGroup` raises; crashes last, so that they decide."""
    # By its type: the exception itself may run any code.
    if not issubclass(type(error), BaseExceptionGroup):
        return [error]
    assert isinstance(error, BaseExceptionGroup)
    failure_class: FailureClass | None = getattr(error, "failure_class", None)
    members = [leaf for inner in error.exceptions for leaf in _members(_with_class(inner, failure_class))]
    return sorted(members, key=lambda member: not issubclass(type(member), AssertionError))


def _merge_failures(failures: Sequence[BaseException]) -> BaseException:
    last = failures[-1]
    if len(failures) == 1:
        return last
    error = ExpectationsFailed(failures)
    if issubclass(type(last), AssertionError):
        return error
    return SoftThenCrashed(error, last)


class SoftThenCrashed(Exception):
    """A check raised something else after soft expectations had failed; the message has both."""

    def __init__(self, failure: ExpectationsFailed, crash: BaseException) -> None:
        super().__init__(str(failure))
        self.failures = failure.failures
        self.location = failure.location
        self.failure_class = failure.failure_class
        self.crash = crash


def fail_hard(error: AssertionError) -> None:
    """Raise it, unless a soft block around it makes it soft."""
    if _in_soft_block.get():
        fail_softly(error)
    else:
        raise add_class(error)


def fail_softly(error: AssertionError) -> None:
    """Collect a failure, or raise it if no scope is open, so that it is never lost."""
    failures = _failures.get()
    if failures is None:
        failures = of_a_thread()
    if failures is None:
        raise add_class(error)
    failures.append(add_class(error))


def add_class(error: E) -> E:
    """Return the error, with the class of the block around it unless it has one."""
    return _with_class(error, _class.get())


def _with_class(error: E, failure_class: FailureClass | None) -> E:
    if failure_class is not None and getattr(error, "failure_class", None) is None:
        error.failure_class = failure_class  # type: ignore[attr-defined] # any exception can be classified
    return error


@contextmanager
def classifying(failure_class: FailureClass) -> Iterator[None]:
    """Give every failure inside this class; the innermost block wins."""
    token = _class.set(failure_class)
    try:
        yield
    except Exception as error:
        add_class(error)
        raise
    finally:
        _class.reset(token)


@contextmanager
def soft_block() -> Iterator[None]:
    """Make every expectation and every plain assert of the block soft; without a scope around it, it is one."""
    has_scope = _failures.get() is not None or of_a_thread() is not None
    with nullcontext() if has_scope else collecting(), _softly():
        yield


@contextmanager
def hard_block() -> Iterator[None]:
    """Make everything in the block hard again, inside of a soft one."""
    token = _in_soft_block.set(False)
    try:
        with explained_asserts(lambda _: False):
            yield
    finally:
        _in_soft_block.reset(token)


@contextmanager
def _softly() -> Iterator[None]:
    """Collect each plain assert and each expectation, and any other assertion that ends the block."""

    def take(error: AssertionError) -> bool:
        fail_softly(error)
        return True

    token = _in_soft_block.set(True)
    try:
        with explained_asserts(take):
            yield
    except AssertionError as error:
        fail_softly(error)
    finally:
        _in_soft_block.reset(token)


@contextmanager
def threads_may_fail(failures: list[AssertionError]) -> Iterator[None]:
    """Collect in *failures* what fails in threads that are started inside."""
    with _lock:
        _open.append(failures)
    before = threading.excepthook

    def take(args: threading.ExceptHookArgs) -> None:
        if isinstance(args.exc_value, AssertionError):
            failures.append(args.exc_value)
        else:
            before(args)

    # With scopes in several threads it is unknown whose thread it was.
    alone = of_a_thread() is failures
    if alone:
        threading.excepthook = take
    try:
        yield
    finally:
        if alone:
            threading.excepthook = before
        with _lock:
            # By identity: two scopes in which nothing failed are equal lists.
            _open[:] = [scope for scope in _open if scope is not failures]


def of_a_thread() -> list[AssertionError] | None:
    """Return where a thread without a scope collects: in the only open scope, or nowhere."""
    return _open[0] if len(_open) == 1 else None
