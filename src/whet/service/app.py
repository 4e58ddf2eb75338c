"""The application: all routes, the page, health and metrics, the log of requests, and the OpenAPI document."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, FastAPI, Header, Request
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.service.api import evidence, improve_runs, improve_view, labels, proposals, skills, suites, view
from whet.service.api import runs as routes_runs
from whet.service.api.auth import At
from whet.service.api.improve_request import ApplyBody, ImproveBody, ProposalBody
from whet.service.api.ready import Readiness, Ready
from whet.service.api.run_request import LabelBody, RunBody
from whet.service.api.skills import SkillLabelBody
from whet.service.errors import answer_problems, not_found
from whet.service.http import Strict, answer
from whet.service.service import Metrics, Service
from whet.service.store.runs import count_by_status
from whet.service.worker.retention import keep
from whet.service.worker.worker import dispatch
from whet.suites.evals.documents import CHANGEABLE, suite_schema
from whet.version import __version__
from whet.view.pages import INDEX, PAGE_HEADERS, SAFE_HEADERS, page_files

log = logging.getLogger("whet.service")


def make_app(service: Service) -> FastAPI:
    """Return the application of *service*, which works on runs while it is up."""

    @asynccontextmanager
    async def working(_: FastAPI) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatch, service)
            tasks.start_soon(keep, service)
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
    app.state.readiness = Readiness(service)
    modules = (suites, routes_runs, evidence, improve_runs, proposals, skills, view, improve_view, labels)
    routers = [*(module.router for module in modules), _operation]
    for router in routers:
        app.include_router(router)
    answer_problems(app, routers)
    app.include_router(_page)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    app.add_middleware(_RequestLogging, metrics=service.metrics)
    return app


# What operators see.

_operation = APIRouter(tags=["operation"])
_METHODS = ("GET", "POST", "PATCH", "DELETE")


class Health(Strict):
    """Whether the service works."""

    status: Literal["ok", "down"]
    database: Literal["ok", "down"]
    version: str


@_operation.get("/healthz", response_model=Health, responses={503: {"model": Health}})
async def health(service: At) -> Response:
    """Say whether the service works and reaches its database."""
    state = "ok" if await _run_counts(service) is not None else "down"
    return answer({"status": state, "database": state, "version": __version__}, 200 if state == "ok" else 503)


@_operation.get("/readyz", response_model=Ready, responses={503: {"model": Ready}})
async def ready(request: Request) -> Response:
    """Say whether the service can take runs: database, migrations, sandbox, and room on the disk."""
    readiness: Readiness = request.app.state.readiness
    report = await readiness.look()
    return answer(report, 503 if report.reasons else 200)


@_operation.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "Metrics in the format of Prometheus."}},
)
async def metrics(service: At) -> Response:
    """Get metrics for Prometheus."""
    page = service.metrics.page(await _run_counts(service) or {})
    return Response(page, headers={"content-type": CONTENT_TYPE_LATEST})


async def _run_counts(service: Service) -> dict[str, int] | None:
    try:
        return await service.look(count_by_status)
    except SQLAlchemyError:
        return None


class _RequestLogging:
    """Counts and logs requests: method, route, status and time, but no header, query or body."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            # The path of the route, which has no id. Metrics must not grow with ids or with invented methods.
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            took_s = time.monotonic() - began
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(took_s)
            log.info("%s %s %d %.1f ms", method, route, status, took_s * 1000)


# The page for people. Its files are public and need no key.

_page = APIRouter(include_in_schema=False)
_Known = Annotated[str | None, Header(alias="if-none-match")]


@_page.get("/")
async def index(known: _Known = None) -> Response:
    """Get the page."""
    return await part(INDEX, known)


@_page.get("/page/{name}")
async def part(name: str, known: _Known = None) -> Response:
    """Get a file of the page."""
    file = page_files().get(name)
    if file is None:
        raise not_found("page")
    headers = {**PAGE_HEADERS, "etag": file.etag}
    if known is not None and file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


# The OpenAPI document: what FastAPI finds in the routes, with the schema of suites and with links.

_HERE = "#/$defs/"
_THERE = "#/components/schemas/"
# The service asks more of suites than `whet run` does: nothing in them may be a path on its disk.
_REMOTE = r"^([rR]2|[sS]3)://[^/]+/.|^[hH][tT][tT][pP][sS]?://"
_DESCRIBED = r"^\s*[a-z0-9][a-z0-9-]{0,63}\s*:\s+\S"
# The operations that take the id in an answer.
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
        "change_run",
        "delete_run",
    ),
    ("/api/v1/improve-runs", "202", "/improve_run/id"): (
        "get_improve_run",
        "stream_improve_events",
        "get_improvement",
        "list_improve_artifacts",
        "cancel_improve_run",
        "delete_improve_run",
    ),
}


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        _add_schemas(document)
        for (path, status, place), operations in _LINKS.items():
            document["paths"][path]["post"]["responses"][status]["links"] = {
                name: {"operationId": name, "parameters": {"id": f"$response.body#{place}"}} for name in operations
            }
        app.openapi_schema = document
    return app.openapi_schema


def _add_schemas(document: dict[str, Any]) -> None:
    suite = _moved(suite_schema())
    parts = suite.pop("$defs")
    for keyword in ("$schema", "$id"):
        suite.pop(keyword)
    parts["task_package"]["properties"]["environment_ref"]["pattern"] = _REMOTE
    parts["trigger_query"]["properties"]["competing_skills"]["items"]["pattern"] = _DESCRIBED
    change = deepcopy(suite)
    change.pop("required")
    change["description"] = "A change to a suite; fields that you leave out stay as they are."
    change["properties"] = {
        name: _without_null(rule) for name, rule in suite["properties"].items() if name in CHANGEABLE
    }
    schemas = document["components"]["schemas"]
    schemas.update(view.view_schemas())
    schemas.update(parts, EvalSuite=suite, EvalSuitePatch=change)
    for body in (RunBody, LabelBody, SkillLabelBody, ImproveBody, ProposalBody, ApplyBody):
        schema = body.model_json_schema(ref_template=f"{_THERE}{{model}}")
        schemas.update(schema.pop("$defs", {}), **{body.__name__: schema})


def _moved(value: Any) -> Any:
    """Return *value* with references to where OpenAPI keeps schemas."""
    if isinstance(value, dict):
        return {
            key: item.replace(_HERE, _THERE) if key == "$ref" and isinstance(item, str) else _moved(item)
            for key, item in value.items()
        }
    return [_moved(item) for item in value] if isinstance(value, list) else value


def _without_null(rule: dict[str, Any]) -> dict[str, Any]:
    kinds = rule.get("type")
    return {**rule, "type": [kind for kind in kinds if kind != "null"]} if isinstance(kinds, list) else rule
