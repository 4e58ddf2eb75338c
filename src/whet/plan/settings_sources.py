"""Read settings from flags, environment variables and files, and check each value by its row of the table."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.ground.secrets import looks_secret
from whet.plan.settings_table import GIVEN, SETTINGS, Key, Rule, Setting, Table, Value, is_variable_name
from whet.reading.settings_files import SettingsFile
from whet.reading.text import shown, written

_RUNNER_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WORDS = {"true": True, "false": False}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Found:
    """A value, where it came from, and how an error message points at it."""

    value: Any
    origin: str
    where: str


@dataclass(frozen=True, slots=True)
class Source:
    """All settings from one place."""

    values: Mapping[Key, Found]
    problems: tuple[str, ...]
    wrong: frozenset[Key]
    # Every table that is opened, also an empty one.
    tables: tuple[Key, ...] = ()
    # The name of the place in messages.
    label: str = ""


def from_flags(flags: Mapping[str, Any], base: Base) -> Source:
    """Take what was typed for this run."""
    named = {name: GIVEN[name][1].flag or f"--{name}" for name in flags}
    # Folders come as paths from the command line and as text from everywhere else.
    texts = {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
    return _from_names(texts, named, base, origin="flag {}")


def from_environ(environ: Mapping[str, str], base: Base) -> Source:
    """Take what `WHET_*` variables say; an empty one counts as not set."""
    named = {name: f"WHET_{name.upper()}" for name, (_, row) in GIVEN.items() if row.variable}
    given = {name: environ[variable] for name, variable in named.items() if environ.get(variable, "").strip()}
    values = {name: _read_text(GIVEN[name][1].rule, text) for name, text in given.items()}
    return _from_names(values, named, base, origin="{}")


def from_file(file: SettingsFile, home: Path | None) -> Source:
    """Take what a settings file says."""
    checked = check_document(file.data, Base(file.path.parent, home))
    values = {key: Found(value, file.label, f"{file.label}: {dotted(key)}") for key, value in checked.values.items()}
    problems = tuple(f"{file.label}: {where}: {message}" for where, message in checked.problems)
    return Source(values, problems, frozenset(checked.wrong), tuple(checked.tables), file.label)


def _from_names(given: Mapping[str, Any], named: Mapping[str, str], base: Base, *, origin: str) -> Source:
    checked = Checked(base)
    words: dict[Key, str] = {}
    for name, value in given.items():
        key, row = GIVEN[name]
        words[key] = named[name]
        checked.value(value, row.rule, key, where=named[name])
    values = {key: Found(value, origin.format(words[key]), words[key]) for key, value in checked.values.items()}
    problems = tuple(f"{where}: {message}" for where, message in checked.problems)
    return Source(values, problems, frozenset(checked.wrong))


def _read_text(rule: Rule, text: str) -> Value:
    """Return a variable's *text* as the value that a file would hold; text that does not fit stays text."""
    if rule.many:
        return [piece.strip() for piece in text.split(",")]
    if rule.kind == "whole" and _WHOLE_NUMBER.fullmatch(text.strip()):
        return int(text)
    if rule.kind == "flag":
        return _WORDS.get(text.strip(), text)
    return text.strip() if rule.place is None else text


@dataclass(frozen=True, slots=True)
class Base:
    """The folder that relative paths start from, and the home that `~` means."""

    folder: Path
    home: Path | None

    def settle(self, value: Value, rule: Rule) -> Value:
        """Return *value* with absolute paths and with lists as tuples, as *rule* asks."""
        if rule.many:
            return tuple(self._settle_one(item, rule) for item in value)
        return self._settle_one(value, rule)

    def path(self, text: str) -> Path:
        """Return the absolute path that *text* names; keeps links, because people know their folders by them."""
        return Path(os.path.abspath(self.folder / self._expand(text)))  # noqa: PTH100 - resolve() follows links

    def _settle_one(self, value: Value, rule: Rule) -> Value:
        match rule.place:
            case "path":
                return self.path(value)
            case "program" | "word" if value in {".", ".."} or value.startswith(("./", "../")):
                return str(self.path(value))
            case "program":
                # No shell will expand it later; in arguments "~" may be meant for the program.
                return str(self._expand(value))
            case _:
                return value

    def _expand(self, text: str) -> str:
        if self.home is not None and (text == "~" or text.startswith("~/")):
            return str(self.home) + text[1:]
        return text


