"""`dataclass` as in the standard library, but several times as quick to define.

The standard library compiles six methods for each class when its module is imported, which took a third of the time of
`whet run` for one case. Here most methods are shared, and a constructor is compiled when the first instance is made.
Fields, `replace`, `asdict`, copies, pickles and errors are those of the standard library. `InitVar` is not supported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers know this one.
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - for others to import
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, **options: bool) -> Any:
        """Make *cls* a dataclass; *options* are those of the standard library."""

        def make(cls: type) -> type:
            if any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__):
                # Inheritance has rules of its own, which few classes need.
                return dataclasses.dataclass(cls, frozen=frozen, **options)
            made = dataclasses.dataclass(cls, **{**options, "init": False, "repr": False, "eq": False})
            return _add_methods(made, frozen=frozen, repr=options.get("repr", True), eq=options.get("eq", True))

        return make if cls is None else make(cls)


def _add_methods(cls: Any, *, frozen: bool, repr: bool, eq: bool) -> Any:  # noqa: A002 - the options' names
    settings = cls.__dataclass_params__
    settings.init, settings.repr, settings.eq, settings.frozen = True, repr, eq, frozen
    methods: dict[str, Any] = {"__init__": _first_init(cls)}
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods |= _comparison(cls, frozen=frozen)
    if frozen:
        methods |= _protection(cls)
    for name, method in methods.items():
        # Python puts `__hash__ = None` into a class whose body has an `__eq__`.
        if cls.__dict__.get(name) is None:
            setattr(cls, name, method)
    return cls


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _comparison(cls: Any, *, frozen: bool) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def eq(self: Any, other: Any) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": eq, "__hash__": hash_ if frozen else None}


def _protection(cls: Any) -> dict[str, Any]:
    """Return the methods that keep instances as they are."""
    names = frozenset(cls.__dataclass_fields__)

    def set_(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    methods = {"__setattr__": set_, "__delattr__": delete}
    # What copies and pickles usually do with slots would set attributes.
    return methods | ({"__getstate__": _state, "__setstate__": _set_state} if "__slots__" in cls.__dict__ else {})


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _first_init(cls: Any) -> Callable[..., None]:
    """Return a constructor that compiles the real one and puts it in its own place."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _compile_init(cls)
        cls.__init__(self, *args, **kwargs)

    return init


def _compile_init(cls: Any) -> Callable[..., None]:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    for field in fields:
        names[f"_default_{field.name}"] = field.default
        names[f"_make_{field.name}"] = field.default_factory
    first = [_parameter(field) for field in fields if field.init and not field.kw_only]
    last = [_parameter(field) for field in fields if field.init and field.kw_only]
    parameters = ", ".join(("self", *first, *(("*", *last) if last else ())))
    body = [*_assignments(fields, frozen=cls.__dataclass_params__.frozen)]
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    source = f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"])
    exec(source, names)  # noqa: S102 - made of the names of fields alone
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


def _parameter(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name}=_missing"
    return field.name if field.default is dataclasses.MISSING else f"{field.name}=_default_{field.name}"


def _assignments(fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool) -> Iterator[str]:
    for field in fields:
        name, value = field.name, field.name if field.init else f"_default_{field.name}"
        if field.default_factory is not dataclasses.MISSING:
            made = f"_make_{name}()"
            value = f"{made} if {name} is _missing else {name}" if field.init else made
        elif not field.init and field.default is dataclasses.MISSING:
            continue
        yield f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"
