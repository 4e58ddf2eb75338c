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
from whet.agents.gateway_tapes import Exchange, Player, Recorder, read_tape
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

    def __init__(self, folder: Path, url: str, masker: Masker, *, judges: bool) -> None:
        self._folder, self._url, self._masker, self._judges = folder, url, masker, judges

    async def answer(self, asking: Asking, ask: Ask) -> Answer:
        """Return the answer from before, or keep the one that comes."""
        body = await asking.whole()
        asked = asking.entry.asked
        fits = asked.format is not None and (self._judges or asked.temperature == 0) and not asking.too_large
        if not fits:
            return await ask(asking)
        what = f"{self._url}\n{asking.path}\n".encode() + body
        path = self._folder / f"{hashlib.sha256(what).hexdigest()}.jsonl"
        kept: list[Exchange] = []
        if path.exists():
            # What cannot be read is asked for again.
            with suppress(CassetteMissed):
                kept = read_tape(path)
        if kept:
            answer = await Player(path, kept, _Any({}), miss=lambda _: None).answer(asking, ask)
            asking.entry.by = "cache"
            return answer
        answer = await ask(asking)
        if answer.status != _WELL:
            return answer
        return Recorder(path, Forms({}), self._masker).keeping(_ANY, answer)


_ANY = {"method": "POST", "path": "any"}


class _Any(Forms):
    """The form of whatever is asked: the name of the file tells requests apart."""

    def normal(self, method: str, path: str, query: str, body: bytes) -> Any:
        """Return the form of the only exchange in a file."""
        del method, path, query, body
        return _ANY
