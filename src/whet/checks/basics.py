"""The strict basics, for any values: equality, truth, patterns and exceptions."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct

from whet.checks.asserts.values import difference, value_text
from whet.checks.collect import hard_block
from whet.checks.message import Expectations, shorten

Pattern = str | re.Pattern[str]
X = TypeVar("X", bound=BaseException)
_SHOWN = 1000
_SHORT = 200
_MOST_LINES = 20
_DEEPEST = 100
# The sides of a comparison, in the lines that name them.
_SIDES = re.compile(r"(^- |^only |, \+ )(left|right)\b")
_WORDS = {"left": "observed", "right": "expected"}


class Basics(Expectations):
    """Equality, truth, patterns and exceptions."""

    def ok(self, value: object, message: str | None = None) -> None:
        """The value is true."""
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError("a coroutine is always true: await it first")
        if inspect.isawaitable(value):
            raise TypeError(f"a {type(value).__name__} is always true: await it first")
        if callable(value):
            raise TypeError(f"{_describe_function(value)} is always true: call it, and pass its result")
        if not value:
            self._miss(f"expected something true, observed {_describe_value(value)}", message)

    def equal(self, observed: object, expected: object, message: str | None = None) -> None:
        """Both values are equal and of one type, also inside of lists and maps, so that True is not 1."""
        if not is_same(observed, expected):
            left, right = _describe_value(expected), _describe_value(observed)
            if left == right or _is_only_of_another_type(observed, expected):
                left, right = (
                    f"{text} ({type(value).__name__})" for text, value in ((left, expected), (right, observed))
                )
            details = "".join(f"\n  {line}" for line in differences(observed, expected))
            self._miss(f"expected {left}\nobserved {right}{details}", message)

    def not_equal(self, observed: object, other: object, message: str | None = None) -> None:
        """The values are not equal, or not of one type."""
        if is_same(observed, other):
            self._miss(f"expected anything but {_describe_value(other)}", message)

    def match(self, text: str, pattern: Pattern, message: str | None = None) -> None:
        """The pattern is found in the text."""
        if _search(pattern, text) is None:
            self._miss(f"expected a match of {_pattern(pattern)}\nobserved {_describe_value(text)}", message)

    def does_not_match(self, text: str, pattern: Pattern, message: str | None = None) -> None:
        """The pattern is not found in the text."""
        hit = _search(pattern, text)
        if hit is not None:
            excerpt = _describe_value(hit.group())
            self._miss(
                f"expected no match of {_pattern(pattern)}, found {excerpt}\nobserved {_describe_value(text)}", message
            )

    @overload
    def raises(
        self, kind: type[X] | tuple[type[X], ...], *, match: Pattern | None = None, message: str | None = None
    ) -> AbstractContextManager[Raised[X]]: ...
    @overload
    def raises(
        self,
        kind: type[X] | tuple[type[X], ...],
        call: Callable[[], object],
        message: str | None = None,
        *,
        match: Pattern | None = None,
    ) -> X | None: ...
    def raises(
        self,
        kind: type[X] | tuple[type[X], ...],
        call: Callable[[], object] | None = None,
        message: str | None = None,
        *,
        match: Pattern | None = None,
    ) -> AbstractContextManager[Raised[X]] | X | None:
        """The block, or the call, raises this, with a text in which *match* is found; the exception."""
        pattern = None if match is None else compile_pattern(match)
        block: Raising[X] = Raising(check_kind(kind), pattern, lambda text: self._miss(text, message))
        if call is None:
            return block
        error = _call_and_catch(call)
        if not block.observes(error) and error is not None:
            raise error
        return block.raised.error

    def _miss(self, text: str, message: str | None) -> None:
        self._expect(text, {"message": message})


class NotText(TypeError):
    """The value to search is not text. The agent may have caused it, so this is not a wrong call of the author."""


def _call_and_catch(call: Callable[[], object]) -> BaseException | None:
    """Return what the call raises; an async one raises nothing before it is awaited."""
    if not callable(call):
        raise TypeError(f"give a function to call, not a {type(call).__name__}")
    result: object = None
    with hard_block():
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - it is the observation
            return error
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("the result is async and raises nothing yet: await it in `with expect.raises(...):`")
    return None


def compile_pattern(pattern: Pattern) -> re.Pattern[str]:
    """Compile *pattern*."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{_describe_value(pattern)} is not a regular expression: {error}") from None
    except TypeError:
        raise TypeError(f"a pattern is a string or a compiled pattern, not a {type(pattern).__name__}") from None
    if not isinstance(expression.pattern, str):
        raise TypeError("a pattern is one of text, not of bytes")
    return expression


def _describe_function(function: object) -> str:
    name = getattr(function, "__name__", None)
    return f"a {type(function).__name__}" if name in (None, "<lambda>") else f"the function {name}"


def _is_only_of_another_type(observed: object, expected: object) -> bool:
    try:
        return type(observed) is not type(expected) and bool(observed == expected)
    except Exception:  # noqa: BLE001 - an author's `__eq__` may raise
        return False


