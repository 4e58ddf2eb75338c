"""One limit for each provider: how many requests are under way to it, and how many tokens it is asked for in a minute.

Imports little: on a cluster, one of them serves all nodes, in a process of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

# If a provider says to wait, but not for how long.
_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
BUSY = (429, 529)
_MINUTE_S = 60.0


class RateLimiter(Protocol):
    """Lets requests pass to one provider."""

    async def enter(self) -> None:
        """Wait until there is room."""

    def leave(self) -> None:
        """Make room for the next one."""

    def heard(self, status: int, retry_after: str | None) -> None:
        """Take note of how the provider answered."""

    def spend(self, tokens: int) -> None:
        """Take note of what an answer took."""


class LocalRateLimiter:
    """Lets so many requests at a time, and tokens in a minute, pass to one provider; if it is too busy, all wait.

    Without a limit, everybody passes: agents know by themselves how to wait. *tell* gets a sentence for each pause.
    """

    def __init__(
        self, most: int | None, most_tokens: int | None = None, tell: Callable[[str], object] = lambda _: None
    ) -> None:
        self._room = asyncio.Semaphore(most) if most is not None else None
        self._most_tokens = most_tokens
        self._spent: deque[tuple[float, int]] = deque()
        self._tell = tell
        self._closed_until = 0.0
        self._pause_s = _PAUSE_S

    async def enter(self) -> None:
        """Wait until there is room."""
        if self._room is None and self._most_tokens is None:
            return
        if self._room is not None:
            await self._room.acquire()
        try:
            # Again and again: it may be closed once more in the meantime.
            while (left_s := self._closed_until - time.monotonic()) > 0 or (left_s := self._too_many_s()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(left_s)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Make room for the next one."""
        if self._room is not None:
            self._room.release()

    def heard(self, status: int, retry_after: str | None) -> None:
        """Close for a while if the provider is too busy."""
        if status not in BUSY:
            self._pause_s = _PAUSE_S
            return
        pause_s = float(retry_after) if retry_after and retry_after.replace(".", "", 1).isdecimal() else self._pause_s
        until = time.monotonic() + min(pause_s, _LONGEST_PAUSE_S)
        if self._room is not None and self._closed_until < time.monotonic():
            # Requests that were under way hear the same; once is enough.
            self._tell(f"answers {status}: all requests to it wait for {min(pause_s, _LONGEST_PAUSE_S):g} s")
        self._closed_until = max(until, self._closed_until)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def spend(self, tokens: int) -> None:
        """Count what an answer took."""
        if self._most_tokens is not None:
            self._spent.append((time.monotonic(), tokens))

    def _too_many_s(self) -> float:
        """Return how long to wait until the last minute has room for more tokens."""
        if self._most_tokens is None:
            return 0.0
        now = time.monotonic()
        while self._spent and self._spent[0][0] <= now - _MINUTE_S:
            self._spent.popleft()
        if sum(tokens for _, tokens in self._spent) < self._most_tokens:
            return 0.0
        return max(0.001, self._spent[0][0] + _MINUTE_S - now)


class SharedLimits(Protocol):
    """Asks the limits that all nodes of a cluster share, and tells them what needs no answer."""

    async def ask(self, want: str, *of: Any) -> Any:
        """Return the answer to *want*."""

    def pass_on(self, want: str, *of: Any) -> None:
        """Pass *want* on."""


class SharedRateLimiter:
    """The limit of a provider, as a node sees it."""

    def __init__(self, host: str, shared: SharedLimits) -> None:
        self._host, self._shared = host, shared
        self._was_busy = False

    async def enter(self) -> None:
        """Wait until there is room."""
        await self._shared.ask("enter", self._host)

    def leave(self) -> None:
        """Make room for the next one."""
        self._shared.pass_on("leave", self._host)

    def heard(self, status: int, retry_after: str | None) -> None:
        """Tell of a provider that is too busy, and of the first answer after that."""
        if status in BUSY or self._was_busy:
            self._shared.pass_on("heard", self._host, status, retry_after)
        self._was_busy = status in BUSY

    def spend(self, tokens: int) -> None:
        """Tell what an answer took."""
        self._shared.pass_on("spend", self._host, tokens)
