"""Holding a settings document against the schema: every value that is right, and a problem for each that is not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeAlias

from whet.config.places import Base
from whet.config.schema import SCHEMA, Rule, Table, Value, is_variable_name
from whet.mask import looks_secret
from whet.numbers import written

Key: TypeAlias = tuple[str, ...]

_RUNNER_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_SHOWN = 60


def dotted(key: Key) -> str:
    """*key* as one would write it in TOML."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in key)


@dataclass(slots=True)
class Checked:
    """What a document says: its values by key, the tables that it opens, and what is wrong with it."""

    base: Base
    values: dict[Key, Any] = field(default_factory=dict)
    tables: list[Key] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    # Keys that are there and wrong, so that nobody also calls them missing.
    wrong: set[Key] = field(default_factory=set)

    def table(self, data: object, table: Table, key: Key = ()) -> None:
        """Take in *data*, which stands at *key* and should be as *table* says."""
        if not isinstance(data, Mapping):
            self._complain(key, f"must be a table, not {shown(data)}")
            return
        self.tables.append(key)
        for name, value in data.items():
            rule = table.get("*", table.get(name))
            where = (*key, name)
            if rule is None:
                self._complain(where, f"unknown key ({_suggestion(name, table)})")
            elif "*" in table and (problem := _name_problem(where)):
                self._complain(where, problem)
            elif isinstance(rule, Rule):
                self.value(value, rule, where)
            else:
                self.table(value, rule, where)

    def value(self, value: Value, rule: Rule, key: Key, *, where: str | None = None) -> None:
        """Take in one *value*; *where* is how a person knows it, by default its dotted key."""
        problems = list(_value_problems(value, rule, where or dotted(key), hide=looks_secret(key[-1])))
        if problems:
            self.problems += problems
            self.wrong.add(key)
        else:
            self.values[key] = self.base.settle(value, rule)

    def _complain(self, key: Key, message: str) -> None:
        self.problems.append((dotted(key), message))
        self.wrong.add(key)


def check_document(data: Mapping[str, Any], base: Base) -> Checked:
    """Every value of a whole settings document, and every problem."""
    checked = Checked(base)
    checked.table(data, SCHEMA)
    return checked


def shown(value: object) -> str:
    """*value* as an error message names it."""
    match value:
        case str():
            text = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
            return json.dumps(text, ensure_ascii=False)
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case Mapping():
            return "a table"
        case _:
            text = written(value)
            return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


def _value_problems(value: Value, rule: Rule, where: str, *, hide: bool) -> list[tuple[str, str]]:
    if not rule.many:
        problem = _problem(value, rule, hide=hide)
        return [(where, problem)] if problem else []
    if not isinstance(value, list | tuple):
        return [(where, f"must be a list, not {shown(value)}")]
    found = [(f"{where}[{index}]", _problem(item, rule, hide=hide)) for index, item in enumerate(value)]
    return [(place, problem) for place, problem in found if problem]


def _problem(value: Value, rule: Rule, *, hide: bool) -> str | None:
    if not rule.accepts(value):
        return f"must be {rule.expected}, not {'***' if hide else shown(value)}"
    if isinstance(value, str) and "\0" in value:
        return "must not contain a NUL character"
    return None


def _name_problem(key: Key) -> str | None:
    """What is wrong with a name that a person chose."""
    if key[0] == "runners" and not _RUNNER_ID.fullmatch(key[1]):
        return 'a runner id is a folder name: letters, digits, ".", "_" and "-", not starting with a dot'
    if "env" in key and not is_variable_name(key[-1]):
        return "must be named like an environment variable"
    return None


def _suggestion(name: str, table: Table) -> str:
    """Where the same name is at home, or the nearest right name in this table."""
    for tables in (table, SCHEMA):
        for section, rules in tables.items():
            if not isinstance(rules, Rule) and name in rules:
                return f'did you mean "{section}.{name}"?'
    near = get_close_matches(name, table, n=1)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"known here: {', '.join(table)}"
