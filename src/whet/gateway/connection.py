"""One connection of an agent to the gateway: requests come in, answers go out, piece by piece.

h11 reads and frames both. Whatever the agent sends, the request that leaves the gateway is written anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeAlias

import h11
from msgspec import Struct, field

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
_CHUNK = 65536
# More than all headers of any agent together.
_MOST_HEAD = 64 * 1024
# What a client may send ahead, while its request is being answered.
_MOST_AHEAD = 1024 * 1024
_MOST_DRAINED = 64 * 1024 * 1024
_ERROR, _FORBIDDEN = 400, 403
# Headers that speak of one connection, and not of what is sent over it.
HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    )
)


class AgentHungUp(Exception):
    """The agent hung up."""


class Answer(Struct, frozen=True, kw_only=True):
    """An answer: all of its *data*, or pieces that are read as fast as the agent takes them."""

    status: int
    headers: Headers = ()
    pieces: AsyncIterator[bytes] | None = None
    data: bytes = b""


class AnswerCut(Exception):
    """An answer broke off in the middle."""


class IncomingRequest(Struct, frozen=True, kw_only=True):
    """A request: its body is read by `Client.body`."""

    method: str
    target: str
    headers: Headers = field(default_factory=tuple)

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header, whose name is in small letters."""
        return next((value for header_name, value in self.headers if header_name == name), None)

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)

    @property
    def upgrades(self) -> bool:
        """Whether it wants to speak another protocol."""
        return self.header(b"upgrade") is not None


class Client:
    """The agent at the other end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEAD)
        self._ahead = bytearray()
        self._method = ""

    async def request(self) -> IncomingRequest | None:
        """Return the next request, or None if there is none; raises `h11.RemoteProtocolError`."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        event = await self._next()
        if not isinstance(event, h11.Request):
            return None
        names = [name for name, _ in event.headers]
        if b"transfer-encoding" in names and b"content-length" in names:
            # Two that speak of one connection could take different parts of it for the body.
            raise h11.RemoteProtocolError("a request has either a length or chunks", error_status_hint=_ERROR)
        self._method = event.method.decode("ascii")
        return IncomingRequest(
            method=self._method,
            target=event.target.decode("ascii", "replace"),
            headers=list(event.headers),
        )

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body of the request."""
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            try:
                event = await self._next()
            except h11.RemoteProtocolError as error:
                # A body without its end; what of it has gone on cannot be taken back.
                raise AgentHungUp from error
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise AgentHungUp

    async def drain(self) -> None:
        """Read and drop a body, so that an agent that is still sending it sees the answer."""
        size = 0
        async for piece in self.body():
            size += len(piece)
            if size > _MOST_DRAINED:
                return

    async def answer(self, answer: Answer) -> None:
        """Send an answer; if it breaks off, so does the connection."""
        has_length = answer.pieces is not None or any(name.lower() == b"content-length" for name, _ in answer.headers)
        length = () if has_length else ((b"content-length", str(len(answer.data)).encode()),)
        try:
            await self._send(h11.Response(status_code=answer.status, headers=[*answer.headers, *length]))
            if self._method == "HEAD":
                # The answer to HEAD has the headers of an answer, and no body.
                pass
            elif answer.pieces is None:
                await self._send(h11.Data(data=answer.data))
            else:
                async with contextlib.aclosing(answer.pieces) as pieces:  # type: ignore[type-var] # they are generators
                    async for piece in pieces:
                        await self._send(h11.Data(data=piece))
            await self._send(h11.EndOfMessage())
        except (AnswerCut, h11.LocalProtocolError):
            self._abort()
            raise

    async def refuse(self, status: int, message: str, headers: Headers = ()) -> None:
        """Answer with an error in a form that agents of every provider show."""
        await self.answer(error_answer(status, message, headers))

    async def watch(self) -> None:
        """Return when the agent hangs up; what it sends ahead is kept for later."""
        while len(self._ahead) < _MOST_AHEAD:
            data = await self._reader.read(_CHUNK)
            if not data:
                return
            self._ahead += data
        await asyncio.get_running_loop().create_future()

    @property
    def leftover(self) -> bytes:
        """What came after the head of a CONNECT."""
        return bytes(self._http.trailing_data[0]) + bytes(self._ahead)

    @property
    def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The bare connection, after a CONNECT."""
        return self._reader, self._writer

    async def accept_tunnel(self) -> None:
        """Answer that the tunnel is open."""
        await self._send(h11.Response(status_code=200, headers=[]))

    async def _next(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._ahead:
                data = bytes(self._ahead)
                self._ahead.clear()
            else:
                data = await self._reader.read(_CHUNK)
            self._http.receive_data(data)
            if not data and self._http.their_state is not h11.SEND_BODY:
                return h11.PAUSED
        return event

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()

    def _abort(self) -> None:
        self._writer.transport.abort()

    async def refuse_garbage(self, error: h11.RemoteProtocolError) -> None:
        """Answer what is no request, if an answer can still be sent."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with contextlib.suppress(h11.LocalProtocolError, OSError):
                await self.refuse(error.error_status_hint, f"not a request: {error}")

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def error_answer(status: int, message: str, headers: Headers = ()) -> Answer:
    """Return an error in a form that agents of every provider show."""
    kind = "permission_error" if status == _FORBIDDEN else "invalid_request_error"
    error = {"type": kind, "code": "whet", "message": f"whet: {message}", "status": str(status)}
    data = json.dumps({"type": "error", "error": error}).encode()
    return Answer(status=status, headers=[(b"content-type", b"application/json"), *headers], data=data)


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers that are passed on, without those of the connection and those that it names."""
    lowercase_headers = [(name.lower(), value) for name, value in headers]
    connection_headers = {
        word.strip().lower() for name, value in lowercase_headers if name == b"connection" for word in value.split(b",")
    }
    return [
        (name, value) for name, value in lowercase_headers if name not in HOP_BY_HOP and name not in connection_headers
    ]
