"""What a rewritten `assert` calls when it fails: the explanation, and who may take the failure."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from whet.asserting.difference import difference
from whet.asserting.parts import MISSING, Evaluation, is_literal
from whet.asserting.text import is_telling, shorten, value_text

Hook = Callable[[AssertionError], bool]

_MOST_BYTES = 8_000
_MOST_SAID = 2_000
_MOST_TEXT = 300
_MOST_PARTS = 12
_MOST_DECIDERS = 4

_hook: ContextVar[Hook | None] = ContextVar("hook", default=None)


@contextlib.contextmanager
def collecting(hook: Hook) -> Iterator[None]:
    """Give *hook* each failing `assert` of the block; what it takes is not raised, and the next statement runs."""
    token = _hook.set(hook)
    try:
        yield
    finally:
        _hook.reset(token)


def failed(source: str, values: tuple[Any, ...], *message: Any) -> AssertionError | None:
    """The error to raise for the assertion *source*, or none if a hook took it."""
    explanation = explain(source, values)
    # An expression without values, such as False, tells nothing beside what its author says.
    told = [*map(_said, message), explanation] if not message or "\n" in explanation else [*map(_said, message)]
    error = AssertionError(_bounded(told))
    hook = _hook.get()
    if hook is None:
        return error
    # An error that is never raised gets no traceback of its own, and its place is half of what it says.
    frame = sys._getframe(1)  # noqa: SLF001 - the frame of the assertion
    taken = hook(error.with_traceback(TracebackType(None, frame, frame.f_lasti, frame.f_lineno)))
    return None if taken else error.with_traceback(None)


def explain(source: str, values: tuple[Any, ...]) -> str:
    """The expression, the values that decided, what they differ in, and the values of the parts, deepest last."""
    try:
        # This module stands for parts that were not reached: nothing that an author holds is the same object.
        seen = Evaluation.of(source, values, unset=sys.modules[__name__])
        lines = [f"assert {shorten(seen.text(seen.test), _MOST_TEXT)}"]
        shown: set[tuple[str, int]] = set()
        for node, wanted in [*seen.deciders(seen.test)][:_MOST_DECIDERS]:
            lines += (f"  {line}" for line in _decision(seen, node, shown, wanted=wanted))
        return "\n".join([*lines, *_parts(seen, shown)])
    except Exception:  # noqa: BLE001 - an explanation must not stand in for the failure
        return f"assert {shorten(' '.join(source.split()), _MOST_TEXT)}"


def _decision(seen: Evaluation, node: ast.expr, shown: set[tuple[str, int]], *, wanted: bool) -> Iterator[str]:
    word = "false:" if wanted else "true: "
    if not isinstance(node, ast.Compare):
        if not is_literal(node):
            yield f"{word} {_shown(seen, node, shown)}"
        return
    if node is not seen.test:
        yield f"{word} {shorten(seen.text(node), _MOST_TEXT)}"
    pair = seen.compared(node)
    if pair is None:
        return
    left, operator, right = pair
    for side, operand in (("left: ", left), ("right:", right)):
        if not is_literal(operand):
            yield f"{side} {_shown(seen, operand, shown)}"
    values = seen.value(left), seen.value(right)
    if wanted and not any(value is MISSING for value in values):
        yield from (f"  {line}" for line in _help(values[0], operator, values[1]))


def _shown(seen: Evaluation, node: ast.expr, shown: set[tuple[str, int]]) -> str:
    """The text of *node* and its value, noted so that it is not told twice."""
    text = shorten(seen.text(node), _MOST_TEXT)
    value = seen.value(node)
    if value is MISSING:
        return text
    shown.add((text, id(value)))
    return f"{text} = {value_text(value)}"


def _help(left: Any, operator: ast.cmpop, right: Any) -> list[str]:
    try:
        return difference(left, operator, right)
    except Exception:  # noqa: BLE001 - comparing parts runs an author's `__eq__`
        return []


def _parts(seen: Evaluation, shown: set[tuple[str, int]]) -> Iterator[str]:
    """A line for each part that was reached, that tells something and was not told."""
    word, left = "where ", _MOST_PARTS
    for node, _ in sorted(seen.depths, key=lambda item: item[1]):
        value = seen.value(node)
        if value is MISSING or not is_telling(value):
            continue
        text = shorten(seen.text(node), _MOST_TEXT)
        if (text, id(value)) in shown:
            continue
        if not left:
            yield "         ... and more"
            return
        shown.add((text, id(value)))
        yield f"  {word} {text} = {value_text(value, _MOST_TEXT // 2)}"
        word, left = "      ", left - 1


def _said(message: Any) -> str:
    """What the author said."""
    return shorten(text_of(message), _MOST_SAID)


def text_of(value: Any) -> str:
    """The text of an exception, or of whatever an author says; even that may raise, or give no text of ours."""
    try:
        # Joined, because a subclass of str could still do anything.
        return "".join((str(value),))
    except BaseException as error:  # noqa: BLE001 - a `__str__` is an author's, and may also exit
        return f"(its message cannot be shown: {type(error).__name__})"


def _bounded(texts: list[str]) -> str:
    text = "\n".join(text for text in texts if text)
    whole = text.encode("utf-8", "backslashreplace")
    if len(whole) < _MOST_BYTES:
        return text
    half = _MOST_BYTES // 2 - 10
    return f"{whole[:half].decode(errors='ignore')} ... {whole[-half:].decode(errors='ignore')}"