def dotted(key: Key) -> str:
    """Return *key* as you write it in TOML."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in key)


@dataclass(slots=True)
class Checked:
    """The values of a document by key, the tables that it opens, and its problems."""

    base: Base
    values: dict[Key, Any] = field(default_factory=dict)
    tables: list[Key] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    # Keys with a wrong value, which must not be reported as missing as well.
    wrong: set[Key] = field(default_factory=set)

    def table(self, data: object, table: Table, key: Key = ()) -> None:
        """Check *data*, the value at *key*, against *table*."""
        if not isinstance(data, Mapping):
            self._complain(key, f"must be a table, not {_kind_or_value(data)}")
            return
        self.tables.append(key)
        for name, value in data.items():
            row = table.get("*", table.get(name))
            where = (*key, name)
            if row is None:
                self._complain(where, f"unknown key ({_suggestion(name, table)})")
            elif "*" in table and (problem := _name_problem(where)):
                self._complain(where, problem)
            elif isinstance(row, Setting):
                self.value(value, row.rule, where)
            else:
                self.table(value, row, where)

    def value(self, value: Value, rule: Rule, key: Key, *, where: str | None = None) -> None:
        """Check one *value*; *where* is its name in messages, by default its dotted key."""
        problems = list(
            _value_problems(value, rule, where or dotted(key), hide=rule.kind == "text" and looks_secret(key[-1]))
        )
        if problems:
            self.problems += problems
            self.wrong.add(key)
        else:
            self.values[key] = self.base.settle(value, rule)

    def _complain(self, key: Key, message: str) -> None:
        self.problems.append((dotted(key), message))
        self.wrong.add(key)


def check_document(data: Mapping[str, Any], base: Base) -> Checked:
    """Check a whole settings document."""
    checked = Checked(base)
    checked.table(data, SETTINGS)
    return checked


def _kind_or_value(value: object) -> str:
    """Return *value* for a message; of a list or a table only its kind, because it may hold secrets."""
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, float):
        # As TOML writes inf and nan, and JSON does not.
        return written(value)
    return "a table" if isinstance(value, Mapping) else shown(value)


def _value_problems(value: Value, rule: Rule, where: str, *, hide: bool) -> list[tuple[str, str]]:
    if not rule.many:
        problem = _problem(value, rule, hide=hide)
        return [(where, problem)] if problem else []
    if not isinstance(value, list | tuple):
        return [(where, f"must be a list, not {_kind_or_value(value)}")]
    found = [(f"{where}[{index}]", _problem(item, rule, hide=hide)) for index, item in enumerate(value)]
    return [(place, problem) for place, problem in found if problem]


def _problem(value: Value, rule: Rule, *, hide: bool) -> str | None:
    if not rule.accepts(value):
        return f"must be {rule.expected}, not {'***' if hide else _kind_or_value(value)}"
    if isinstance(value, str) and "\0" in value:
        return "must not contain a NUL character"
    return None


def _name_problem(key: Key) -> str | None:
    """Return what is wrong with a name that a person chose."""
    if key[0] == "runners" and not _RUNNER_ID.fullmatch(key[1]):
        return 'a runner id is a folder name: letters, digits, ".", "_" and "-", not starting with a dot'
    if "env" in key and not is_variable_name(key[-1]):
        return "must be named like an environment variable"
    return None


def _suggestion(name: str, table: Table) -> str:
    """Return a hint: the section that has this name, or the nearest name in this table."""
    for tables in (table, SETTINGS):
        for section, rows in tables.items():
            if not isinstance(rows, Setting) and name in rows:
                return f'did you mean "{section}.{name}"?'
    near = get_close_matches(name, table, n=1)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"known here: {', '.join(table)}"
