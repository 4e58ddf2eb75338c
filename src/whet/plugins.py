"""Find extensions by name: agents, graders, formats, sandboxes and reporters are entry points, ours too."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from whet.errors import PluginError, UnknownName

Kind = Literal["agents", "graders", "formats", "sandboxes", "reporters"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_GROUP = re.compile(r"\s*\[\s*(.+?)\s*\]")
_ENTRY = re.compile(r"\s*([^#;=\s][^=]*?)\s*=\s*(\S.*?)\s*$")


@lru_cache
def names(kind: Kind) -> tuple[str, ...]:
    """Return the names of all extensions of *kind*, sorted."""
    return tuple(sorted(_references(kind)))


@lru_cache
def find(kind: Kind, name: str) -> Any:
    """Load the extension called *name*; the error for an unknown name suggests the nearest one."""
    reference = _references(kind).get(name)
    if reference is None:
        # Only here: a name that is right needs no similar ones.
        from difflib import get_close_matches  # noqa: PLC0415

        near = get_close_matches(name, names(kind), n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(names(kind))}"
        raise UnknownName(f'no {_singular(kind)} is called "{name}"', hint=hint)
    try:
        return _load(reference)
    except (Exception, SystemExit) as error:
        raise PluginError(f'{_singular(kind)} "{name}" ({reference}) cannot be loaded: {_said(error)}') from error


def module_of(kind: Kind, name: str) -> str | None:
    """Return the module of the extension called *name*, without loading it, or None if there is none."""
    reference = _references(kind).get(name)
    return reference.partition(":")[0].strip() if reference else None


def find_object(reference: str) -> Any:
    """Load what `module:object` names."""
    try:
        return _load(reference)
    except (Exception, SystemExit) as error:
        raise PluginError(f'"{reference}" cannot be loaded: {_said(error)}') from error


def _load(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    found: Any = importlib.import_module(module.strip())
    for part in attribute.partition("[")[0].split("."):
        found = getattr(found, part.strip())
    return found


def _references(kind: Kind) -> dict[str, str]:
    """Return the entry points of *kind*: `module:object` by name."""
    return _entry_points().get(f"whet.{kind}", {})


@lru_cache
def _entry_points() -> dict[str, dict[str, str]]:
    """Return all entry points for whet, by group and name."""
    found: dict[str, dict[str, str]] = {}
    for group, name, reference in _installed():
        found.setdefault(group, {})[name] = reference
    return found


def _installed() -> Iterator[tuple[str, str, str]]:
    """Find group, name and reference of the entry points that are installed.

    `importlib.metadata` gives the same, but takes longer to import and to ask than Python takes to start. It is asked
    only if something else than folders is on the path, such as a zip file.
    """
    folders = [path or "." for path in sys.path]
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    if len(finders) > 1 or any(os.path.isfile(path) for path in folders):  # noqa: PTH113 - a path may be any text
        from importlib.metadata import entry_points  # noqa: PLC0415

        every = (entry for kind in _KINDS for entry in entry_points(group=f"whet.{kind}"))
        yield from ((entry.group, entry.name, entry.value) for entry in every)
        return
    seen: set[str] = set()
    for folder in folders:
        for path in _entry_point_files(folder):
            # The first of a name is the one that Python imports.
            name = path.parent.name.partition("-")[0].lower()
            if name not in seen:
                seen.add(name)
                yield from _read_entry_points(path)


def _entry_point_files(folder: str) -> list[Path]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info")))  # noqa: PTH208
    except OSError:
        return []
    return [Path(folder, name, "entry_points.txt") for name in names]


def _read_entry_points(path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - there are as many as distributions, and few are about whet
            data = file.read()
    except OSError:
        return
    group = ""
    for line in data.decode().splitlines() if b"whet." in data else ():
        if head := _GROUP.match(line):
            group = head[1]
        elif group.startswith("whet.") and (entry := _ENTRY.match(line)):
            yield group, entry[1], entry[2]


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it tried to end the program, with exit code {0 if error.code is None else error.code}"
    return str(error) or type(error).__name__


def _singular(kind: Kind) -> str:
    return {"sandboxes": "sandbox"}.get(kind, kind[:-1])
