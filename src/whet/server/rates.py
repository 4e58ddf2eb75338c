"""How often somebody may ask: a bucket for each, which fills up again as time goes by."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

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
