"""For whoever operates the service: is it well, and what does it do; without a key, and without anything private."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import PlainTextResponse, Response

from whet.server import shapes
from whet.server.answers import answer
from whet.server.auth import At
from whet.server.metrics import CONTENT_TYPE
from whet.server.service import Service
from whet.server.storage.runs import count_by_status
from whet.server.threads import in_thread
from whet.version import __version__

router = APIRouter(tags=["operation"])


@router.get("/healthz", response_model=shapes.Health, responses={503: {"model": shapes.Health}})
async def health(service: At) -> Response:
    """Whether the service works and reaches its database."""
    state = "ok" if await in_thread(_counts, service) is not None else "down"
    shown = {"status": state, "database": state, "version": __version__}
    return answer(shown, 200 if state == "ok" else 503)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "Figures in the format of Prometheus."}},
)
async def metrics(service: At) -> Response:
    """Figures for Prometheus."""
    counts = await in_thread(_counts, service)
    return Response(service.metrics.page(counts or {}), headers={"content-type": CONTENT_TYPE})


def _counts(service: Service) -> dict[str, int] | None:
    try:
        with service.database.reading() as connection:
            return count_by_status(connection)
    except SQLAlchemyError:
        return None
