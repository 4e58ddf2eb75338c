"""Read settings from flags, environment variables and files, and check each value by its row of the table."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.model.run import OfHost
from whet.plan.settings.table import GIVEN, SETTINGS, Key, Setting, Table, Value
from whet.reading.fields import Fields, Findings, variable_problem
from whet.reading.toml import TOML, SettingsFile, dotted
from whet.secrets import looks_secret

_RUNNER_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
# Where an editor finds the schema of the file.
_FOR_EDITORS = "$schema"
_WORDS = {"true": True, "false": False}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


class SourceValue(Struct, frozen=True):
    """A value and where it came from; `file` and `place` point at it in messages."""

    value: Any
    origin: str
    file: str
    place: str


class SettingsSource:
    """All settings from one place."""

    def __init__(self, base: Base, label: str = "") -> None:
        self.label = label
        self.findings = Findings(label, language=TOML, is_secret=looks_secret)
        self.values: dict[Key, SourceValue] = {}
        # Every table that is opened, also an empty one.
        self.tables: list[Key] = []
        # Keys with a wrong value, which must not be reported as missing as well.
        self.wrong: set[Key] = set()
        self._base = base

    def take(self, fields: Fields, name: str, row: Setting, key: Key, origin: str) -> None:
        """Take the value at *name* of *fields*, or note what is wrong with it."""
        before = len(self.findings.problems)
        value = row.read(fields, name)
        if len(self.findings.problems) == before:
            self.values[key] = SourceValue(self._base.resolve(value, row), origin, self.label, fields.place(name))
        else:
            self.wrong.add(key)

    def take_table(self, fields: Fields, table: Table, key: Key = ()) -> None:
        """Take all values of *fields*, which is the table at *key*."""
        self.tables.append(key)
        if "*" not in table:
            fields.refuse_unknown(list(table), _elsewhere(table))
        for name, value in fields.values.items():
            row, where = table.get("*", table.get(name)), (*key, name)
            if "*" in table and (problem := _name_problem(where)):
                self.findings.note(dotted(where), problem)
                self.wrong.add(where)
            elif isinstance(row, Setting):
                self.take(fields, name, row, where, self.label)
            elif row is not None:
                inner = fields.table(name)
                if isinstance(value, Mapping):
                    self.take_table(inner, row, where)
                else:
                    self.wrong.add(where)


def from_flags(flags: Mapping[str, Any], base: Base) -> SettingsSource:
    """Take what was typed for this run."""
    source = SettingsSource(base)
    for name, value in flags.items():
        key, row = GIVEN[name]
        flag = row.flag.name if row.flag else f"--{name}"
        # Folders come as paths from the command line and as text from everywhere else.
        text = str(value) if isinstance(value, Path) else value
        source.take(Fields({flag: text}, source.findings), flag, row, key, f"flag {flag}")
    return source


def from_environ(environ: Mapping[str, str], base: Base) -> SettingsSource:
    """Take what `WHET_*` variables say; an empty one counts as not set."""
    source = SettingsSource(base)
    for name, (key, row) in GIVEN.items():
        variable = f"WHET_{name.upper()}"
        if row.variable and environ.get(variable, "").strip():
            fields = Fields({variable: _from_text(row, environ[variable])}, source.findings)
            source.take(fields, variable, row, key, variable)
    return source


def from_file(file: SettingsFile, home: Path | None) -> SettingsSource:
    """Take what a settings file says."""
    source = SettingsSource(Base(file.path.parent, home), file.label)
    fields = Fields({name: value for name, value in file.data.items() if name != _FOR_EDITORS}, source.findings)
    source.take_table(fields, SETTINGS)
    return source


def _from_text(row: Setting, text: str) -> Value:
    """Return a variable's *text* as the value that a file would hold; text that does not fit stays text."""
    if row.many:
        return [piece.strip() for piece in text.split(",")]
    if row.kind == "whole" and _WHOLE_NUMBER.fullmatch(text.strip()):
        return int(text)
    if row.kind == "flag":
        return _WORDS.get(text.strip(), text)
    return text.strip() if row.place is None else text


class Base(Struct, frozen=True):
    """The folder that relative paths start from, and the home that `~` means."""

    folder: Path
    home: Path | None

    def resolve(self, value: Value, row: Setting) -> Value:
        """Return *value* with absolute paths, as *row* asks."""
        return tuple(self._resolve_one(item, row) for item in value) if row.many else self._resolve_one(value, row)

    def path(self, text: str) -> Path:
        """Return the absolute path that *text* names; keeps links, because people know their folders by them."""
        return Path(os.path.abspath(self.folder / self._expand(text)))  # noqa: PTH100 - resolve() follows links

    def _resolve_one(self, value: Value, row: Setting) -> Value:
        match row.place:
            case "path":
                return self.path(value)
            case "word" if value in {".", ".."} or value.startswith(("./", "../")):
                return str(self.path(value))
            case "program":
                return self._program(value)
            case _:
                return value

    def _program(self, value: str) -> str:
        if value in {".", ".."} or value.startswith(("./", "../")):
            return OfHost(self.path(value))
        # No shell will expand it later; in arguments "~" may be meant for the program.
        path = self._expand(value)
        return value if path == value else OfHost(path)

    def _expand(self, text: str) -> str:
        if self.home is not None and (text == "~" or text.startswith("~/")):
            return str(self.home) + text[1:]
        return text


def _name_problem(key: Key) -> str | None:
    """Return what is wrong with a name that a person chose."""
    if key[0] == "runners" and not _RUNNER_ID.fullmatch(key[1]):
        return 'a runner id is a folder name: letters, digits, ".", "_" and "-", not starting with a dot'
    return variable_problem(key[-1]) if "env" in key else None


def _elsewhere(table: Table) -> dict[str, str]:
    """Return the keys of other tables, by name: of the tables inside of *table*, then of the sections."""
    inner = [(section, rows) for tables in (table, SETTINGS) for section, rows in tables.items()]
    keys: dict[str, str] = {}
    for section, rows in inner:
        if isinstance(rows, Setting):
            continue
        for name in rows:
            # A name that lacks an "s" is a slip in this table.
            if name not in table and f"{name}s" not in table:
                keys.setdefault(re.sub(r"[^a-z]", "", name), f"{section}.{name}")
    return keys
