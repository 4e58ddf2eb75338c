"""JSON Schemas: check a schema, and check a value against one; nothing is fetched for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.reading.text import shorten

_MOST = 10
_SHOWN = 200


class SchemaTrouble(ValueError):
    """A schema that cannot be used."""


def check_schema(schema: Any) -> None:
    """Raise `SchemaTrouble` if *schema* cannot be used."""
    _validator(schema)


def schema_problems(schema: Any, value: Any) -> list[str]:
    """Return what *schema* (2020-12 unless it says otherwise) does not allow in *value*, each with its place."""
    problems = [
        f"{'/'.join(map(str, error.instance_path)) or '(the whole)'}: {shorten(error.message, _SHOWN)}"
        for error, _ in zip(_validator(schema).iter_errors(value), range(_MOST + 1), strict=False)
    ]
    return problems if len(problems) <= _MOST else [*problems[:_MOST], "and more"]


def _validator(schema: Any) -> Any:
    # Only here: most commands need no schema, and should not wait for the library.
    import jsonschema_rs

    if not isinstance(schema, Mapping | bool):
        raise SchemaTrouble("must be an object, or true or false")
    try:
        return jsonschema_rs.validator_for(
            dict(schema) if isinstance(schema, Mapping) else schema, validate_formats=True, retriever=_refuse
        )
    except jsonschema_rs.ValidationError as error:
        place = "/".join(map(str, error.instance_path))
        message = shorten(error.message, _SHOWN)
        raise SchemaTrouble(f"{place}: {message}" if place else message) from error
    except ValueError as error:
        raise SchemaTrouble(shorten(str(error), _SHOWN)) from error


def _refuse(address: str) -> Any:
    raise ValueError(f"{address} is outside of the schema, and nothing is fetched")
