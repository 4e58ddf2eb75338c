"""The normalized events of an agent that prints something else, one per line in a file that is there if any are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from whet.model.session import Event
from whet.wire import encode_lines


class EventFile:
    """Takes events many at a time, since a write of each would take longer than all else that is done with it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def write(self, events: Sequence[Event]) -> None:
        """Put *events* on disk, after those before."""
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        view = memoryview(encode_lines(events))
        while view:
            view = view[os.write(self._file, view) :]

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
