"""Asks streams of chats for their figures: only if a request says so, the last event of such a stream tells them.

An agent that did not ask for that event does not get it: some programs fail at an event without a choice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from whet.agents.gateway_wire import Asked, Frames
from whet.agents.records import parse, table

_OPTIONS = "stream_options"
_ASKED = {"include_usage": True}
# The end of an event, in a stream of events.
_END = re.compile(rb"\n\r?\n")
# The event with figures is short; a stream without any end passes as it is.
_MOST_HELD = 1024 * 1024


def lacks_figures(asked: Asked, body: Mapping[str, Any]) -> bool:
    """Return whether the answer is a stream of a chat that would not tell what it took."""
    return asked.format == "chat" and asked.streams and not table(body, _OPTIONS).get("include_usage")


def asking_for_figures(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return *body* so that the stream tells what it took."""
    return {**body, _OPTIONS: {**table(body, _OPTIONS), **_ASKED}}


class WithoutFigures:
    """Leaves the event with the figures out of a stream."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._looked = 0

    def feed(self, piece: bytes) -> bytes:
        """Return what can be passed on now: whole events."""
        self._rest += piece
        kept: list[bytes] = []
        done = 0
        while (end := _END.search(self._rest, max(done, self._looked - 2))) is not None:
            event = bytes(self._rest[done : end.end()])
            done = self._looked = end.end()
            if not _is_figures(event):
                kept.append(event)
        self._looked = len(self._rest) - done
        del self._rest[:done]
        return b"".join((*kept, self.finish())) if len(self._rest) > _MOST_HELD else b"".join(kept)

    def finish(self) -> bytes:
        """Return what has no end."""
        rest, self._looked = bytes(self._rest), 0
        self._rest.clear()
        return b"" if _is_figures(rest) else rest


def _is_figures(event: bytes) -> bool:
    if b"_tokens" not in event:
        return False
    frames = Frames()
    found = [parse(data) for data in (*frames.feed(event), *frames.finish())]
    return any(seen.get("choices") == [] and table(seen, "usage") for seen in found)
