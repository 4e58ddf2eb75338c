"""Answers that do not come from the provider: faults on purpose, and a cache for what is asked again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from whet.errors import CassetteMissed
from whet.gateway.connection import Answer, AnswerCut
from whet.gateway.request import NextResponder, ProxiedRequest
from whet.gateway.sources.cassettes import Exchange, Recorder, play_exchange, read_cassette
from whet.gateway.wire.formats import AnswerReader, Format
from whet.gateway.wire.normal_form import Forms
from whet.secrets import Masker

# How long a slow answer takes to begin, and how much of an answer comes before it is cut or hangs.
_SLOW_S = 5.0
_PIECES = 3
_STATUSES = {
    "status_429": (429, "rate_limit_error", "RESOURCE_EXHAUSTED", "Rate limited"),
    "status_500": (500, "api_error", "INTERNAL", "Internal server error"),
    "status_529": (529, "overloaded_error", "UNAVAILABLE", "Overloaded"),
}
KINDS = (*_STATUSES, "slow", "cut", "hang")
_WELL = 200


class Faults:
    """Lets a share of the requests to a model fail; which ones is drawn by a seed, the same in every run and arm."""

    def __init__(self, shares: Mapping[str, Any], session: str) -> None:
        self._shares = {kind: float(shares.get(kind) or 0.0) for kind in KINDS}
        self._seed = f"{shares.get('seed', 0)}/{session}"
        self._numbers = count(1)

    async def answer(self, request: ProxiedRequest, ask: NextResponder) -> Answer:
        """Fail if it is this request's turn."""
        kind = self._drawn(next(self._numbers)) if request.entry.asked.format is not None else None
        if kind is None:
            return await ask(request)
        request.entry.by = f"fault {kind}"
        if kind in _STATUSES:
            await request.whole()
            return _error(*_STATUSES[kind])
        if kind == "slow":
            await asyncio.sleep(_SLOW_S)
            return await ask(request)
        answer = await ask(request)
        return Answer(status=answer.status, headers=answer.headers, pieces=_break_off(answer, hangs=kind == "hang"))

    def _drawn(self, number: int) -> str | None:
        random_share = random.Random(f"{self._seed}/{number}").random()  # noqa: S311 - nothing secret
        for kind, share in self._shares.items():
            random_share -= share
            if random_share < 0:
                return kind
        return None


def _error(status: int, kind: str, name: str, message: str) -> Answer:
    """Return an error that agents of every provider read as their own."""
    error = {"type": kind, "code": status, "status": name, "message": f"{message} (on purpose, by gateway.faults)"}
    data = json.dumps({"type": "error", "error": error}).encode()
    return Answer(status=status, headers=[(b"content-type", b"application/json")], data=data)


async def _break_off(answer: Answer, *, hangs: bool) -> AsyncIterator[bytes]:
    """Yield the beginning of an answer."""
    if answer.pieces is not None:
        number = 0
        async for piece in answer.pieces:
            # A provider may send all that there is at once.
            yield piece if number else piece[: max(1, len(piece) // 2)]
            number += 1
            if number >= _PIECES or len(piece) > 1:
                break
    if hangs:
        await asyncio.get_running_loop().create_future()
    raise AnswerCut("on purpose, by gateway.faults")


class Cache:
    """Answers requests that were answered before: at temperature 0, and in sessions that judge."""

    def __init__(self, folder: Path, url: str, masker: Masker, forms: Forms, *, judges: bool) -> None:
        self._folder, self._url, self._masker, self._forms, self._judges = folder, url, masker, forms, judges

    async def answer(self, request: ProxiedRequest, ask: NextResponder) -> Answer:
        """Return the answer from before, or keep the one that comes."""
        body = await request.whole()
        summary = request.entry.asked
        is_cacheable = (
            summary.format is not None and (self._judges or summary.temperature == 0) and not request.too_large
        )
        if not is_cacheable:
            return await ask(request)
        cache_key = f"{self._url}\n{request.path}\n".encode() + self._forms.exact(body)
        path = self._folder / f"{hashlib.sha256(cache_key).hexdigest()}.jsonl"
        exchanges: list[Exchange] = []
        if path.exists():
            # What cannot be read is asked for again.
            with suppress(CassetteMissed):
                exchanges = [exchange for exchange in read_cassette(path) if _is_whole(exchange, summary.format)]
        if exchanges:
            request.entry.by = "cache"
            return play_exchange(exchanges[0], self._forms)
        answer = await ask(request)
        if answer.status != _WELL:
            return answer
        return Recorder(path, self._forms, self._masker).keeping(_ANY, answer)


def _is_whole(exchange: Exchange, format: Format | None) -> bool:  # noqa: A002 - the word for it
    """Return whether an answer neither broke off nor ended with an error."""
    reading = AnswerReader(format, dict(exchange.headers).get("content-type", ""))
    for _, text in exchange.pieces:
        reading.feed(text.encode("utf-8", "surrogateescape"))
    reading.finish()
    return not exchange.cut and reading.error is None


# The form of whatever is asked: the name of the file tells requests apart.
_ANY = {"method": "POST", "path": "any"}
