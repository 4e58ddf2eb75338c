"""The JSON Schema of `whet.toml`: types from the table that checks settings, sentences from the page about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whet import plugins
from whet.plan.settings.table import SETTINGS, Setting, Table
from whet.reading.fields import LARGEST_WHOLE

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "src/whet/plan/settings/settings.schema.json"
PAGE = ROOT / "docs/reference/settings.md"
HEAD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:whet:settings:1",
    "title": "whet settings",
    "description": "What whet.toml may say. `whet config` checks more than a schema can.",
}
_ROW = re.compile(r"^\| (?P<keys>`[^|]+`) \| (?P<rest>.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")
_KINDS = {"text": "string", "whole": "integer", "number": "number", "flag": "boolean", "table": "object"}
# Not for people: whet itself starts them.
_INTERNAL_AGENTS = {"control", "none", "solution"}


def settings_schema() -> dict[str, Any]:
    """Make the schema: closed, and with a sentence about each key."""
    sentences = dict(_sentences(PAGE.read_text(encoding="utf-8")))
    schema = _table_schema(SETTINGS, (), sentences)
    for_editors = {"type": "string", "description": "The place of this schema, for editors; ignored."}
    return {**HEAD, **schema, "properties": {"$schema": for_editors, **schema["properties"]}}


def _sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yield each key of the page, such as `runners.*.agent.type`, with what it means and its default."""
    for row in _ROW.finditer(text):
        cells = row["rest"].split(" | ")
        meaning = _LINK.sub(r"\1", cells[-1])
        default = _LINK.sub(r"\1", cells[1]) if len(cells) > 2 else "none"
        sentence = f"{meaning[:1].upper()}{meaning[1:]}.{_default_text(default)}"
        for key in re.findall(r"`([^`]+)`", row["keys"]):
            yield re.sub(r"<[^>]+>", "*", key), sentence


def _default_text(default: str) -> str:
    if default == "none":
        return ""
    if default.startswith("required"):
        return f" {default.capitalize()}."
    return f" Default: {default}."


def _table_schema(table: Table, key: tuple[str, ...], sentences: Mapping[str, str]) -> dict[str, Any]:
    parts = {name: _part_schema(row, (*key, name), sentences) for name, row in table.items()}
    if "*" in parts:
        return {"type": "object", "additionalProperties": parts["*"]}
    return {"type": "object", "additionalProperties": False, "properties": parts}


def _part_schema(row: Setting | Table, key: tuple[str, ...], sentences: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(row, Setting):
        return _table_schema(row, key, sentences)
    name = ".".join(key)
    if name not in sentences:
        raise SystemExit(f"{PAGE.name} says nothing about {name}")
    return {**_value_schema(row, name), "description": sentences[name]}


def _value_schema(row: Setting, name: str) -> dict[str, Any]:
    if name == "runners.*.agent.type":
        known = sorted(plugins.BUILT_IN["agents"].keys() - _INTERNAL_AGENTS)
        return {"anyOf": [{"enum": known}, {"type": "string", "minLength": 1}]}
    item = _item_schema(row)
    value = {"type": "array", "items": item} if row.many else item
    if row.default is not None:
        value["default"] = list(row.default) if row.many else row.default
    return value


def _item_schema(row: Setting) -> dict[str, Any]:
    plain: dict[str, Any] = {"type": _KINDS[row.kind]}
    if row.kind in {"whole", "number"}:
        plain["minimum"] = row.least if row.kind == "number" else int(row.least)
        if row.most != LARGEST_WHOLE:
            plain["maximum"] = row.most
    if row.kind == "text" and not row.empty:
        plain["minLength"] = 1
    if not row.choices:
        return plain
    choices = {"enum": list(row.choices)}
    if row.kind == "text" and row.extensions is None:
        return choices
    return {"anyOf": [choices, plain]}
