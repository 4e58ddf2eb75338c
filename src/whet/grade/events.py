"""The events of a session, read from its file when somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from whet.model.session import Event
from whet.wire import decode_event


class EventLog(Sequence[Event]):
    """One event per line; read once, on first use, because most checks never look."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._loaded: tuple[Event, ...] | None = None

    def _all(self) -> tuple[Event, ...]:
        if self._loaded is None:
            self._loaded = tuple(read_events(self._path)) if self._path else ()
        return self._loaded

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._all())

    def __repr__(self) -> str:
        return repr(list(self._all()))


def read_events(path: Path) -> Iterator[Event]:
    """The events in *path*, one at a time."""
    with path.open("rb") as file:
        yield from (decode_event(line) for line in file if line.strip())
