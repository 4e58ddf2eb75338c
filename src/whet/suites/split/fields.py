"""Read the part and the source of a case, which every format may carry."""

from __future__ import annotations

from collections.abc import Mapping

from whet.model.suite import CASE_SOURCES, PARTS, CaseSource, Part
from whet.reading.fields import Fields
from whet.reading.text import did_you_mean

PART_FIELDS = ("split", "source")
# Where other tools keep what is no field of their own.
METADATA = "metadata"
# The words of other tools for a part.
_OTHER_WORDS: Mapping[str, Part] = {
    "tune": "practice",
    "holdout": "held-out",
    "held_out": "held-out",
    "holdback": "sealed",
}


def part_of(word: object) -> Part | None:
    """Return the part that *word* stands for, also in the words of other tools."""
    if not isinstance(word, str):
        return None
    return next((part for part in PARTS if part == word), None) or _OTHER_WORDS.get(word)


def source_of(word: object) -> CaseSource | None:
    """Return the source that *word* stands for; any other text says where a case is from in words of its own."""
    return next((source for source in CASE_SOURCES if source == word), None)


def read_split(fields: Fields) -> Part | None:
    """Read the part that a case says it is in."""
    part = part_of(fields.given("split"))
    if part is None and fields.has("split"):
        _refuse(fields, "split", (*PARTS, "tune", "holdout", "holdback"))
    return part


def read_source(fields: Fields) -> CaseSource | None:
    """Read where a case comes from."""
    source = source_of(fields.given("source"))
    if source is None and fields.has("source"):
        _refuse(fields, "source", CASE_SOURCES)
    return source


def _refuse(fields: Fields, name: str, words: tuple[str, ...]) -> None:
    value = fields.given(name)
    hint = did_you_mean(value, words) if isinstance(value, str) else None
    fields.problem(name, f"must be one of {', '.join(words)}, not {fields.shown(name, value)}", hint)


def foreign_part(fields: Fields) -> tuple[Part | None, CaseSource | None]:
    """Return the part and the source that a case of another tool's suite says, perhaps in its table `metadata`.

    Other words mean something else there, so they are no mistakes.
    """
    tables = [fields.values, *([metadata] if isinstance(metadata := fields.given(METADATA), Mapping) else [])]
    split = next((part for table in tables if (part := part_of(table.get("split")))), None)
    source = next((word for table in tables if (word := source_of(table.get("source")))), None)
    return split, source


def is_read_metadata(name: str, value: object) -> bool:
    """Return whether the field *name* of a case is a table that says nothing but its part and its source."""
    return name == METADATA and isinstance(value, Mapping) and set(value) <= set(PART_FIELDS)
