"""What a program printed, within a bound, and how it ended, in words."""

from __future__ import annotations

from whet.sandbox.contract import Ended, Sink

HEAD_BYTES = TAIL_BYTES = 2000


class BoundedOutput:
    """Keeps what a program prints; raises *too_much* above *most* bytes."""

    def __init__(self, most: int, too_much: Exception) -> None:
        self.data = bytearray()
        self._most = most
        self._too_much = too_much

    def __call__(self, chunk: bytes) -> None:
        """Take a piece."""
        self.data += chunk
        if len(self.data) > self._most:
            raise self._too_much


class OutputHead:
    """Passes everything on to another sink, and keeps the beginning: that is where a sandbox says what is wrong."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._data = b""

    def __call__(self, chunk: bytes) -> None:
        """Take a piece, and pass it on."""
        if len(self._data) < HEAD_BYTES:
            self._data += chunk[:HEAD_BYTES]
        self._sink(chunk)

    @property
    def text(self) -> str:
        """The beginning, as text."""
        return self._data.decode(errors="replace").strip()


class OutputTail:
    """Keeps the end of what a program prints."""

    def __init__(self) -> None:
        self._data = b""

    def __call__(self, chunk: bytes) -> None:
        """Take a piece."""
        self._data = (self._data + chunk)[-TAIL_BYTES:]

    @property
    def text(self) -> str:
        """The end, as text."""
        return self._data.decode(errors="replace").strip()


def how_it_ended(ended: Ended) -> str:
    """Return such as "exit code 3" or "signal 9"."""
    return f"exit code {ended.exit_code}" if ended.exit_code is not None else f"signal {ended.signal}"
