"""A request on its way through the gateway, and those who may answer it before the provider does."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from whet.agents.gateway_http import Answer, Incoming
from whet.agents.gateway_ledger import Entry, Ledger
from whet.agents.gateway_wire import read_body, read_request
from whet.dataclass import dataclass

# Of all requests of an agent under way together, what is kept to be looked at.
_MOST_KEPT = 64 * 1024 * 1024
# As many pieces of one request or answer are passed on before all others have their turn.
_AT_A_TIME = 32


@dataclass(slots=True)
class Kept:
    """How much of the bodies of all requests under way is kept."""

    size: int = 0


@dataclass(slots=True, kw_only=True)
class Asking:
    """A request on its way through: where it goes, and as much of its body as has been read."""

    incoming: Incoming
    entry: Entry
    path: str
    query: str
    body: bytearray
    # All of the body that there is to read; the first that needs it reads it.
    rest: AsyncIterator[bytes]
    # What is closed when the request is over.
    stack: contextlib.AsyncExitStack
    # Whether the body is too large to be kept, together with those of others.
    too_large: bool = False
    kept: Kept
    # The object that the body is, and what leaves instead of it; None before it is read, and if it is none.
    seen: Mapping[str, Any] | None = None
    anew: bytes | None = None
    # Whether what leaves asks for figures that the agent did not ask for.
    adds_figures: bool = False

    def keep(self, piece: bytes) -> None:
        """Keep a piece of the body, if there is room for it."""
        self.too_large = self.too_large or self.kept.size + len(piece) > _MOST_KEPT
        if self.too_large:
            self.forget()
        else:
            self.body += piece
            self.kept.size += len(piece)

    def forget(self) -> None:
        """Keep nothing of the body any longer."""
        self.kept.size -= len(self.body)
        self.body.clear()

    async def whole(self) -> bytes:
        """Return the whole body."""
        async for piece in self.rest:
            del piece
        return bytes(self.body)


class Source(Protocol):
    """What may answer instead of the provider, or change its answer: tapes, the cache, faults."""

    async def answer(self, asking: Asking, ask: Ask) -> Answer:
        """Return the answer; *ask* asks the next one, in the end the provider."""


class Ask(Protocol):
    """Asks for an answer."""

    async def __call__(self, asking: Asking) -> Answer:
        """Return the answer to *asking*."""


async def fairly(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield *pieces*, and let others go on in between: tiny ones may be there by the million, without a pause."""
    number = 0
    async for piece in pieces:
        yield piece
        number += 1
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)


async def copied(
    body: AsyncIterator[bytes], asking: Asking, ledger: Ledger, uploaded: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield the body, and read at its end what is asked for."""
    digest, entry = hashlib.blake2b(asking.path.encode(), digest_size=16), asking.entry
    async for piece in fairly(body):
        digest.update(piece)
        asking.keep(piece)
        yield piece
    if asking.body and (found := read_body(bytes(asking.body))) is not None:
        asking.seen, asking.anew = found
    if entry.asked.format is not None:
        entry.asked = read_request(entry.asked.format, asking.path, asking.seen or {})
        ledger.retried(entry, digest.digest())
    uploaded.set()
