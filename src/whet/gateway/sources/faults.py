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

from whet.agents.gateway_asking import Ask, Asking
from whet.agents.gateway_forms import Forms
from whet.agents.gateway_http import Answer, Cut
from whet.agents.gateway_tapes import Exchange, Recorder, played, read_tape
from whet.agents.gateway_wire import Answer as Reading
from whet.agents.gateway_wire import Format
from whet.errors import CassetteMissed
from whet.ground.secrets import Masker

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

    async def answer(self, asking: Asking, ask: Ask) -> Answer:
        """Fail if it is this request's turn."""
        kind = self._drawn(next(self._numbers)) if asking.entry.asked.format is not None else None
        if kind is None:
            return await ask(asking)
        asking.entry.by = f"fault {kind}"
        if kind in _STATUSES:
            await asking.whole()
            return _error(*_STATUSES[kind])
        if kind == "slow":
            await asyncio.sleep(_SLOW_S)
            return await ask(asking)
        answer = await ask(asking)
        return Answer(status=answer.status, headers=answer.headers, pieces=_broken(answer, hangs=kind == "hang"))

    def _drawn(self, number: int) -> str | None:
        drawn = random.Random(f"{self._seed}/{number}").random()  # noqa: S311 - nothing secret
        for kind, share in self._shares.items():
            drawn -= share
            if drawn < 0:
                return kind
        return None


def _error(status: int, kind: str, name: str, message: str) -> Answer:
    """Return an error that agents of every provider read as their own."""
    error = {"type": kind, "code": status, "status": name, "message": f"{message} (on purpose, by gateway.faults)"}
    data = json.dumps({"type": "error", "error": error}).encode()
    return Answer(status=status, headers=[(b"content-type", b"application/json")], data=data)


async def _broken(answer: Answer, *, hangs: bool) -> AsyncIterator[bytes]:
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
    raise Cut("on purpose, by gateway.faults")


class Cache:
    """Answers requests that were answered before: at temperature 0, and in sessions that judge."""

    def __init__(self, folder: Path, url: str, masker: Masker, forms: Forms, *, judges: bool) -> None:
        self._folder, self._url, self._masker, self._forms, self._judges = folder, url, masker, forms, judges

    async def answer(self, asking: Asking, ask: Ask) -> Answer:
        """Return the answer from before, or keep the one that comes."""
        body = await asking.whole()
        asked = asking.entry.asked
        fits = asked.format is not None and (self._judges or asked.temperature == 0) and not asking.too_large
        if not fits:
            return await ask(asking)
        what = f"{self._url}\n{asking.path}\n".encode() + self._forms.exact(body)
        path = self._folder / f"{hashlib.sha256(what).hexdigest()}.jsonl"
        kept: list[Exchange] = []
        if path.exists():
            # What cannot be read is asked for again.
            with suppress(CassetteMissed):
                kept = [exchange for exchange in read_tape(path) if _is_whole(exchange, asked.format)]
        if kept:
            asking.entry.by = "cache"
            return played(kept[0], self._forms)
        answer = await ask(asking)
        if answer.status != _WELL:
            return answer
        return Recorder(path, self._forms, self._masker).keeping(_ANY, answer)


def _is_whole(exchange: Exchange, format: Format | None) -> bool:  # noqa: A002 - the word for it
    """Return whether an answer neither broke off nor ended with an error."""
    reading = Reading(format, dict(exchange.headers).get("content-type", ""))
    for _, text in exchange.pieces:
        reading.feed(text.encode("utf-8", "surrogateescape"))
    reading.finish()
    return not exchange.cut and reading.error is None


# The form of whatever is asked: the name of the file tells requests apart.
_ANY = {"method": "POST", "path": "any"}
