"""Asks streams of chats for their figures: only if a request says so, the last event of such a stream tells them.

An agent that did not ask for that event does not get it: some programs fail at an event without a choice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from whet.agents.observe.records import parse, table
from whet.gateway.wire.formats import Frames, RequestSummary

_OPTIONS = "stream_options"
_ASKED = {"include_usage": True}
# The end of an event, in a stream of events.
_END = re.compile(rb"\n\r?\n")
# The event with figures is short; a stream without any end passes as it is.
_MOST_HELD = 1024 * 1024


def lacks_figures(summary: RequestSummary, body: Mapping[str, Any]) -> bool:
    """Return whether the answer is a stream of a chat that would not tell what it took."""
    return summary.format == "chat" and summary.streams and not table(body, _OPTIONS).get("include_usage")


def ask_for_figures(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return *body* so that the stream tells what it took."""
    return {**body, _OPTIONS: {**table(body, _OPTIONS), **_ASKED}}


class FigureFilter:
    """Leaves the event with the figures out of a stream."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._looked = 0

    def feed(self, piece: bytes) -> bytes:
        """Return what can be passed on now: whole events."""
        self._rest += piece
        events: list[bytes] = []
        offset = 0
        while (end := _END.search(self._rest, max(offset, self._looked - 2))) is not None:
            event = bytes(self._rest[offset : end.end()])
            offset = self._looked = end.end()
            if not _is_figures(event):
                events.append(event)
        self._looked = len(self._rest) - offset
        del self._rest[:offset]
        return b"".join((*events, self.finish())) if len(self._rest) > _MOST_HELD else b"".join(events)

    def finish(self) -> bytes:
        """Return what has no end."""
        tail, self._looked = bytes(self._rest), 0
        self._rest.clear()
        return b"" if _is_figures(tail) else tail


def _is_figures(event: bytes) -> bool:
    if b"_tokens" not in event:
        return False
    frames = Frames()
    records = [parse(data) for data in (*frames.feed(event), *frames.finish())]
    return any(record.get("choices") == [] and table(record, "usage") for record in records)
