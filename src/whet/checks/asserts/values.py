"""Values in messages: as short text, and what two of them differ in.

Everything here is bounded in size and time, for values of any size and with any `__repr__`.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import difflib
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

from msgspec import Struct

from whet.reading.text import middle, printable

_Renderer = Callable[[Any, int, int], str]

_SILENT_TYPES = (type, types.ModuleType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_DEEPEST = 4
_FEWEST = 20
_WIDEST_INT = 600
_SHORT = 60
_CHUNK = 65_536
_MOST_ITEMS = 100_000
_MOST_SEARCHED = 200_000
_MOST_LINES = 20
_WINDOW = 100
_WIDEST = 120
_ALIKE = 0.6


def value_text(value: object, most: int = 300) -> str:
    """Return the `repr` of *value*, in at most about *most* characters."""
    return shorten(_text(value, most, 0), most + 80)


def shorten(text: str, most: int) -> str:
    """Return *text* without its middle if it is too long."""
    return middle(text, most, " ... ")


def is_telling(value: object) -> bool:
    """Return whether the text of *value* says more than its name does."""
    if inspect.isroutine(value) or isinstance(value, _SILENT_TYPES):
        return False
    return type(value).__repr__ is not object.__repr__ and not getattr(type(value), "__unexplained__", False)


def _text(value: object, most: int, depth: int) -> str:
    try:
        return _render(value, most, depth)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a `__repr__` is an author's, and an explanation must not fail
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def _render(value: Any, most: int, depth: int) -> str:
    kind = type(value)
    # By the function and not by the class, so that a subclass with a `__repr__` of its own keeps it.
    render = _RENDERERS.get(kind.__repr__)
    if render is not None:
        return render(value, most, depth)
    if dataclasses.is_dataclass(kind) and hasattr(kind.__repr__, "__wrapped__"):
        names = [item.name for item in dataclasses.fields(kind) if item.repr]
        return _fields(kind.__qualname__, ((name, getattr(value, name)) for name in names), most, depth)
    if isinstance(value, tuple) and _is_namedtuple(kind):
        return _fields(kind.__name__, zip(kind._fields, value, strict=False), most, depth)
    return shorten(repr(value), most)


def _is_namedtuple(kind: type) -> bool:
    return hasattr(kind, "_fields") and kind.__repr__.__module__ == "collections"


def _string(value: Any, most: int, _depth: int) -> str:
    """Return a string or bytes: whole, or its two ends and its length."""
    if len(value) <= most and len(text := repr(value)) <= most + _FEWEST:
        return text
    unit = "characters" if isinstance(value, str) else "bytes"
    half = min(most, len(value)) // 2
    ends = repr(_fitting(value[:half], most // 2)), repr(_fitting(value[-half:], -(most // 2)))
    return f"{ends[0]} ... {ends[1]} ({len(value):,} {unit})"


def _fitting(value: Any, room: int) -> Any:
    """Return as much of *value* as fits, written with its escapes; a negative room keeps its end."""
    while len(value) > 1 and (size := len(repr(value))) > abs(room) + 3:
        keep = min(len(value) - 1, max(1, len(value) * abs(room) // size))
        value = value[:keep] if room > 0 else value[-keep:]
    return value


def _int(value: int, _most: int, _depth: int) -> str:
    # Python refuses to write the largest ones out, and takes its time for others.
    return repr(value) if value.bit_length() <= _WIDEST_INT else f"<int of {value.bit_length():,} bits>"


def _join(texts: Iterable[str], size: int, most: int, depth: int) -> str:
    """Return the first of *texts*, which are made only if needed, and how many more there are."""
    if depth >= _DEEPEST and size:
        return "..."
    limit = max(2, min(10, most // _FEWEST))
    more = [f"... {size - limit:,} more"] if size > limit else []
    return ", ".join([*islice(texts, limit), *more])


def _room(most: int) -> int:
    """Return how much of the room of a container one item may take."""
    return max(_FEWEST, most // 3)


def _list_renderer(before: str, after: str, items: Callable[[Any], Iterable[Any]] = iter) -> _Renderer:
    def render(value: Any, most: int, depth: int) -> str:
        texts = (_text(item, _room(most), depth + 1) for item in items(value))
        return f"{before}{_join(texts, len(value), most, depth)}{after}"

    return render


def _map_renderer(before: str, after: str) -> _Renderer:
    def render(value: Any, most: int, depth: int) -> str:
        room = _room(most)
        pairs = (f"{_text(key, room, depth + 1)}: {_text(item, room, depth + 1)}" for key, item in dict.items(value))
        return f"{before}{_join(pairs, len(value), most, depth)}{after}"

    return render


def _tuple(value: Any, most: int, depth: int) -> str:
    return _list_renderer("(", ",)" if len(value) == 1 else ")")(value, most, depth)


def _set(value: Any, most: int, depth: int) -> str:
    return _list_renderer("{", "}", _in_order)(value, most, depth) if value else "set()"


def _in_order(value: Any) -> list[Any]:
    """Return the items of a set in order if that is cheap, so that the same set reads the same each time."""
    few = list(islice(value, 1000))
    try:
        return sorted(few)
    except Exception:  # noqa: BLE001 - items need not have an order
        return few


def _fields(name: str, pairs: Iterable[tuple[str, Any]], most: int, depth: int) -> str:
    entries = list(pairs)
    texts = (f"{field}={_text(item, _room(most), depth + 1)}" for field, item in entries)
    return f"{name}({_join(texts, len(entries), most, depth)})"


def _namespace(value: Any, most: int, depth: int) -> str:
    return _fields("namespace", vars(value).items(), most, depth)


def _struct(value: Any, most: int, depth: int) -> str:
    pairs = ((name, getattr(value, name)) for name in value.__struct_fields__)
    return _fields(type(value).__qualname__, pairs, most, depth)


def _exception(value: Any, most: int, depth: int) -> str:
    texts = (_text(item, _room(most), depth + 1) for item in value.args)
    return f"{type(value).__name__}({_join(texts, len(value.args), most, depth)})"


_RENDERERS: dict[Any, _Renderer] = {
    str.__repr__: _string,
    bytes.__repr__: _string,
    bytearray.__repr__: _string,
    int.__repr__: _int,
    list.__repr__: _list_renderer("[", "]"),
    tuple.__repr__: _tuple,
    set.__repr__: _set,
    frozenset.__repr__: _list_renderer("frozenset({", "})", _in_order),
    collections.deque.__repr__: _list_renderer("deque([", "])"),
    dict.__repr__: _map_renderer("{", "}"),
    collections.OrderedDict.__repr__: _map_renderer("OrderedDict({", "})"),
    collections.defaultdict.__repr__: _map_renderer("defaultdict({", "})"),
    collections.Counter.__repr__: _map_renderer("Counter({", "})"),
    type({}.keys()).__repr__: _list_renderer("dict_keys([", "])"),
    type({}.values()).__repr__: _list_renderer("dict_values([", "])"),
    type({}.items()).__repr__: _list_renderer("dict_items([", "])"),
    types.SimpleNamespace.__repr__: _namespace,
    Struct.__repr__: _struct,
    BaseException.__repr__: _exception,
}


def difference(left: Any, operator: ast.cmpop, right: Any) -> list[str]:
    """Return lines that explain why `left operator right` did not hold."""
    match operator:
        case ast.Eq():
            return list(_unequal(left, right))
        case ast.In():
            return list(_nearest(left, right))
        case ast.NotIn():
            return list(_locate(left, right))
        case _:
            return []


def _unequal(left: Any, right: Any) -> Iterator[str]:
    match left, right:
        case (str(), str()) | (bytes(), bytes()):
            yield from _unequal_text(left, right)
        case (list(), list()) | (tuple(), tuple()):
            yield from _unequal_lists(left, right)
        case dict(), dict():
            yield from _unequal_dicts(left, right, lambda key: f"[{value_text(key, _SHORT)}]")
        case AbstractSet(), AbstractSet():
            yield from _unequal_sets(left, right)
        case _ if dataclasses.is_dataclass(left) and type(left) is type(right):
            names = [item.name for item in dataclasses.fields(left) if item.compare]
            yield from _unequal_fields(left, right, names)
        case _ if isinstance(left, Struct) and type(left) is type(right):
            yield from _unequal_fields(left, right, left.__struct_fields__)


def _unequal_fields(left: Any, right: Any, names: Iterable[str]) -> Iterator[str]:
    sides = ({name: getattr(side, name) for name in names} for side in (left, right))
    yield from _unequal_dicts(next(sides), next(sides), lambda name: f".{name}")


def _unequal_text(left: Any, right: Any) -> Iterator[str]:
    if isinstance(left, str) and ("\n" in left[:_CHUNK] or "\n" in right[:_CHUNK]):
        yield from _unequal_lines(left, right)
    elif max(len(left), len(right)) > _SHORT:
        at = _first_difference(left, right)
        start = max(0, at - 15)
        sides = (repr(side[start : at + 45]) for side in (left, right))
        yield f"differs at {at:,}: {next(sides)} != {next(sides)}"


def _first_difference(left: Any, right: Any) -> int:
    """Return the index of the first difference, by slices: text can be long."""
    at, step = 0, _CHUNK
    while step:
        while at < min(len(left), len(right)) and left[at : at + step] == right[at : at + step]:
            at += step
        step //= 2
    return min(at, len(left), len(right))


def _unequal_lines(left: str, right: str) -> Iterator[str]:
    """Yield a diff around the first line that differs."""
    at = _first_difference(left, right)
    start = left.rfind("\n", 0, at) + 1
    number = left.count("\n", 0, start)
    before = left[max(0, start - _CHUNK) : start].splitlines()[-2:]
    sides = (before + side[start : start + _CHUNK].split("\n")[:_WINDOW] for side in (left, right))
    yield from _diff(next(sides), next(sides), number - len(before) + 1, "line {}")


def _diff(left: list[str], right: list[str], first: int, place: str) -> Iterator[str]:
    """Yield the lines of a short diff, with two lines around each change."""
    lines = ["- left, + right"]
    for group in _groups(left, right):
        lines.append(f"@ {place.format(first + group[0][1])}")
        for tag, left_from, left_to, right_from, right_to in group:
            if tag == "equal":
                lines += [f"  {line}" for line in left[left_from:left_to]]
                continue
            lines += [f"- {line}" for line in left[left_from:left_to]]
            lines += [f"+ {line}" for line in right[right_from:right_to]]
    yield from (printable(shorten(line, _WIDEST)) for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield "..."


def _groups(left: list[str], right: list[str]) -> Iterator[list[tuple[str, int, int, int, int]]]:
    for group in difflib.SequenceMatcher(None, left, right, autojunk=False).get_grouped_opcodes(2):
        tag, _, left_to, _, right_to = group[-1]
        # If a window ended early, the lines at its end are not missing: the other side has them further on.
        cut = max(left_to, right_to) >= _WINDOW and tag in {"insert", "delete"}
        opcodes = group[:-1] if cut else group
        if any(item[0] != "equal" for item in opcodes):
            yield opcodes


def _unequal_lists(left: Sequence[Any], right: Sequence[Any]) -> Iterator[str]:
    if len(left) != len(right):
        yield f"lengths differ: {len(left):,} != {len(right):,}"
    pairs = enumerate(islice(zip(left, right, strict=False), _MOST_ITEMS))
    at = next((at for at, (left_item, right_item) in pairs if _differ(left_item, right_item)), None)
    if at is None:
        at = min(len(left), len(right))
        longer, side = (left, "left") if len(left) > len(right) else (right, "right")
        if at < min(len(longer), _MOST_ITEMS):
            yield f"only {side} has [{at}]: {value_text(longer[at], _SHORT)}"
        return
    yield f"differs at [{at}]: {value_text(left[at], _SHORT)} != {value_text(right[at], _SHORT)}"
    if len(left) != len(right):
        start = max(0, at - 2)
        sides = ([value_text(item, _SHORT) for item in side[start : at + _WINDOW]] for side in (left, right))
        yield from _diff(next(sides), next(sides), start, "[{}]")
    else:
        yield from (f"  {line}" for line in _unequal(left[at], right[at]))


def _unequal_dicts(left: dict[Any, Any], right: dict[Any, Any], place: Callable[[Any], str]) -> Iterator[str]:
    for side, mine, theirs in (("left", left, right), ("right", right, left)):
        only = [key for key in islice(mine, _MOST_ITEMS) if key not in theirs]
        if only:
            yield f"only {side} has {value_text(only, _WIDEST)}"
    differing = (key for key in islice(left, _MOST_ITEMS) if key in right and _differ(left[key], right[key]))
    unequal = list(islice(differing, 4))
    for key in unequal[:3]:
        yield f"differs at {place(key)}: {value_text(left[key], _SHORT)} != {value_text(right[key], _SHORT)}"
    if len(unequal) > 3:  # noqa: PLR2004 - one more than is shown
        yield "... and more"
    for key in unequal[:1]:
        yield from (f"  {line}" for line in _unequal(left[key], right[key]))


def _differ(left: Any, right: Any) -> bool:
    return left is not right and bool(left != right)


def _unequal_sets(left: AbstractSet[Any], right: AbstractSet[Any]) -> Iterator[str]:
    for side, only in (("left", left - right), ("right", right - left)):
        if only:
            yield f"only {side} has {value_text(only, _WIDEST)}"


def _nearest(needle: Any, among: Any) -> Iterator[str]:
    """Yield what comes nearest to *needle*, if *among* is too long to be shown."""
    match needle, among:
        case str(), str() if len(among) > _SHORT and needle:
            number, near = _nearest_line(needle, among)
            if near:
                yield f"nearest: line {number:,}: {near!r}"
        case str(), list() | tuple() | dict() | AbstractSet() if len(among) > 1:
            texts = [item[:_WIDEST] for item in islice(among, 500) if isinstance(item, str)]
            near = next(iter(difflib.get_close_matches(needle[:_WIDEST], texts, n=1, cutoff=_ALIKE)), "")
            if near:
                yield f"nearest: {near!r}"


def _nearest_line(needle: str, text: str) -> tuple[int, str]:
    """Return the number of the line that is most like *needle*, and its most similar excerpt, if any is similar."""
    key = max((line.strip() for line in needle[:_CHUNK].split("\n")), key=len)[:_WIDEST]
    grams = _grams(key)
    lines = [*_pieces(text[:_MOST_SEARCHED])]
    # Counting shared letter groups is quick; only the best few get a real comparison.
    best = sorted(lines, key=lambda item: len(grams & _grams(item[1])), reverse=True)[:8]
    ranking = [(*_likest_excerpt(key, line), at) for at, line in best]
    likeness, excerpt, number = max(ranking, key=lambda item: item[0])
    return (number, excerpt) if likeness >= _ALIKE else (0, "")


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of *text* with their numbers, long ones in pieces that overlap."""
    for number, line in enumerate(text.split("\n"), start=1):
        for at in range(0, max(len(line), 1), 4 * _WIDEST):
            yield number, line[at : at + 5 * _WIDEST]


def _grams(text: str) -> set[str]:
    letters = text.casefold()
    return {letters[at : at + 3] for at in range(len(letters) - 2)}


def _likest_excerpt(needle: str, line: str) -> tuple[float, str]:
    matcher = difflib.SequenceMatcher(None, needle.lower(), line.lower(), autojunk=False)
    block = matcher.find_longest_match()
    start = max(0, block.b - block.a)
    excerpt = line[start : start + len(needle)]
    return difflib.SequenceMatcher(None, needle.lower(), excerpt.lower(), autojunk=False).ratio(), excerpt


def _locate(needle: Any, text: Any) -> Iterator[str]:
    """Yield where *needle* is in *text*."""
    if isinstance(needle, str) and isinstance(text, str) and len(text) > _SHORT:
        at = text.find(needle)
        excerpt = text[max(0, at - 20) : at + len(needle[:_SHORT]) + 20]
        yield f"found: line {text.count(chr(10), 0, at) + 1:,}, character {at:,}: {excerpt!r}"
