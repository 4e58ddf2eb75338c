"""The addresses of the queue of labels: all that `whet judge label` serves, so that no page shows what is hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO
from urllib.parse import unquote

from whet.errors import UsageError
from whet.model import codec
from whet.view.addresses import Missing
from whet.view.labels.documents import KeptLabel, SentLabel
from whet.view.labels.queue import LabelQueue


class LabelDesk:
    """Serves one queue to whoever has the address; *person* labels unless a request names another one."""

    def __init__(self, queue: LabelQueue, person: str) -> None:
        self._queue = queue
        self._person = person

    def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the queue, an item of it, or what the judge said, as JSON."""
        by = query.get("by") or self._person
        match _parts(path):
            case ["labels"]:
                return codec.encode(self._queue.document(by))
            case ["labels", name]:
                return codec.encode(self._queue.item(name))
            case ["labels", name, "reason"]:
                return codec.encode(self._queue.reason(name, by))
        raise Missing("only the queue of labels is here; whet view shows the runs")

    def file(self, path: str) -> BinaryIO:
        """Refuse every file of a run."""
        raise Missing(f"{path} is not served here: files could tell what is hidden; whet view shows them")

    def add(self, path: str, body: bytes) -> KeptLabel:
        """Keep a label."""
        try:
            label = codec.decode(body, SentLabel)
        except codec.WireError as error:
            raise UsageError(f"this is not a label: {error.message}") from error
        match _parts(path):
            case ["labels", name]:
                return self._queue.label(name, label.label, label.by, label.note)
        raise Missing("there is nothing to label at this address")

    def remove(self, path: str) -> None:
        """Take a label back."""
        match _parts(path):
            case ["labels", _, "kept", line_id]:
                return self._queue.take_back(line_id, self._person)
        raise Missing("there is no such label")


def _parts(path: str) -> list[str]:
    return [unquote(part, errors="replace") for part in path.split("/")]
