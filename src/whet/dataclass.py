"""`dataclass` as in the standard library, but many times as quick to define.

The standard library reads the fields and compiles six methods for each class when its module is imported, which took a
third of the time of `whet run` for one case. Here methods are shared, a constructor is compiled when a class has more
than a few instances, and the standard library reads the fields when something asks for them.
Fields, `replace`, `asdict`, copies, pickles and errors are those of the standard library. `InitVar` is not supported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers know this one.
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - for others to import
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Make *cls* a dataclass; *options* are those of the standard library."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        base = cls.__base__.__dict__.get("__whet_fields__")
        simple = len(cls.__bases__) == 1 and (base.allows(options) if base else cls.__base__ is object)
        # More inheritance and more options have rules of their own, which few classes need.
        ours = simple and options.keys() <= _OPTIONS
        return _Fields(cls, options, base).make() if ours else dataclasses.dataclass(cls, **options)


_OPTIONS = {"frozen", "slots", "kw_only", "repr", "eq"}
# As many instances are made without a compiled constructor: most classes have one or two in a run.
_FEW = 3
_set = object.__setattr__
# `fields` returns those that have this mark.
_MARK: Any = dataclasses._FIELD  # type: ignore[attr-defined] # noqa: SLF001


class _Fields:
    """The fields of a class as its author wrote them, and the methods that work on them."""

    def __init__(self, cls: Any, options: dict[str, bool], base: _Fields | None) -> None:
        self._cls = cls
        self._options = options
        self._frozen = options.get("frozen", False)
        # Annotations are text, because all of our modules import `annotations` from `__future__`.
        own = {name: kind for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")}
        self.kinds: dict[str, str] = base.kinds | own if base else own
        self._own_defaults = {name: cls.__dict__[name] for name in own if name in cls.__dict__}
        self.defaults: dict[str, Any] = base.defaults | self._own_defaults if base else self._own_defaults
        self._own = tuple(name for name in own if base is None or name not in base.kinds)
        for name, default in self._own_defaults.items():
            if default.__class__.__hash__ is None:
                raise ValueError(f"the default of {name} can change: use default_factory")
        self._instances = 0

    def allows(self, options: dict[str, bool]) -> bool:
        """Return whether a class that derives from this one can have its own fields after these."""
        return all(self._options.get(name) == options.get(name) for name in ("frozen", "kw_only"))

    def make(self) -> Any:
        """Return the class with its methods."""
        cls = self._cls
        # Python puts `__hash__ = None` into a class whose body has an `__eq__`.
        methods = {name: value for name, value in self._methods().items() if cls.__dict__.get(name) is None}
        if self._options.get("slots"):
            # Slots can only be part of a new class.
            without = {"__dict__", "__weakref__", *self._own_defaults}
            body = {name: value for name, value in cls.__dict__.items() if name not in without}
            slots = {"__slots__": self._own}
            self._cls = type(cls)(cls.__name__, cls.__bases__, body | methods | slots)
            return self._cls
        for name, method in methods.items():
            setattr(cls, name, method)
        for name, default in self._own_defaults.items():
            if isinstance(default, dataclasses.Field):
                # As without dataclasses: the class has what instances get by default.
                delattr(cls, name) if default.default is dataclasses.MISSING else setattr(cls, name, default.default)
        return cls

    def _methods(self) -> dict[str, Any]:
        methods = {
            "__init__": self._first_init(),
            "__match_args__": tuple(self._positional),
            "__replace__": dataclasses.replace,
            "__dataclass_fields__": _Later(lambda: self.fields),
            "__dataclass_params__": _Later(lambda: self._params),
            # For classes that derive from this one.
            "__whet_fields__": self,
        }
        if self._options.get("repr", True):
            methods["__repr__"] = _repr
        if self._options.get("eq", True):
            methods |= self._comparison()
        if self._frozen:
            methods |= self._protection()
        if self._frozen and self._options.get("slots"):
            # What copies and pickles usually do with slots would set attributes.
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        return methods

    @cached_property
    def fields(self) -> dict[str, dataclasses.Field[Any]]:
        """The fields as the standard library has them."""
        return {name: self._field(name, kind) for name, kind in self.kinds.items()}

    def _field(self, name: str, kind: str) -> Any:
        default = self.defaults.get(name, dataclasses.MISSING)
        field: Any = default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
        field.name, field.type, field._field_type = name, kind, _MARK  # noqa: SLF001
        if field.kw_only is dataclasses.MISSING:
            field.kw_only = self._options.get("kw_only", False)
        return field

    @cached_property
    def _params(self) -> Any:
        """The options as the standard library has them."""
        bare: Any = dataclasses.dataclass(**self._options)(type(self._cls.__name__, (), {}))
        return bare.__dataclass_params__

    @cached_property
    def _positional(self) -> list[str]:
        if self._options.get("kw_only"):
            return []
        declared = {name: field for name, field in self.defaults.items() if isinstance(field, dataclasses.Field)}
        left_out = {name for name, field in declared.items() if not field.init or field.kw_only is True}
        return [name for name in self.kinds if name not in left_out]

    @cached_property
    def _values(self) -> Callable[[Any], Any]:
        names = [name for name, field in self.fields.items() if field.compare]
        return attrgetter(*names) if names else lambda _: ()

    def _comparison(self) -> dict[str, Any]:
        def eq(this: Any, other: Any) -> bool:
            return self._values(this) == self._values(other) if other.__class__ is this.__class__ else NotImplemented

        return {"__eq__": eq, "__hash__": (lambda this: hash(self._values(this))) if self._frozen else None}

    def _protection(self) -> dict[str, Any]:
        """Return the methods that keep instances as they are."""

        def set_(this: Any, name: str, value: Any) -> None:
            if type(this) is self._cls or name in self.kinds:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(self._cls, this).__setattr__(name, value)

        def delete(this: Any, name: str) -> None:
            if type(this) is self._cls or name in self.kinds:
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(self._cls, this).__delattr__(name)

        return {"__setattr__": set_, "__delattr__": delete}

    def _first_init(self) -> Callable[..., None]:
        """Return a constructor that puts a compiled one in its own place after a few instances, or at an error."""

        def init(this: Any, /, *args: Any, **kwargs: Any) -> None:
            self._instances += 1
            if self._instances > _FEW or not self._fill(this, args, kwargs):
                self._cls.__init__ = _compile_init(self._cls, frozen=self._frozen)
                self._cls.__init__(this, *args, **kwargs)
            elif hasattr(self._cls, "__post_init__"):
                this.__post_init__()

        return init

    def _fill(self, this: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Set the fields of a new instance; return whether it was called correctly."""
        given = dict(zip(self._positional, args, strict=False)) | kwargs
        if len(given) < len(args) + len(kwargs) or not given.keys() <= self.kinds.keys():
            return False
        for name in self.kinds:
            default = self.defaults.get(name, dataclasses.MISSING)
            if isinstance(default, dataclasses.Field):
                if not default.init:
                    return False
                made = default.default_factory
                default = default.default if made is dataclasses.MISSING or name in given else made()
            value = given.get(name, default)
            if value is dataclasses.MISSING:
                return False
            _set(this, name, value)
        return True


class _Later:
    """An attribute of a class that is worked out when something asks for it."""

    def __init__(self, work_out: Callable[[], Any]) -> None:
        self._work_out = work_out

    def __get__(self, instance: Any, cls: Any) -> Any:
        return self._work_out()


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        _set(self, field.name, value)


def _compile_init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"_set": _set, "_missing": dataclasses.MISSING}
    for field in fields:
        names[f"_default_{field.name}"] = field.default
        names[f"_make_{field.name}"] = field.default_factory
    first = [_parameter(field) for field in fields if field.init and not field.kw_only]
    last = [_parameter(field) for field in fields if field.init and field.kw_only]
    parameters = ", ".join(("self", *first, *(("*", *last) if last else ())))
    body = [*_assignments(fields, frozen=frozen)]
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
