"""What all parts of a server share."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from whet.evals import Need
from whet.packages.limits import PackageLimits
from whet.packages.settings import PackageSettings
from whet.server.limits import Limits
from whet.server.metrics import Metrics
from whet.server.notices import Notices
from whet.server.rates import Rates
from whet.server.storage.database import Database

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
