"""A JSON or YAML file as plain values, for whoever needs no lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from whet.fields import BadDocument
from whet.fields import read_document as read_json_values
from whet.formats.document.base import DocumentError
from whet.formats.document.reading import read_document

YAML_SUFFIXES = (".yaml", ".yml")


def read_plain(path: Path) -> Any:
    """The value in *path*, YAML by its ending and otherwise JSON; a `BadDocument` where there is none."""
    if path.suffix.lower() not in YAML_SUFFIXES:
        return read_json_values(path)
    try:
        document = read_document(path)
    except DocumentError as error:
        place = f" in line {error.line}" if error.line else ""
        raise BadDocument(f"{error.message}{place}") from error
    if document.repeats:
        double = document.repeats[0]
        raise BadDocument(f'has the key "{double.key}" twice in one object, in lines {double.first} and {double.line}')
    value = document.root.plain()
    _refuse_what_json_cannot_hold(value)
    return value


def _refuse_what_json_cannot_hold(value: Any) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise BadDocument(f"holds {value}, which JSON cannot")
        case dict():
            for inner in value.values():
                _refuse_what_json_cannot_hold(inner)
        case list():
            for inner in value:
                _refuse_what_json_cannot_hold(inner)
        case _:
            return
