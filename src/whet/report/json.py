"""The JSON reporter: the document of results.json, in a file of one's choice or on stdout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from whet.model.event import RunEnded, RunEvent
from whet.report.base import ReporterContext
from whet.report.document import write_document

_CHUNK_BYTES = 1 << 16


class JsonReporter:
    """Copies what the store has written, so that there is one document and one truth."""

    document = True

    def __init__(self, context: ReporterContext) -> None:
        self._context = context

    def __call__(self, event: RunEvent) -> None:
        """At the end, copy the document."""
        if isinstance(event, RunEnded):
            write_document(_chunks(event.info.run_dir / "results.json"), self._context)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
