"""Figures for whoever operates the service, as Prometheus reads them; none of them names an organisation."""

from __future__ import annotations

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from whet.server.storage.runs import STATUSES

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        # Half of the page would say when each figure was made.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "whet_http_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "whet_http_request_seconds", "Time to the end of an answer.", ["route"], registry=self._registry
        )
        self.streams = Gauge("whet_event_streams", "Event streams that are open.", registry=self._registry)
        self.started = Counter("whet_runs_started", "Runs taken up, also again.", registry=self._registry)
        self._runs = Gauge("whet_runs", "Runs by status.", ["status"], registry=self._registry)

    def page(self, runs: dict[str, int]) -> bytes:
        """All figures as text."""
        for status in STATUSES:
            self._runs.labels(status).set(runs.get(status, 0))
        return generate_latest(self._registry)
