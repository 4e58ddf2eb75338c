"""Find extensions by name: agents, graders, formats, sandboxes and reporters are entry points, ours too."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from whet.errors import PluginError, UnknownName

Kind = Literal["agents", "graders", "formats", "sandboxes", "reporters"]


@lru_cache
def names(kind: Kind) -> tuple[str, ...]:
    """Return the names of all extensions of *kind*, sorted."""
    return tuple(sorted(_entries(kind)))


@lru_cache
def find(kind: Kind, name: str) -> Any:
    """Load the extension called *name*; the error for an unknown name suggests the nearest one."""
    entry = _entries(kind).get(name)
    if entry is None:
        near = get_close_matches(name, names(kind), n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(names(kind))}"
        raise UnknownName(f'no {_singular(kind)} is called "{name}"', hint=hint)
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise PluginError(f'{_singular(kind)} "{name}" ({entry.value}) cannot be loaded: {_said(error)}') from error


def module_of(kind: Kind, name: str) -> str | None:
    """Return the module of the extension called *name*, without loading it, or None if there is none."""
    entry = _entries(kind).get(name)
    return entry.module if entry else None


def find_object(reference: str) -> Any:
    """Load what `module:object` names."""
    module, _, attribute = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise PluginError(f'"{reference}" cannot be loaded: {_said(error)}') from error
    return found


@lru_cache
def _entries(kind: Kind) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"whet.{kind}")}


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it tried to end the program, with exit code {0 if error.code is None else error.code}"
    return str(error) or type(error).__name__


def _singular(kind: Kind) -> str:
    return {"sandboxes": "sandbox"}.get(kind, kind[:-1])
