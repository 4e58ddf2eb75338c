"""A request on its way through the gateway, and those who may answer it before the provider does."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from whet.gateway.connection import Answer, IncomingRequest
from whet.gateway.request_log import LoggedRequest, RequestLog
from whet.gateway.wire.formats import count_characters, read_body, read_request

# Of all requests of an agent under way together, what is kept to be looked at.
_MOST_KEPT = 64 * 1024 * 1024
# A body that nobody looks at goes on before all of it is there, if it is larger, or if so much is kept already.
_GATHERED, _ROOM = 1024 * 1024, _MOST_KEPT // 2
# What takes longer to be looked at is looked at on a thread.
_AT_ONCE = 256 * 1024
# As many pieces of one request or answer are passed on before all others have their turn.
_AT_A_TIME = 32


T = TypeVar("T")


class BodyMemory(Struct):
    """The bodies of all requests of an agent under way: how much of them is kept, and whose turn it is to be read."""

    size: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def look(self, body_size: int, work: Callable[[], T]) -> T:
        """Return what *work* finds in a body of that size.

        A large one has its work done on a thread, and only one at a time: no agent holds up those of other trials.
        """
        if body_size <= _AT_ONCE:
            return work()
        await self.turn.acquire()
        thread = asyncio.ensure_future(asyncio.to_thread(work))
        # Also if the agent hangs up: a thread cannot be ended.
        thread.add_done_callback(lambda _: self.turn.release())
        return await asyncio.shield(thread)


class _ReadBody(Struct, frozen=True):
    """The object that a body is, what leaves instead of it, and how much text it has, if that takes long to count."""

    seen: Mapping[str, Any] | None = None
    anew: bytes | None = None
    characters: int | None = None


def _read(body: bytes) -> _ReadBody:
    seen, anew = read_body(body) or (None, None)
    return _ReadBody(seen, anew, count_characters(seen) if len(body) > _AT_ONCE else None)


class ProxiedRequest(Struct, kw_only=True):
    """A request on its way through: where it goes, and as much of its body as has been read."""

    incoming: IncomingRequest
    entry: LoggedRequest
    path: str
    query: str
    body: bytearray
    # All of the body that there is to read; the first that needs it reads it.
    rest: AsyncIterator[bytes]
    # What is closed when the request is over.
    stack: contextlib.AsyncExitStack
    # Whether the body is too large to be kept, together with those of others.
    too_large: bool = False
    # Whether all of the body has come: until then, it is the agent's turn.
    is_whole: bool = False
    kept: BodyMemory
    # What the body says; nothing before it is read, and if it is no object.
    content: _ReadBody = _ReadBody()
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

    @property
    def seen(self) -> Mapping[str, Any] | None:
        """The object that the body is."""
        return self.content.seen

    @property
    def anew(self) -> bytes | None:
        """What leaves instead of the body."""
        return self.content.anew

    @property
    def characters(self) -> int:
        """How much text there is in the body."""
        counted = self.content.characters
        return count_characters(self.seen) if counted is None else counted

    @property
    def whole_body(self) -> bytes:
        """All of the body, if it is there and was kept."""
        return bytes(self.body) if self.is_whole else b""

    async def gather(self) -> None:
        """Wait for the body, unless it is large: a provider does not wait for ever for an agent that sends slowly."""
        size = 0
        while not self.is_whole and size < _GATHERED and self.kept.size < _ROOM:
            size += len(await anext(self.rest, b""))
        self.rest = _chain(bytes(self.body), self.rest)

    async def whole(self) -> bytes:
        """Return the whole body."""
        async for piece in self.rest:
            del piece
        return bytes(self.body)


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in rest:
        yield piece


class Responder(Protocol):
    """What may answer instead of the provider, or change its answer: cassettes, the cache, faults."""

    async def answer(self, request: ProxiedRequest, ask: NextResponder) -> Answer:
        """Return the answer; *ask* asks the next one, in the end the provider."""


class NextResponder(Protocol):
    """Asks for an answer."""

    async def __call__(self, request: ProxiedRequest) -> Answer:
        """Return the answer to *asking*."""


async def take_turns(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield *pieces*, and let others go on in between: tiny ones may be there by the million, without a pause."""
    number = 0
    async for piece in pieces:
        yield piece
        number += 1
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)


async def read_along(
    body: AsyncIterator[bytes], request: ProxiedRequest, log: RequestLog, uploaded: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield the body, and read at its end what is asked for."""
    digest, entry = hashlib.blake2b(request.path.encode(), digest_size=16), request.entry
    async for piece in take_turns(body):
        digest.update(piece)
        request.keep(piece)
        yield piece
    if request.body:
        request.content = await request.kept.look(len(request.body), partial(_read, bytes(request.body)))
    if entry.asked.format is not None:
        entry.asked = read_request(entry.asked.format, request.path, request.seen or {})
        log.uploaded(entry, digest.digest())
    request.is_whole = True
    uploaded.set()
