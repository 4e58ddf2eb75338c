"""One running server: its settings and limits, its threads, its metrics, and who waits for what."""

from __future__ import annotations

import collections
import logging
import math
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar, TypeVarTuple

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from msgspec import Struct, field
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from sqlalchemy import Connection
from sqlalchemy.exc import InterfaceError, OperationalError

from whet.errors import UsageError
from whet.model.request import Settings
from whet.packages.settings import Buckets, PackageLimits, PackageSettings
from whet.plan.judge import find_judge
from whet.service.database import CONNECTIONS, STATUSES, Database
from whet.service.quotas import Quota
from whet.suites.evals.documents import Need
from whet.version import install_command

log = logging.getLogger("whet.service")
P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
MB = 1024 * 1024
# Where whet itself is installed.
_PACKAGES = Path(__file__).parents[2]
QUEUE = "queue"
RETENTION = "retention"
_MINUTE_S = 60.0
_PAUSE_S = 1.0
# From this many on, names whose allowance is full again are forgotten.
_MOST_NAMES = 10_000
# How much larger than its archive a skill may be.
_UNPACKED = 8
# People read a skill. One with more files than this is a mistake, and takes a minute to check.
_BUNDLE_ENTRIES = 10_000


class ServiceLimits(Struct, frozen=True, kw_only=True):
    """What callers may ask of one server."""

    requests_per_minute: int = 600
    max_body_bytes: int = 4 * MB
    max_bundle_bytes: int = 64 * MB
    # Of an agent or a verifier, whatever a suite asks for.
    max_time_limit_s: float = 4 * 3600
    max_waiting_runs: int = 200
    max_streams: int = 50
    # Wrong keys from one address, per minute.
    failures_per_minute: int = 60
    body_timeout_s: float = 60.0
    # Of each organisation without its own.
    quota: Quota = field(default_factory=Quota)


class Retention(Struct, frozen=True, kw_only=True):
    """How long runs are kept after their end, and how many of each suite; None is without a limit."""

    days: int | None = None
    runs: int | None = None


class Notices:
    """Wakes those who wait for a change of something. Use it only on the thread of the event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, anyio.Event] = {}
        self.stopping = False

    def notify(self, name: str) -> None:
        """Wake those who wait for *name*."""
        event = self._waiting.pop(name, None)
        if event is not None:
            event.set()

    def listen(self, name: str) -> anyio.Event:
        """Return an event for the next change of *name*. Listen before you look, or you can miss a change."""
        event = self._waiting.setdefault(name, anyio.Event())
        if self.stopping:
            event.set()
        return event

    def stop(self) -> None:
        """Wake everybody, because the server ends."""
        self.stopping = True
        for name in list(self._waiting):
            self.notify(name)


class Metrics:
    """The Prometheus metrics of one server."""

    def __init__(self) -> None:
        # Without this, half of the page says when each metric was created.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "whet_http_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "whet_http_request_seconds", "Time to the end of an answer.", ["route"], registry=self._registry
        )
        self.streams = Gauge("whet_event_streams", "Event streams that are open.", registry=self._registry)
        self.started = Counter("whet_runs_started", "Runs started or resumed.", registry=self._registry)
        self._runs = Gauge("whet_runs", "Runs by status.", ["status"], registry=self._registry)

    def page(self, runs: Mapping[str, int]) -> bytes:
        """Return all metrics as text; *runs* counts runs by status."""
        for status in STATUSES:
            self._runs.labels(status).set(runs.get(status, 0))
        return generate_latest(self._registry)


class Rates:
    """Allows each name a number of requests per minute, all at once or spread out."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(per_minute)
        self._per_s = per_minute / _MINUTE_S
        self._clock = clock
        # What was left, and when.
        self._left: dict[str, tuple[float, float]] = {}

    def wait_s(self, name: str) -> int:
        """Return how many seconds *name* has to wait; 0 means that it may ask now."""
        left = self._left_now(name, self._clock())
        return 0 if left >= 1 else max(1, math.ceil((1 - left) / self._per_s))

    def take(self, name: str) -> None:
        """Count one request of *name*."""
        now = self._clock()
        if len(self._left) >= _MOST_NAMES:
            balances = {caller: self._left[caller] for caller in self._left if self._left_now(caller, now) < self._most}
            self._left = balances if len(balances) < _MOST_NAMES else {}
        self._left[name] = (max(0.0, self._left_now(name, now) - 1), now)

    def _left_now(self, name: str, now: float) -> float:
        left, then = self._left.get(name, (self._most, now))
        return min(self._most, left + (now - then) * self._per_s)


