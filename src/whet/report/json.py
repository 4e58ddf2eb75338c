"""The JSON reporter: a copy of the results.json in the record."""

from __future__ import annotations

from collections.abc import Iterator

from whet.model.event import RunEnded
from whet.report.documents import DocumentReporter

_CHUNK_BYTES = 1 << 16


class JsonReporter(DocumentReporter):
    """Copies the results.json of the run."""

    def chunks(self, event: RunEnded) -> Iterator[bytes]:
        """Yield the file in pieces."""
        with (event.info.run_dir / "results.json").open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
