"""Fill in the variables of promptfoo's templates, which are those of Nunjucks: names, filters, conditions and loops."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from whet.reading.text import shorten
from whet.suites.other_tools.promptfoo.logic import Choice, Loop, Part, UnfilledTemplate, Value, parse

_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[\d+\])*")
_TEXT = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_FILTER = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*")
_BAR = re.compile(r"\|(?=(?:[^'\"]|'[^']*'|\"[^\"]*\")*$)")
_COMPARED = re.compile(r"(.+?)\s*(===?|!==?)\s*(.+)")
_STEP = re.compile(r"\w+")
_WORDS = {"true": True, "false": False, "none": None, "null": None}
# What promptfoo itself gives a template: variables of the machine, and what was said before.
CONVERSATION = "_conversation"
_OF_PROMPTFOO = ("env", CONVERSATION)
_DEEPEST = 5
_SHOWN = 60
# Variables may name others, and loops repeat, so that a few characters make any number of them.
_LONGEST = 1_000_000
_LONGEST_EXPRESSION = 1_000
_MOST_TURNS = 100_000


def fill_template(text: str, values: Mapping[str, Any]) -> str:
    """Return *text* with its variables filled in; raises `UnfilledTemplate`."""
    parts: list[str] = []
    length = 0
    for piece in _Renderer().texts(parse(text), values):
        parts.append(piece)
        length += len(piece)
        if length > _LONGEST:
            raise UnfilledTemplate(f"has more than {_LONGEST:,} characters with its variables")
    return "".join(parts)


def absent_variables(text: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the variables of *text* that *values* does not have at all; promptfoo puts nothing in their places."""
    try:
        names = dict.fromkeys(_names_in(parse(text)))
    except UnfilledTemplate:
        # Filling it in says why.
        return ()
    return tuple(name for name in names if name not in values and name not in _OF_PROMPTFOO)