def find_lacking(
    settings: Settings, packages: PackageSettings, environ: Mapping[str, str], *, verifier_network: bool
) -> Mapping[Need, str]:
    """Return what suites may need and this server does not have, with the reason."""
    reasons: dict[Need, str | None] = {
        "agent": None if settings.runners else "this server has no runner, and the suite needs an agent",
        "judge": _no_judge(settings, environ),
        "r2": _no_bucket("r2", packages.buckets.get("r2", Buckets())),
        "s3": _no_bucket("s3", packages.buckets.get("s3", Buckets())),
        "network": None if verifier_network else _NO_NETWORK,
    }
    return {need: reason for need, reason in reasons.items() if reason is not None}


def reasons_against(needs: Iterable[str], lacking: Mapping[Need, str]) -> list[str]:
    """Return why a server that lacks something cannot run a suite with these needs."""
    return [reason for need, reason in lacking.items() if need in needs]


def _no_judge(settings: Settings, environ: Mapping[str, str]) -> str | None:
    try:
        find_judge(settings, environ)
    except UsageError as error:
        return f"this server has no judge: {error.message}"
    return None


_NO_NETWORK = "this server gives verifiers no network: resource_hints.network must be false"


def _no_bucket(scheme: str, buckets: Buckets) -> str | None:
    if find_spec("obstore") is None:
        return f"this server does not read {scheme}:// packages: obstore is not installed ({install_command('s3')})"
    if scheme == "r2" and buckets.endpoint is None:
        return "this server does not read r2:// packages: packages.r2.endpoint is not set"
    if buckets.named_only and not buckets.allowed:
        return f"this server does not read {scheme}:// packages: packages.{scheme}.allowed names no bucket"
    return None


# Of the threads, these only look at keys and health, and these do what no caller asked for. The rest is for callers,
# and each organisation has a share of it: however slow its requests are, others go on.
_DOOR_THREADS = 3
_OWN_THREADS = 3
_SHARE = 4


class _Threads:
    """The threads of one server, as many as connections to the database, and who may use how many of them."""

    def __init__(self) -> None:
        self.door = CapacityLimiter(_DOOR_THREADS)
        self.own = CapacityLimiter(_OWN_THREADS)
        self.callers = CapacityLimiter(CONNECTIONS - _DOOR_THREADS - _OWN_THREADS)
        self.shares: dict[str, anyio.Semaphore] = {}


_threads: RunVar[_Threads] = RunVar("whet-server-threads")
_organisation: ContextVar[str | None] = ContextVar("whet-server-organisation", default=None)


def work_for(organisation_id: str) -> None:
    """Use the share of this organisation for whatever this task does from here on."""
    _organisation.set(organisation_id)


