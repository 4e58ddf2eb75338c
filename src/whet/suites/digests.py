"""Say by a digest what a case asks and checks, so that two runs are compared on the cases that have stayed the same.

A digest does not depend on where the suite is, on the order of its cases or on their weights. A check in Python is its
text, and that of the functions and plain values of the same file that it names: what it imports from elsewhere is not
looked at.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import msgspec

from whet.model.suite import Case

_PLAIN = (str, int, float, bool, bytes, type(None))
# Where something is written is not what it says.
_PLACES = frozenset(("line", "location"))


def case_digest(case: Case) -> str:
    """Return the digest of what *case* asks of an agent, and of the checks that decide."""
    asked = (case.prompt, case.then, case.user, case.expected_fail, case.scored, case.bootstrap, case.workspace)
    checks = [(check.grader, _settled(check.params), check.label, check.weight, check.turn) for check in case.checks]
    return _digest((asked, case.placed, case.protect, checks))


def _settled(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _of_function(value) if isinstance(value, FunctionType) else value for name, value in params.items()}


@cache
def _of_function(function: FunctionType) -> str:
    """Return the digest of a function, once: many cases may share a check, and that a large table."""
    return _digest(function)


def _digest(value: Any) -> str:
    text = "\n".join(_words(value, frozenset()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _words(value: Any, above: frozenset[int]) -> Iterator[str]:
    """Yield *value* piece by piece; *above* are the objects that it is part of, so that no circle is followed."""
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    if id(value) in above:
        return
    above |= {id(value)}
    yield type(value).__name__
    for part in _parts(value):
        yield from _words(part, above)


def _parts(value: Any) -> Iterator[Any]:
    """Yield what *value* consists of; of an object that is not known, its type has to be enough."""
    if isinstance(value, Path):
        yield value.name
    elif isinstance(value, Mapping):
        yield from (pair for pair in sorted(value.items(), key=repr) if pair[0] not in _PLACES)
    elif isinstance(value, AbstractSet):
        yield from sorted(value, key=repr)
    elif isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, FunctionType):
        yield from _function(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, msgspec.Struct):
        yield {name: getattr(value, name) for name in value.__struct_fields__}


def _function(function: FunctionType) -> Iterator[Any]:
    try:
        yield inspect.getsource(function)
    except (OSError, TypeError):
        yield function.__code__.co_code
    yield (function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        # A cell is empty as long as nothing was put into it.
        with suppress(ValueError):
            yield cell.cell_contents
    for name in sorted(set(_names(function.__code__))):
        named = function.__globals__.get(name)
        own = getattr(named, "__module__", None) == function.__module__
        if isinstance(named, (*_PLAIN, tuple, list, dict)) or own:
            yield (name, named)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, also that of functions inside of it."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)
