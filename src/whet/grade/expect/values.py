"""Values as short text: bounded however large the value is, and whatever its `__repr__` does."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import types
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from whet.reading.text import middle

_Renderer = Callable[[Any, int, int], str]

_UNTOLD = (type, types.ModuleType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_DEEPEST = 4
_FEWEST = 20
_WIDEST_INT = 600


def value_text(value: object, most: int = 300) -> str:
    """*value* as its `repr` would show it, in at most about *most* characters."""
    return shorten(_text(value, most, 0), most + 80)


def shorten(text: str, most: int) -> str:
    """Return *text* without its middle if it is too long."""
    return middle(text, most, " ... ")


def is_telling(value: object) -> bool:
    """Whether the text of *value* says more than its name does."""
    if inspect.isroutine(value) or isinstance(value, _UNTOLD):
        return False
    return type(value).__repr__ is not object.__repr__ and not getattr(type(value), "__untold__", False)


def _text(value: object, most: int, depth: int) -> str:
    try:
        return _rendered(value, most, depth)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a `__repr__` is an author's, and an explanation must not fail
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def _rendered(value: Any, most: int, depth: int) -> str:
    kind = type(value)
    # By the function and not by the class, so that a subclass with a `__repr__` of its own keeps it.
    render = _RENDERERS.get(kind.__repr__)
    if render is not None:
        return render(value, most, depth)
    if dataclasses.is_dataclass(kind) and hasattr(kind.__repr__, "__wrapped__"):
        shown = [item.name for item in dataclasses.fields(kind) if item.repr]
        return _fields(kind.__qualname__, ((name, getattr(value, name)) for name in shown), most, depth)
    if isinstance(value, tuple) and _is_namedtuple(kind):
        return _fields(kind.__name__, zip(kind._fields, value, strict=False), most, depth)
    return shorten(repr(value), most)


def _is_namedtuple(kind: type) -> bool:
    return hasattr(kind, "_fields") and kind.__repr__.__module__ == "collections"


def _string(value: Any, most: int, _depth: int) -> str:
    """A string or bytes: whole, or its two ends and its length."""
    if len(value) <= most and len(whole := repr(value)) <= most + _FEWEST:
        return whole
    unit = "characters" if isinstance(value, str) else "bytes"
    half = min(most, len(value)) // 2
    ends = repr(_fitting(value[:half], most // 2)), repr(_fitting(value[-half:], -(most // 2)))
    return f"{ends[0]} ... {ends[1]} ({len(value):,} {unit})"


def _fitting(value: Any, room: int) -> Any:
    """As much of *value* as fits when it is written with its escapes; a negative room keeps its end."""
    while len(value) > 1 and (size := len(repr(value))) > abs(room) + 3:
        keep = min(len(value) - 1, max(1, len(value) * abs(room) // size))
        value = value[:keep] if room > 0 else value[-keep:]
    return value


def _int(value: int, _most: int, _depth: int) -> str:
    # Python refuses to write the largest ones out, and takes its time for others.
    return repr(value) if value.bit_length() <= _WIDEST_INT else f"<int of {value.bit_length():,} bits>"


def _joined(texts: Iterable[str], size: int, most: int, depth: int) -> str:
    """The first of *texts*, which are only made as they are needed, and how many there are beyond."""
    if depth >= _DEEPEST and size:
        return "..."
    shown = max(2, min(10, most // _FEWEST))
    more = [f"... {size - shown:,} more"] if size > shown else []
    return ", ".join([*islice(texts, shown), *more])


def _room(most: int) -> int:
    """How much an item may take of what its container may take."""
    return max(_FEWEST, most // 3)


def _listed(before: str, after: str, items: Callable[[Any], Iterable[Any]] = iter) -> _Renderer:
    def render(value: Any, most: int, depth: int) -> str:
        texts = (_text(item, _room(most), depth + 1) for item in items(value))
        return f"{before}{_joined(texts, len(value), most, depth)}{after}"

    return render


def _mapped(before: str, after: str) -> _Renderer:
    def render(value: Any, most: int, depth: int) -> str:
        room = _room(most)
        pairs = (f"{_text(key, room, depth + 1)}: {_text(item, room, depth + 1)}" for key, item in dict.items(value))
        return f"{before}{_joined(pairs, len(value), most, depth)}{after}"

    return render


def _tuple(value: Any, most: int, depth: int) -> str:
    return _listed("(", ",)" if len(value) == 1 else ")")(value, most, depth)


def _set(value: Any, most: int, depth: int) -> str:
    return _listed("{", "}", _in_order)(value, most, depth) if value else "set()"


def _in_order(value: Any) -> list[Any]:
    """The items of a set, so that the same set reads the same each time where that is cheap."""
    few = list(islice(value, 1000))
    try:
        return sorted(few)
    except Exception:  # noqa: BLE001 - items need not have an order
        return few


def _fields(name: str, pairs: Iterable[tuple[str, Any]], most: int, depth: int) -> str:
    listed = list(pairs)
    texts = (f"{field}={_text(item, _room(most), depth + 1)}" for field, item in listed)
    return f"{name}({_joined(texts, len(listed), most, depth)})"


def _namespace(value: Any, most: int, depth: int) -> str:
    return _fields("namespace", vars(value).items(), most, depth)


def _exception(value: Any, most: int, depth: int) -> str:
    texts = (_text(item, _room(most), depth + 1) for item in value.args)
    return f"{type(value).__name__}({_joined(texts, len(value.args), most, depth)})"


_RENDERERS: dict[Any, _Renderer] = {
    str.__repr__: _string,
    bytes.__repr__: _string,
    bytearray.__repr__: _string,
    int.__repr__: _int,
    list.__repr__: _listed("[", "]"),
    tuple.__repr__: _tuple,
    set.__repr__: _set,
    frozenset.__repr__: _listed("frozenset({", "})", _in_order),
    collections.deque.__repr__: _listed("deque([", "])"),
    dict.__repr__: _mapped("{", "}"),
    collections.OrderedDict.__repr__: _mapped("OrderedDict({", "})"),
    collections.defaultdict.__repr__: _mapped("defaultdict({", "})"),
    collections.Counter.__repr__: _mapped("Counter({", "})"),
    type({}.keys()).__repr__: _listed("dict_keys([", "])"),
    type({}.values()).__repr__: _listed("dict_values([", "])"),
    type({}.items()).__repr__: _listed("dict_items([", "])"),
    types.SimpleNamespace.__repr__: _namespace,
    BaseException.__repr__: _exception,
}
