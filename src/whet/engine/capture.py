"""The keeping of what a process prints: masked, up to a ceiling, in a file that exists only if there is something."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from whet.errors import OutputTooLarge
from whet.mask import MaskedStream, Masker

_TAIL = 2000


class Capture:
    """A sink that writes to a file and passes on what it wrote."""

    def __init__(
        self, path: Path, *, masker: Masker, most_bytes: int, then: Callable[[bytes], None] | None = None
    ) -> None:
        self.path = path
        self.tail = b""
        self._stream = MaskedStream(masker)
        self._left = most_bytes
        self._most = most_bytes
        self._then = then
        self._file: int | None = None

    def __call__(self, chunk: bytes) -> None:
        """Take one piece of output; raises where there is too much of it."""
        taken = chunk[: self._left]
        self._left -= len(taken)
        self._write(self._stream.feed(taken))
        if len(taken) < len(chunk):
            # The ceiling may have cut a secret in two; its beginning is not to be written either.
            self._stream.forget()
            raise OutputTooLarge(
                f"printed more than {self._most} bytes and was stopped",
                hint="raise defaults.max_output_bytes if this is what it should do",
            )

    @property
    def written(self) -> bool:
        """Whether there was any output."""
        return self._file is not None

    def close(self) -> None:
        """Write what was held back and close the file."""
        self._write(self._stream.finish())
        if self._file is not None:
            os.close(self._file)

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self.tail = (self.tail + data)[-_TAIL:]
        if self._then:
            self._then(data)
