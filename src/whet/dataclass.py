"""`dataclass` as in the standard library, but several times as quick to define.

The standard library compiles six methods for each class when its module is imported, which took a third of the time of
`whet run` for one case. Here a class is made once with all its methods, most of which are shared, and a constructor is
compiled only for a class that has many instances. Fields, `replace`, `asdict`, copies, pickles and errors are those of
the standard library. `InitVar` and `KW_ONLY` are not supported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_MISSING = dataclasses.MISSING
# Sets a field of a frozen one.
_set = object.__setattr__
# What tells `dataclasses.fields` which of them are fields.
_IS_FIELD: Any = getattr(dataclasses, "_FIELD")  # noqa: B009 - it has no public name
_OPTIONS = frozenset(("slots", "kw_only", "eq", "repr"))
# So many instances are made by a loop, which takes a thirtieth of the time of compiling a constructor.
_FEW = 20

if TYPE_CHECKING:
    # Type checkers know this one.
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - for others to import
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, **options: bool) -> Any:
        """Make *cls* a dataclass; *options* are those of the standard library."""

        def make(cls: type) -> type:
            if not _OPTIONS.issuperset(options):
                return dataclasses.dataclass(cls, frozen=frozen, **options)
            return _made(cls, frozen=frozen, **options)

        return make if cls is None else make(cls)


class _Params:
    """What classes that are derived by the standard library ask for."""

    def __init__(self, *, frozen: bool) -> None:
        self.frozen = frozen


def _made(cls: Any, *, frozen: bool, slots: bool = False, kw_only: bool = False, **methods: bool) -> Any:
    own = {field.name: field for field in _fields(cls, kw_only=kw_only)}
    fields = _inherited(cls, frozen=frozen) | own
    added: dict[str, Any] = {
        "__dataclass_fields__": fields,
        "__dataclass_params__": _Params(frozen=frozen),
        "__match_args__": tuple(field.name for field in fields.values() if field.init and not field.kw_only),
        "__init__": _first_init(fields, lambda: made),
    }
    if methods.get("repr", True):
        added["__repr__"] = _repr
    if methods.get("eq", True):
        added |= _comparison(fields, frozen=frozen)
    if frozen:
        added |= _protection(frozenset(fields), lambda: made)
    if frozen and slots:
        # What copies and pickles usually do with slots would set attributes.
        added |= {"__getstate__": _state, "__setstate__": _set_state}
    # Python puts `__hash__ = None` into a class whose body has an `__eq__`.
    added = {name: value for name, value in added.items() if cls.__dict__.get(name) is None}
    if not slots:
        made = _extended(cls, own, added)
        return made
    dropped = {*own, "__dict__", "__weakref__"}
    body = {name: value for name, value in cls.__dict__.items() if name not in dropped}
    inherited = {name for base in cls.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
    body |= {**added, "__slots__": tuple(name for name in fields if name not in inherited)}
    made = type(cls)(cls.__name__, cls.__bases__, {**body, "__qualname__": cls.__qualname__})
    return made


def _inherited(cls: Any, *, frozen: bool) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of the classes that it is derived from, the outermost first."""
    fields: dict[str, dataclasses.Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        if "__dataclass_fields__" not in base.__dict__:
            continue
        if base.__dataclass_params__.frozen != frozen:
            wrong = "non-frozen dataclass from a frozen one" if not frozen else "frozen dataclass from a non-frozen one"
            raise TypeError(f"cannot inherit {wrong}")
        fields |= base.__dataclass_fields__
    return fields


def _extended(cls: Any, fields: dict[str, dataclasses.Field[Any]], added: dict[str, Any]) -> Any:
    """Return the same class with what is *added*, and its defaults as attributes."""
    for name, field in fields.items():
        if field.default is not _MISSING:
            setattr(cls, name, field.default)
        elif name in cls.__dict__:
            delattr(cls, name)
    for name, value in added.items():
        setattr(cls, name, value)
    return cls


def _fields(cls: Any, *, kw_only: bool) -> Iterator[dataclasses.Field[Any]]:
    """Yield a field for each annotation that is not of the class itself."""
    for name, annotation in cls.__annotations__.items():
        if "ClassVar" in annotation and annotation.removeprefix("typing.").startswith("ClassVar"):
            continue
        default = cls.__dict__.get(name, _MISSING)
        field: Any = default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
        if field.default.__class__.__hash__ is None:
            raise ValueError(
                f"mutable default {type(field.default)} for field {name} is not allowed: use default_factory"
            )
        field.name, field.type, field._field_type = name, annotation, _IS_FIELD  # noqa: SLF001 - as above
        if field.kw_only is _MISSING:
            field.kw_only = kw_only
        yield field


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _comparison(fields: dict[str, dataclasses.Field[Any]], *, frozen: bool) -> dict[str, Any]:
    names = [field.name for field in fields.values() if field.compare]
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def eq(self: Any, other: Any) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": eq, "__hash__": hash_ if frozen else None}


def _protection(names: frozenset[str], made: Callable[[], Any]) -> dict[str, Any]:
    """Return the methods that keep instances as they are."""

    def set_(self: Any, name: str, value: Any) -> None:
        if type(self) is made() or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made(), self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        if type(self) is made() or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made(), self).__delattr__(name)

    return {"__setattr__": set_, "__delattr__": delete}


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        _set(self, field.name, value)


def _first_init(fields: dict[str, dataclasses.Field[Any]], made: Callable[[], Any]) -> Callable[..., None]:
    """Return a constructor that in the end, or for a wrong call, compiles the real one and puts it in its own place."""
    calls = 0

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        values = _values(fields, made().__match_args__, args, kwargs) if calls <= _FEW else None
        if values is None:
            made().__init__ = _compile_init(made())
            made().__init__(self, *args, **kwargs)
            return
        for name, value in values.items():
            _set(self, name, value)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    return init


def _values(
    fields: dict[str, dataclasses.Field[Any]], places: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the value of each field, or None if the call is wrong: compiled code says how."""
    given = dict(zip(places, args, strict=False)) | kwargs
    if len(given) != len(args) + len(kwargs):
        return None
    values = {}
    for name, field in fields.items():
        if name in given and field.init:
            values[name] = given.pop(name)
        elif field.default is not _MISSING:
            values[name] = field.default
        elif field.default_factory is not _MISSING:
            values[name] = field.default_factory()
        elif field.init:
            return None
    return None if given else values


def _compile_init(cls: Any) -> Callable[..., None]:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"_set": _set, "_missing": _MISSING}
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
    if field.default_factory is not _MISSING:
        return f"{field.name}=_missing"
    return field.name if field.default is _MISSING else f"{field.name}=_default_{field.name}"


def _assignments(fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool) -> Iterator[str]:
    for field in fields:
        name, value = field.name, field.name if field.init else f"_default_{field.name}"
        if field.default_factory is not _MISSING:
            made = f"_make_{name}()"
            value = f"{made} if {name} is _missing else {name}" if field.init else made
        elif not field.init and field.default is _MISSING:
            continue
        yield f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"
