"""What all parts of a server share."""

from __future__ import annotations

import collections
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from sqlalchemy.exc import InterfaceError, OperationalError

from whet.errors import UsageError
from whet.grade.judge_client import find_key, judge_settings
from whet.ground.package_settings import Buckets, PackageLimits, PackageSettings
from whet.model.request import Settings
from whet.service.database import CONNECTIONS, Database
from whet.service.http import Limits
from whet.service.stored_runs import STATUSES
from whet.suites.eval_documents import Need

QUEUE = "queue"


class Notices:
    """Wakes whoever waits for a name; waking nobody is fine. Only for the event loop's own thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, anyio.Event] = {}
        self.stopping = False

    def tell(self, name: str) -> None:
        """Something about *name* has changed."""
        event = self._waiting.pop(name, None)
        if event is not None:
            event.set()

    def listen(self, name: str) -> anyio.Event:
        """Is set at the next change of *name*; ask before you look, so that nothing is missed."""
        if self.stopping:
            over = anyio.Event()
            over.set()
            return over
        return self._waiting.setdefault(name, anyio.Event())

    def stop(self) -> None:
        """Wake everybody: the server ends."""
        self.stopping = True
        for name in list(self._waiting):
            self.tell(name)


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


_MINUTE_S = 60.0
# Buckets that are full again say nothing; they are forgotten once there are so many.
_MOST_BUCKETS = 10_000


class Rates:
    """Allows so many requests a minute for each name, all at once or spread out."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(per_minute)
        self._per_s = per_minute / _MINUTE_S
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_s(self, name: str) -> int:
        """In how many seconds *name* may ask again; 0 means now."""
        left, _ = self._now(name)
        return 0 if left >= 1 else max(1, math.ceil((1 - left) / self._per_s))

    def take(self, name: str) -> None:
        """Count one request of *name*."""
        left, now = self._now(name)
        if len(self._buckets) >= _MOST_BUCKETS:
            self._forget(now)
        self._buckets[name] = (max(0.0, left - 1), now)

    def _now(self, name: str) -> tuple[float, float]:
        now = self._clock()
        left, then = self._buckets.get(name, (self._most, now))
        return min(self._most, left + (now - then) * self._per_s), now

    def _forget(self, now: float) -> None:
        kept = {
            name: (left, then)
            for name, (left, then) in self._buckets.items()
            if left + (now - then) * self._per_s < self._most
        }
        self._buckets = kept if len(kept) < _MOST_BUCKETS else {}


def find_lacking(settings: Settings, packages: PackageSettings, environ: Mapping[str, str]) -> Mapping[Need, str]:
    """Why this server cannot run suites that have a need, by need."""
    found: dict[Need, str | None] = {
        "agent": None if settings.runners else "this server has no runner, and the suite needs an agent",
        "judge": _no_judge(settings, environ),
        "r2": _no_bucket("r2", packages.buckets.get("r2", Buckets())),
        "s3": _no_bucket("s3", packages.buckets.get("s3", Buckets())),
    }
    return {need: reason for need, reason in found.items() if reason is not None}


def reasons_against(needs: Iterable[str], lacking: Mapping[Need, str]) -> list[str]:
    """Why a suite with these needs cannot run on this server."""
    return [reason for need, reason in lacking.items() if need in needs]


def _no_judge(settings: Settings, environ: Mapping[str, str]) -> str | None:
    judge = judge_settings(settings.judge)
    try:
        find_key(judge, environ)
        _ = judge.model_name
    except UsageError as error:
        return f"this server has no judge: {error.message}"
    return None


def _no_bucket(scheme: str, buckets: Buckets) -> str | None:
    if find_spec("obstore") is None:
        return f"this server does not read {scheme}:// packages: obstore is not installed (pip install 'whet[s3]')"
    if scheme == "r2" and buckets.endpoint is None:
        return "this server does not read r2:// packages: packages.r2.endpoint is not set"
    return None


log = logging.getLogger("whet.service")
_PAUSE_S = 1.0
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_limiter: RunVar[CapacityLimiter] = RunVar("whet-server-threads")


async def in_thread(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """What *work* gives; not more at a time than the database has connections."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(CONNECTIONS)
        _limiter.set(limiter)
    # anyio waits for it also when we are cancelled: a transaction that nobody waits for would go on behind our back.
    return await to_thread.run_sync(work, *args, limiter=limiter)


async def persistently(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """What *work* gives, once the database answers: a run must not be lost because it was restarted."""
    while True:
        try:
            return await in_thread(work, *args)
        except (OperationalError, InterfaceError) as error:
            log.warning("the database does not answer: %s", type(error.orig).__name__)
            await anyio.sleep(_PAUSE_S)


# How much larger a skill may be once it is unpacked.
_UNPACKED = 8
# A skill is read by people: one of more files than these is a mistake, and takes a minute to look into.
_BUNDLE_ENTRIES = 10_000


@dataclass(slots=True, kw_only=True)
class Service:
    """One server: where it keeps things, what it allows, and who waits for what."""

    database: Database
    data_dir: Path
    config_file: Path
    runners: tuple[str, ...] = ()
    # What suites may need and this server does not have, with the reason.
    lacking: Mapping[Need, str] = field(default_factory=dict)
    sandbox: str = "bubblewrap"
    workers: int = 2
    packages: PackageSettings = field(default_factory=lambda: PackageSettings(allow_private_addresses=False))
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)
    notices: Notices = field(default_factory=Notices)
    rates: Rates = field(init=False)
    failures: Rates = field(init=False)
    streams: collections.Counter[str] = field(default_factory=collections.Counter)

    def __post_init__(self) -> None:
        self.rates = Rates(self.limits.requests_per_minute)
        self.failures = Rates(self.limits.failures_per_minute)

    @property
    def bundle_limits(self) -> PackageLimits:
        """What a skill bundle may take: less than the packages of cases may."""
        limits = self.packages.limits
        return replace(
            limits,
            download_bytes=min(limits.download_bytes, self.limits.max_bundle_bytes),
            unpacked_bytes=min(limits.unpacked_bytes, _UNPACKED * self.limits.max_bundle_bytes),
            entries=min(limits.entries, _BUNDLE_ENTRIES),
        )

    def take_stream(self, organisation_id: str) -> bool:
        """Count one more event stream of the organisation; False if it has as many as it may."""
        if self.streams[organisation_id] >= self.limits.max_streams:
            return False
        self.streams[organisation_id] += 1
        self.metrics.streams.inc()
        return True

    def end_stream(self, organisation_id: str) -> None:
        """Count one event stream less."""
        self.metrics.streams.dec()
        self.streams[organisation_id] -= 1
