"""Show which settings are in force and where each came from, for `whet config` and run.json; secrets stay hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whet.ground.secrets import looks_secret
from whet.model.request import BUILT_IN, Settings
from whet.model.run import Runner
from whet.model.suite import WorkspaceSpec
from whet.plan.settings_sources import dotted
from whet.plan.settings_table import FIELD_SECTIONS, Key, Setting, Value, rows_in, table_at

HIDDEN = "***"
# What leaving a setting out means, in words.
_UNSET = {f"{section}.{name}": row.unset for section in FIELD_SECTIONS for name, row in rows_in(section)} | {
    "run.workspace": "isolated (or as the suite says)"
}


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """Return every effective value as dotted key, text and origin."""
    return [(key, _text(key, value), origin) for key, value, origin in entries(settings)]


def entries(settings: Settings) -> list[tuple[str, Any, str]]:
    """Return every effective value as dotted key, plain JSON data and origin."""
    found = [entry for section in FIELD_SECTIONS for entry in _fields(section, settings)]
    for section in ("snapshots", "judge", "packages", "composite"):
        found += _nested(section, getattr(settings, section) or {})
    found += [entry for runner in settings.runners for entry in _runner(runner)]
    return [(key, _json(value), settings.origins.get(key, BUILT_IN)) for key, value in found]


def _fields(section: str, settings: Settings) -> Iterator[tuple[str, Any]]:
    for name, row in table_at(section).items():
        if isinstance(row, Setting):
            yield f"{section}.{name}", row.read(settings, name)
        else:
            yield from _workspace(settings.workspace)


def _workspace(workspace: WorkspaceSpec | None) -> Iterator[tuple[str, Any]]:
    table = ("run", "workspace")
    if workspace is None:
        yield dotted(table), None
        return
    yield from _given(table, workspace)
    if workspace.bootstrap is not None:
        yield from _given((*table, "bootstrap"), workspace.bootstrap)
        yield from _env((*table, "bootstrap"), workspace.bootstrap.env)


def _given(table: Key, owner: object) -> Iterator[tuple[str, Any]]:
    """Yield the values of the rows in *table* that *owner* has."""
    values = ((name, row.read(owner, name)) for name, row in rows_in(*table))
    yield from ((dotted((*table, name)), value) for name, value in values if value not in (None, ()))


def _nested(table: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{table}.{name}.{part}", inner) for part, inner in value.items())
        else:
            yield f"{table}.{name}", value


def _runner(runner: Runner) -> Iterator[tuple[str, Any]]:
    agent = ("runners", runner.id, "agent")
    yield dotted((*agent, "type")), runner.agent
    if runner.model is not None:
        yield dotted((*agent, "model")), runner.model
    for name, value in runner.options.items():
        if name == "env":
            yield from _env(agent, value)
        else:
            yield dotted((*agent, name)), value


def _env(table: Key, env: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name, value in env.items():
        yield dotted((*table, "env", name)), HIDDEN if looks_secret(name) else value


def _json(value: object) -> Value:
    """Return *value* as JSON can hold it; what is named like a secret is hidden, at any depth."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case Mapping():
            return {str(name): HIDDEN if looks_secret(str(name)) else _json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_json(item) for item in value]
        case _:
            return str(value)


def _text(key: str, value: object) -> str:
    match value:
        case None:
            return _UNSET.get(key, "-")
        case bool():
            return "true" if value else "false"
        case list():
            return ", ".join(_text(key, item) for item in value) or "-"
        case dict():
            return "{" + ", ".join(f"{name} = {_text(key, inner)}" for name, inner in value.items()) + "}"
        case _:
            return str(value)
