"""An answer on its way to the agent: read for its figures and its errors while it passes, piece by piece."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from whet.agents.gateway_asking import fairly
from whet.agents.gateway_chat import WithoutFigures
from whet.agents.gateway_http import Answer
from whet.agents.gateway_ledger import Entry, Ledger
from whet.agents.gateway_wire import Answer as Reading

# Of an error, what is read for its words.
_MOST_ERROR = 64 * 1024
_ERROR = 400


def content_type(answer: Answer) -> str:
    """Return what kind of text an answer is, in small letters."""
    found = next((value for name, value in answer.headers if name.lower() == b"content-type"), b"")
    return found.decode("latin-1").strip().lower()


def followed(
    answer: Answer, reading: Reading, error: bytearray, ledger: Ledger, entry: Entry, *, hides_figures: bool
) -> Answer:
    """Return *answer*, read while it passes; the agent gets each piece first, and without figures that we asked for."""
    source = answer.pieces
    hiding = WithoutFigures() if hides_figures and answer.status < _ERROR else None

    async def pieces() -> AsyncIterator[bytes]:
        if source is None:
            ledger.heard(entry)
            yield answer.data
            note(answer.data)
            return
        async with contextlib.aclosing(source) as rest:  # type: ignore[type-var] # they are generators
            async for piece in fairly(rest):
                ledger.heard(entry)
                if shown := hiding.feed(piece) if hiding else piece:
                    yield shown
                ledger.taken(entry)
                note(piece)
            if hiding and (shown := hiding.finish()):
                yield shown

    def note(piece: bytes) -> None:
        if answer.status >= _ERROR:
            error.extend(piece[: _MOST_ERROR - len(error)])
        else:
            reading.feed(piece)

    kept = [(name, value) for name, value in answer.headers if not (hiding and name.lower() == b"content-length")]
    length = any(name.lower() == b"content-length" for name, _ in kept)
    more = () if length or source is not None else ((b"content-length", str(len(answer.data)).encode()),)
    return Answer(status=answer.status, headers=[*kept, *more], pieces=pieces())
