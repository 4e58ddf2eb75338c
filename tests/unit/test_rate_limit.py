"""One limit for each provider: requests under way, tokens in a minute, and pauses that all observe."""

from __future__ import annotations

import asyncio

import pytest

from whet.cluster.node_actor import ProviderLimiter
from whet.gateway import rate_limit
from whet.gateway.rate_limit import LocalRateLimiter


def test_no_request_begins_while_the_last_minute_took_too_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "_MINUTE_S", 0.3)

    async def three() -> tuple[bool, bool]:
        gate = LocalRateLimiter(None, 100)
        await gate.enter()
        gate.spend(100)
        second = asyncio.create_task(gate.enter())
        await asyncio.sleep(0.05)
        waited = not second.done()
        await second
        return waited, second.done()

    assert asyncio.run(three()) == (True, True)


def test_a_busy_provider_is_told_once_for_a_pause() -> None:
    async def heard() -> list[str]:
        told: list[str] = []
        gate = LocalRateLimiter(2, None, told.append)
        for _ in range(3):
            gate.heard(429, "7")
        return told

    assert asyncio.run(heard()) == ["answers 429: all requests to it wait for 7 s"]


def test_a_node_that_is_gone_makes_room() -> None:
    async def passed() -> list[bool]:
        limits = ProviderLimiter(2, None)
        await limits.enter("lost", "host")
        await limits.enter("lost", "host")
        third = asyncio.create_task(limits.enter("other", "host"))
        await asyncio.sleep(0)
        before = third.done()
        await limits.release("lost")
        await third
        # What it says late changes nothing.
        await limits.leave("lost", "host")
        return [before, third.done()]

    assert asyncio.run(passed()) == [False, True]