def _names_in(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the variables whose values stand in a template, without those of its loops."""
    for part in parts:
        match part:
            case Value():
                if written := _PATH.match(part.expression):
                    yield _STEP.findall(written[0])[0]
            case Choice():
                for _, branch in part.branches:
                    yield from _names_in(branch)
            case Loop():
                yield from (name for name in _names_in(part.body) if name not in (*part.names, "loop"))


def fill_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return *values* with those filled in that name others."""
    filled_values = dict(values)
    for _ in range(_DEEPEST):
        before = dict(filled_values)
        for name, value in before.items():
            if isinstance(value, str) and "{{" in value:
                filled_values[name] = _filled_or_same(value, before)
        if filled_values == before:
            break
    return filled_values


def _filled_or_same(text: str, values: Mapping[str, Any]) -> str:
    try:
        return fill_template(text, values)
    except UnfilledTemplate:
        return text


class _Renderer:
    """Makes the text of a template, and counts how often its loops go round."""

    def __init__(self) -> None:
        self._turns = 0

    def texts(self, parts: Sequence[Part], values: Mapping[str, Any]) -> Iterator[str]:
        """Yield the pieces of the text."""
        for part in parts:
            match part:
                case str():
                    yield part
                case Value():
                    yield _text(_evaluate(part.expression, values))
                case Choice():
                    yield from self._chosen(part, values)
                case Loop():
                    yield from self._repeated(part, values)

    def _chosen(self, choice: Choice, values: Mapping[str, Any]) -> Iterator[str]:
        for condition, branch in choice.branches:
            if condition is None or _is_true(condition, values):
                yield from self.texts(branch, values)
                return

    def _repeated(self, loop: Loop, values: Mapping[str, Any]) -> Iterator[str]:
        items = _items(_evaluate(loop.items, values), len(loop.names))
        for index, item in enumerate(items):
            self._turns += 1
            if self._turns > _MOST_TURNS:
                raise UnfilledTemplate(f"goes round its loops more than {_MOST_TURNS:,} times")
            place = {"index": index + 1, "index0": index, "first": index == 0, "last": index == len(items) - 1}
            yield from self.texts(loop.body, {**values, **dict(zip(loop.names, item, strict=True)), "loop": place})


def _items(value: Any, count: int) -> list[tuple[Any, ...]]:
    """Return what a loop gives its names, one name or two, in each turn."""
    if isinstance(value, Mapping) and count > 1:
        return list(value.items())
    if isinstance(value, list) and count == 1:
        return [(item,) for item in value]
    if isinstance(value, list) and all(isinstance(item, list) and len(item) == count for item in value):
        return list(map(tuple, value))
    raise UnfilledTemplate("has a loop over something that is no list")


def _is_true(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether a condition of names, comparisons, `not`, `and` and `or` is true."""
    if len(condition) > _LONGEST_EXPRESSION:
        raise UnfilledTemplate(f"has the condition {shorten(condition, _SHOWN)} in it, which is too long")
    if " or " in condition:
        return any(_is_true(part, values) for part in condition.split(" or "))
    if " and " in condition:
        return all(_is_true(part, values) for part in condition.split(" and "))
    if condition.startswith("not "):
        return not _is_true(condition.removeprefix("not ").strip(), values)
    if compared := _COMPARED.fullmatch(condition):
        is_equal = bool(_known(compared[1], values) == _known(compared[3], values))
        return is_equal != compared[2].startswith("!")
    value = _known(condition, values)
    # A list or an object is true in JavaScript, also if nothing is in it.
    return isinstance(value, list | Mapping) or bool(value)


def _known(expression: str, values: Mapping[str, Any]) -> Any:
    """Return a value for a condition, where a name that there is not is nothing."""
    path = _PATH.match(expression)
    if path is not None and _STEP.findall(path[0])[0] not in (*values, *_WORDS):
        return None
    return _evaluate(expression, values)


def _evaluate(expression: str, values: Mapping[str, Any]) -> Any:
    """Return the value of a name or a literal, changed by the filters behind it."""
    if len(expression) > _LONGEST_EXPRESSION:
        raise UnfilledTemplate(f"has {{{{ {shorten(expression, _SHOWN)} }}}} in it, which is too long")
    start, *filters = (part.strip() for part in _BAR.split(expression))
    value = _named(start, expression, values)
    for written in filters:
        parts = _FILTER.fullmatch(written)
        change = _FILTERS.get(parts[1]) if parts is not None else None
        if parts is None or change is None:
            raise UnfilledTemplate(f'has the filter "{shorten(written, _SHOWN)}" in it, which whet does not have')
        argument = (parts[2] or "").strip()
        value = change(value, _named(argument, expression, values)) if argument else change(value)
    return value


def _named(start: str, expression: str, values: Mapping[str, Any]) -> Any:
    if literal := _TEXT.fullmatch(start):
        return literal[1] if literal[1] is not None else literal[2]
    if _NUMBER.fullmatch(start):
        return json.loads(start)
    if start in _WORDS and start not in values:
        return _WORDS[start]
    if not _PATH.fullmatch(start):
        raise UnfilledTemplate(f"has {{{{ {shorten(expression, _SHOWN)} }}}} in it, which whet does not read")
    value: Any = values
    for step in _STEP.findall(start):
        # What is in nothing is nothing.
        value = None if value is None else _step_into(value, step, start)
    return value


def _step_into(value: Any, step: str, whole: str) -> Any:
    if isinstance(value, Mapping) and step in value:
        return value[step]
    if isinstance(value, list) and step == "length":
        return len(value)
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    raise UnfilledTemplate(f'needs the variable "{whole}", which the test does not have')


def _text(value: Any) -> str:
    """Return what JavaScript makes of a value in a text; promptfoo writes objects and lists as JSON."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except TypeError:
        raise UnfilledTemplate("needs a variable that cannot be read") from None


def _join(value: Any, between: Any = "") -> str:
    if not isinstance(value, list | None):
        raise UnfilledTemplate("joins something that is no list")
    return str(between).join(map(_text, value or ()))


def _length(value: Any, *_: Any) -> int:
    return len(value) if isinstance(value, list | Mapping | str) else 0


def _or_default(value: Any, usual: Any = "") -> Any:
    return usual if value is None else value


_FILTERS: dict[str, Callable[..., Any]] = {
    "default": _or_default,
    "dump": lambda value, *_: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    "join": _join,
    "length": _length,
    "lower": lambda value, *_: _text(value).lower(),
    "safe": lambda value, *_: value,
    "trim": lambda value, *_: _text(value).strip(),
    "upper": lambda value, *_: _text(value).upper(),
}
