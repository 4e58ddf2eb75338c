"""The web application: routes, errors, and what is around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from fastapi import FastAPI

from whet.server.openapi import describe_with_suites
from whet.server.page.routes import router as page
from whet.server.problems import answer_problems
from whet.server.routes import artifacts, events, operation, runs, suites
from whet.server.runs.dispatch import dispatch
from whet.server.service import Service
from whet.server.watching import Watching
from whet.version import __version__


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
