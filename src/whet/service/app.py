"""The OpenAPI document: what FastAPI finds in the routes, with the schema of suites from where suites are read."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import anyio
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.service import routes_evidence as artifacts
from whet.service import routes_evidence as events
from whet.service import routes_operation as operation
from whet.service import routes_runs as runs
from whet.service import routes_suites as suites
from whet.service.http import answer_problems
from whet.service.queue import dispatch
from whet.service.routes_operation import page_router as page
from whet.service.service import Metrics, Service
from whet.service.shapes import RunBody
from whet.suites.eval_documents import CHANGEABLE, suite_schema
from whet.version import __version__

log = logging.getLogger("whet.service")
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_UNKNOWN = "unknown"


class Watching:
    """Counts and logs what *app* answers: method, route, status and time, never a header, query or body."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            # The template and not the path: there are few of them, and none holds an id.
            route = getattr(scope.get("route"), "path", _UNKNOWN)
            took_s = time.monotonic() - began
            self._metrics.requests.labels(_method(scope), route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(took_s)
            log.info("%s %s %d %.1f ms", _method(scope), route, status, took_s * 1000)


def _method(scope: Scope) -> str:
    # Anybody can make up a method; figures must not grow with them.
    return scope["method"] if scope["method"] in ("GET", "POST", "PATCH", "DELETE") else "other"


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


def make_app(service: Service) -> FastAPI:
    """The application of *service*; runs are worked on for as long as it lives."""

    @asynccontextmanager
    async def working(_: FastAPI) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatch, service)
            yield
            service.notices.stop()
            tasks.cancel_scope.cancel()

    app = FastAPI(
        title="whet",
        version=__version__,
        description="Eval suites, their runs, and the evidence.",
        lifespan=working,
        openapi_url="/openapi.json",
        # Both would load scripts from other hosts.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    routers = [part.router for part in (suites, runs, events, artifacts, operation)]
    for router in routers:
        app.include_router(router)
    answer_problems(app, routers)
    app.include_router(page)
    describe_with_suites(app)
    app.add_middleware(Watching, metrics=service.metrics)
    return app
