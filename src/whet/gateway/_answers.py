"""An answer on its way to the agent: read for its figures and its errors while it passes, piece by piece."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from whet.gateway.connection import Answer
from whet.gateway.request import take_turns
from whet.gateway.request_log import LoggedRequest, RequestLog
from whet.gateway.wire.chat import FigureFilter
from whet.gateway.wire.formats import AnswerReader

# Of an error, what is read for its words.
_MOST_ERROR = 64 * 1024
_ERROR = 400


def content_type(answer: Answer) -> str:
    """Return what kind of text an answer is, in small letters."""
    value_of_header = next((value for name, value in answer.headers if name.lower() == b"content-type"), b"")
    return value_of_header.decode("latin-1").strip().lower()


def follow_answer(
    answer: Answer,
    reading: AnswerReader,
    error: bytearray,
    log: RequestLog,
    entry: LoggedRequest,
    *,
    hides_figures: bool,
) -> Answer:
    """Return *answer*, read while it passes; the agent gets each piece first, and without figures that we asked for."""
    answer_pieces = answer.pieces
    figure_filter = FigureFilter() if hides_figures and answer.status < _ERROR else None

    async def pieces() -> AsyncIterator[bytes]:
        if answer_pieces is None:
            log.heard(entry)
            yield answer.data
            note(answer.data)
            return
        async with contextlib.aclosing(answer_pieces) as stream:  # type: ignore[type-var] # they are generators
            async for piece in take_turns(stream):
                log.heard(entry)
                if visible := figure_filter.feed(piece) if figure_filter else piece:
                    yield visible
                log.taken(entry)
                note(piece)
            if figure_filter and (visible := figure_filter.finish()):
                yield visible

    def note(piece: bytes) -> None:
        if answer.status >= _ERROR:
            error.extend(piece[: _MOST_ERROR - len(error)])
        else:
            reading.feed(piece)

    headers = [
        (name, value) for name, value in answer.headers if not (figure_filter and name.lower() == b"content-length")
    ]
    has_length = any(name.lower() == b"content-length" for name, _ in headers)
    length_header = (
        () if has_length or answer_pieces is not None else ((b"content-length", str(len(answer.data)).encode()),)
    )
    return Answer(status=answer.status, headers=[*headers, *length_header], pieces=pieces())
