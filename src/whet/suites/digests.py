"""Say by a digest what a case asks and checks, so that two runs are compared on the cases that have stayed the same.

A digest does not depend on where the suite is, on the order of its cases or on their weights. A check in Python is its
text, and that of the functions, classes and values of the same file that it names: of what it imports from elsewhere,
only the name counts.
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
from types import CodeType, FunctionType, ModuleType
from typing import Any

import msgspec

from whet.model.suite import Case, Check

_PLAIN = (str, int, float, bool, bytes, type(None))
# Where something is written is not what it says.
_PLACES = frozenset(("line", "location"))
# In the text of an object that says nothing but where it is in memory.
_ADDRESS = " at 0x"


def case_digest(case: Case) -> str:
    """Return the digest of what *case* asks of an agent, and of the checks that decide."""
    request = (case.prompt, case.then, case.user, case.expected_fail, case.scored, case.bootstrap, case.workspace)
    checks = [_of_check(check) for check in case.checks]
    threshold = () if case.pass_threshold is None else (case.pass_threshold,)
    return _digest((request, case.placed, case.protect, checks, *threshold))


def question_digest(case: Case, suite: Path) -> str:
    """Return the digest of the prompts and checks of *case* alone, the same wherever the folder of *suite* lies."""
    checks = [_of_check(check) for check in case.checks]
    text = "\n".join(_words((case.prompt, case.then, case.user, checks), frozenset()))
    return hashlib.sha256(text.replace(str(suite.parent), "").encode("utf-8", "surrogatepass")).hexdigest()


def _of_check(check: Check) -> tuple[Any, ...]:
    part = () if check.part_of is None else (check.part_of,)
    return (check.grader, _digest_functions(check.params), check.label, check.weight, check.turn, *part)


def _digest_functions(params: Mapping[str, Any]) -> dict[str, Any]:
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
    elif isinstance(value, type):
        yield from _class(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, msgspec.Struct):
        yield {name: getattr(value, name) for name in value.__struct_fields__}
    else:
        yield from _text_of(value)


def _text_of(value: Any) -> Iterator[str]:
    """Yield how a value that is not known prints itself, such as a pattern, unless that says where it is in memory."""
    with suppress(Exception):
        text = repr(value)
        if _ADDRESS not in text:
            yield text


def _class(kind: type) -> Iterator[Any]:
    """Yield what a class consists of: its text, and what its functions name."""
    try:
        yield inspect.getsource(kind)
    except (OSError, TypeError):
        yield kind.__qualname__
    for member in vars(kind).values():
        if isinstance(member, FunctionType):
            yield from _function(member)


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
        if name in function.__globals__:
            yield (name, *_named(function.__globals__[name], function.__module__))


def _named(value: Any, module: str) -> Iterator[Any]:
    """Yield what a name of *module* leads to; of what is defined elsewhere, where that is."""
    if isinstance(value, ModuleType):
        yield value.__name__
    elif isinstance(value, (FunctionType, type)) and value.__module__ != module:
        yield (value.__module__, value.__qualname__)
    else:
        yield value


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, also that of functions inside of it."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)