async def in_thread(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call *work* on a thread, one of the share of the organisation that this task works for."""
    threads, organisation_id = _all_threads(), _organisation.get()
    # anyio waits for the thread even if we are cancelled, so no transaction goes on unattended.
    if organisation_id is None:
        return await to_thread.run_sync(work, *args, limiter=threads.own)
    async with threads.shares.setdefault(organisation_id, anyio.Semaphore(_SHARE)):
        return await to_thread.run_sync(work, *args, limiter=threads.callers)


async def at_the_door(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call *work*, which takes a moment, on a thread that no other work can take: keys and health."""
    return await to_thread.run_sync(work, *args, limiter=_all_threads().door)


def _all_threads() -> _Threads:
    try:
        return _threads.get()
    except LookupError:
        threads = _Threads()
        _threads.set(threads)
        return threads


async def persistently(ask: Callable[[], Awaitable[T]]) -> T:
    """Call *ask* until the database answers: a run must survive a restart of the database."""
    while True:
        try:
            return await ask()
        except (OperationalError, InterfaceError) as error:
            log.warning("the database does not answer: %s", type(error.orig).__name__)
            await anyio.sleep(_PAUSE_S)


class Service(Struct, kw_only=True, dict=True):
    """What all parts of one server share."""

    database: Database
    data_dir: Path
    config_file: Path
    runners: tuple[str, ...] = ()
    # Of the settings of runs.
    trials: int = 1
    max_parallel: int = 1
    # What suites may need and this server does not have, with the reason.
    lacking: Mapping[Need, str] = field(default_factory=dict)
    sandbox: str = "bubblewrap"
    # The cluster that trials run on; None: this machine.
    on: str | None = None
    workers: int = 2
    packages: PackageSettings = field(default_factory=lambda: PackageSettings(allow_private_addresses=False))
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    retention: Retention = field(default_factory=Retention)
    # The service is not ready for runs if less than this is free.
    min_free_bytes: int = 500 * MB
    # The most that the process of a run takes, without what it starts.
    run_memory_bytes: int = 4096 * MB
    metrics: Metrics = field(default_factory=Metrics)
    notices: Notices = field(default_factory=Notices)
    streams: collections.Counter[str] = field(default_factory=collections.Counter)
    # When the last use of each key was stored.
    key_uses: dict[str, float] = field(default_factory=dict)
    # Held while something changes both the file and the row of a skill.
    bundle_lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def rates(self) -> Rates:
        """The requests of each key."""
        return Rates(self.limits.requests_per_minute)

    @cached_property
    def failures(self) -> Rates:
        """The failed logins from each address."""
        return Rates(self.limits.failures_per_minute)

    async def read(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Call *work* on a thread, with a connection that reads."""

        def transaction() -> T:
            with self.database.reading() as connection:
                return work(connection, *args, **named)

        return await in_thread(transaction)

    async def look(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Call *work*, which reads a few rows, on a thread that no other work can take."""

        def transaction() -> T:
            with self.database.reading() as connection:
                return work(connection, *args, **named)

        return await at_the_door(transaction)

    async def write(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Call *work* on a thread, with a connection that writes."""

        def transaction() -> T:
            with self.database.writing() as connection:
                return work(connection, *args, **named)

        return await in_thread(transaction)

    @property
    def bundle_limits(self) -> PackageLimits:
        """The limits of a skill bundle, which are lower than those of other packages."""
        limits = self.packages.limits
        return replace(
            limits,
            download_bytes=min(limits.download_bytes, self.limits.max_bundle_bytes),
            unpacked_bytes=min(limits.unpacked_bytes, _UNPACKED * self.limits.max_bundle_bytes),
            entries=min(limits.entries, _BUNDLE_ENTRIES),
        )

    def without_places(self, text: str) -> str:
        """Return what a run printed without the folders of this server, which are no business of callers."""
        inside = re.compile(rf"{re.escape(str(self.data_dir))}/runs/[0-9a-f-]{{36}}/")
        places = {self.config_file.parent, self.data_dir, _PACKAGES, Path(sys.prefix)}
        text = inside.sub("", text)
        for place in sorted(map(str, places), key=len, reverse=True):
            text = text.replace(f"{place}/", "")
        return text

    def take_stream(self, organisation_id: str) -> bool:
        """Count one more event stream of the organisation; returns False if it has too many."""
        if self.streams[organisation_id] >= self.limits.max_streams:
            return False
        self.streams[organisation_id] += 1
        self.metrics.streams.inc()
        return True

    def end_stream(self, organisation_id: str) -> None:
        """Count one event stream less."""
        self.metrics.streams.dec()
        self.streams[organisation_id] -= 1
