"""The OpenAPI document: what FastAPI finds in the routes, with the schema of suites from where suites are read."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from whet.evals import suite_schema
from whet.evals.reading import CHANGEABLE
from whet.server.shapes import RunBody

_HERE = "#/$defs/"
_THERE = "#/components/schemas/"
# What a service asks of suites beyond what is asked of any: nothing in them may be a path on its disk.
_REMOTE = r"^([rR]2|[sS]3)://[^/]+/.|^[hH][tT][tT][pP][sS]?://"
_DESCRIBED = r"^\s*[a-z0-9][a-z0-9-]{0,63}\s*:\s+\S"
# Where an answer leads: the id in it is the id of these.
_LINKS = {
    ("/api/v1/eval-suites", "201", "/suite/id"): (
        "get_suite",
        "change_suite",
        "list_versions",
        "create_run",
        "list_runs_of_suite",
        "delete_suite",
    ),
    ("/api/v1/eval-suites/{id}/runs", "202", "/run/id"): (
        "get_run",
        "stream_events",
        "list_trials",
        "list_artifacts",
        "get_results",
        "cancel_run",
    ),
}


def describe_with_suites(app: FastAPI) -> None:
    """Let *app* describe suites by their own schema."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _add_schemas(found)
            _add_links(found)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _add_schemas(document: dict[str, Any]) -> None:
    whole = _moved(suite_schema())
    parts = whole.pop("$defs")
    for unwanted in ("$schema", "$id"):
        whole.pop(unwanted)
    parts["task_package"]["properties"]["environment_ref"]["pattern"] = _REMOTE
    parts["trigger_query"]["properties"]["competing_skills"]["items"]["pattern"] = _DESCRIBED
    change = deepcopy(whole)
    change.pop("required")
    change["description"] = "A change to a suite: what is left out stays as it is."
    change["properties"] = {
        name: _without_null(rule) for name, rule in whole["properties"].items() if name in CHANGEABLE
    }
    schemas = document["components"]["schemas"]
    schemas.update(parts, EvalSuite=whole, EvalSuitePatch=change, RunBody=RunBody.model_json_schema())


def _add_links(document: dict[str, Any]) -> None:
    for (path, status, place), operations in _LINKS.items():
        document["paths"][path]["post"]["responses"][status]["links"] = {
            name: {"operationId": name, "parameters": {"id": f"$response.body#{place}"}} for name in operations
        }


def _moved(value: Any) -> Any:
    """*value* with its references to where OpenAPI keeps schemas."""
    if isinstance(value, dict):
        return {
            key: item.replace(_HERE, _THERE) if key == "$ref" and isinstance(item, str) else _moved(item)
            for key, item in value.items()
        }
    return [_moved(item) for item in value] if isinstance(value, list) else value


def _without_null(rule: dict[str, Any]) -> dict[str, Any]:
    kinds = rule.get("type")
    return {**rule, "type": [kind for kind in kinds if kind != "null"]} if isinstance(kinds, list) else rule