def _search(pattern: Pattern, text: str) -> re.Match[str] | None:
    if not isinstance(text, str):
        raise NotText(f"a pattern is looked for in a string, not in a {type(text).__name__}: {_describe_value(text)}")
    return compile_pattern(pattern).search(text)


def _describe_value(value: object) -> str:
    try:
        return shorten(repr(value), _SHOWN)
    except Exception as error:  # noqa: BLE001 - a broken repr must not hide what did not hold
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def _pattern(pattern: Pattern) -> str:
    return f"/{shorten(pattern if isinstance(pattern, str) else pattern.pattern)}/"


class Raised(Struct, Generic[X]):
    """The exception of a block; known when the block is over."""

    error: X | None = None


def check_kind(kind: Any) -> tuple[type[Any], ...]:
    """Return the given kinds of exceptions, one or several."""
    kinds: tuple[Any, ...] = kind if isinstance(kind, tuple) else (kind,)
    for exception_class in kinds:
        if not (isinstance(exception_class, type) and issubclass(exception_class, BaseException)):
            raise TypeError(f"give the class of an exception, such as ValueError, not {shorten(repr(exception_class))}")
    if not kinds:
        raise TypeError("give the class of at least one exception")
    return kinds


class Raising(AbstractContextManager[Raised[X]]):
    """A block that should raise; plain asserts raise in it, also if a soft block is around it."""

    def __init__(self, kinds: tuple[type[X], ...], match: re.Pattern[str] | None, miss: Callable[[str], None]) -> None:
        self._kinds, self._match, self._miss = kinds, match, miss
        self._hard = hard_block()
        self.raised: Raised[X] = Raised()

    def __enter__(self) -> Raised[X]:
        self._hard.__enter__()
        return self.raised

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        # `_hard` only restores its settings: the exception is dealt with here.
        self._hard.__exit__(None, None, None)
        return self.observes(error)

    def observes(self, error: BaseException | None) -> bool:
        """Compare what was raised with what is wanted; leave alone what ends a program, such as SystemExit."""
        if error is not None and not isinstance(error, (*self._kinds, Exception)):
            return False
        self.raised.error = error if isinstance(error, self._kinds) else None
        if self.raised.error is None or not (self._match is None or self._match.search(str(error))):
            self._miss(f"expected {self._describe_kinds()}, observed {_describe_error(error)}")
        return True

    def _describe_kinds(self) -> str:
        names = " or ".join(kind.__name__ for kind in self._kinds)
        return names if self._match is None else f"{names} with a match of /{shorten(self._match.pattern)}/"


def _describe_error(error: BaseException | None) -> str:
    if error is None:
        return "no exception"
    return shorten(f"{type(error).__name__}: {error}".removesuffix(": "), _SHOWN)


def is_same(observed: Any, expected: Any, depth: int = 0) -> bool:
    """Return whether they are equal and of one type, and so are the items of plain lists, tuples and maps in them."""
    if type(observed) is not type(expected):
        return False
    # As Python compares the items of containers. It decides alone at a depth that no suite has.
    if observed is expected or type(observed) not in (list, tuple, dict) or depth > _DEEPEST:
        return observed is expected or bool(observed == expected)
    if len(observed) != len(expected):
        return False
    if isinstance(observed, dict):
        return all(key in expected and is_same(observed[key], expected[key], depth + 1) for key in observed)
    return all(is_same(left, right, depth + 1) for left, right in zip(observed, expected, strict=True))


def differences(observed: Any, expected: Any) -> list[str]:
    """Return where two values differ, or nothing if that is plain to see."""
    path = _first(observed, expected)
    if path is not None:
        where, left, right = path
        return [f"differs at {where}: {_describe_with_type(left, right)}, expected {_describe_with_type(right, left)}"]
    try:
        lines = difference(observed, ast.Eq(), expected)
    except Exception:  # noqa: BLE001 - comparing parts runs an author's `__eq__`
        return []
    return [_SIDES.sub(lambda side: f"{side[1]}{_WORDS[side[2]]}", line) for line in lines[:_MOST_LINES]]


def _first(observed: Any, expected: Any) -> tuple[str, Any, Any] | None:
    """Return the path to the innermost values that differ, if both sides have it."""
    where = ""
    for _ in range(_DEEPEST):
        step = next(_steps(observed, expected), None)
        if step is None:
            break
        where, observed, expected = where + step[0], step[1], step[2]
    return (where, observed, expected) if where else None


def _steps(observed: Any, expected: Any) -> Iterator[tuple[str, Any, Any]]:
    if type(observed) is not type(expected) or type(observed) not in (list, tuple, dict):
        return
    if len(observed) != len(expected):
        return
    keys = observed if isinstance(observed, dict) else range(len(observed))
    for key in keys:
        if isinstance(expected, dict) and key not in expected:
            return
        if not is_same(observed[key], expected[key]):
            yield f"[{value_text(key, _SHORT)}]", observed[key], expected[key]


def _describe_with_type(value: Any, other: Any) -> str:
    text = value_text(value, _SHORT)
    return text if type(value) is type(other) else f"{text} ({type(value).__name__})"
