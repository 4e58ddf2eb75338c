"""The OpenAPI document: what FastAPI finds in the routes, with the schema of suites from where suites are read."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from whet.evals import suite_schema
from whet.evals.reading import CHANGEABLE

_HERE = "#/$defs/"
_THERE = "#/components/schemas/"


def describe_with_suites(app: FastAPI) -> None:
    """Let *app* describe suites by their own schema."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_suites(
                get_openapi(
                    title=app.title,
                    version=app.version,
                    description=app.description,
                    routes=app.routes,
                    tags=app.openapi_tags,
                )
            )
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _with_suites(document: dict[str, Any]) -> dict[str, Any]:
    whole = _moved(suite_schema())
    parts = whole.pop("$defs", {})
    for unwanted in ("$schema", "$id"):
        whole.pop(unwanted, None)
    change = deepcopy(whole)
    change.pop("required", None)
    change["description"] = "A change to a suite: what is left out stays as it is."
    change["properties"] = {
        name: _without_null(rule) for name, rule in whole["properties"].items() if name in CHANGEABLE
    }
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(parts)
    schemas["EvalSuite"] = whole
    schemas["EvalSuitePatch"] = change
    return document


def _moved(value: Any) -> Any:
    """*value* with its references to where OpenAPI keeps schemas."""
    if isinstance(value, dict):
        return {
            key: item.replace(_HERE, _THERE) if key == "$ref" and isinstance(item, str) else _moved(item)
            for key, item in value.items()
        }
    return [_moved(item) for item in value] if isinstance(value, list) else value


def _without_null(rule: Any) -> Any:
    kinds = rule.get("type") if isinstance(rule, dict) else None
    return {**rule, "type": [kind for kind in kinds if kind != "null"]} if isinstance(kinds, list) else rule
