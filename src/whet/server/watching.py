"""Around every request: its figures, one log line without anything private, and headers that browsers heed."""

from __future__ import annotations

import logging
import time

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.server.metrics import Metrics

log = logging.getLogger("whet.server")
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
