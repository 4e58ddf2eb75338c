"""Connections that ask nothing: a caller has so long to say what it wants, and is sent away after that."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, which by itself would wait for the end of a head for ever."""

    # For the head of a request; bodies have a limit of their own (`server/bodies.py`).
    patience_s = 20.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Somebody said something, which may be a whole head or a part of it."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._is_answering():
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.patience_s, self._send_away)

    def _send_away(self) -> None:
        self._timer = None
        if not self._is_answering():
            self.transport.close()

    def _is_answering(self) -> bool:
        # None before the first request, whatever its type says.
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
