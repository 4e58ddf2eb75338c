"""Note which events of a session the expectations of a check look at, so that a page can lead from one to the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice

from whet.model.events import Event, TurnStarted
from whet.model.session import Session

# More would not help to find the one that matters.
MOST_EVENTS = 100


class EventReferences:
    """What the expectations of one check looked at, as places among the events of a session or of one of its turns."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[int, type[Event] | None, int], Session] = {}

    def note(self, session: Session, kind: type[Event] | None, places: Iterable[int]) -> None:
        """Note *places* among the events of a *kind*, or among all events."""
        room = MOST_EVENTS - len(self._sessions)
        for place in islice(places, max(0, room)):
            self._sessions.setdefault((id(session), kind, place), session)

    def events(self, full_session: Session) -> tuple[int, ...]:
        """Return the places of what was noted among the events of *full_session*."""
        event_places: set[int] = set()
        for (_, kind, place), session in self._sessions.items():
            session_places = _places(session, kind) if kind else range(len(session.events))
            begin = _begin(full_session, session)
            if begin is not None and 0 <= place < len(session_places):
                event_places.add(begin + session_places[place])
        return tuple(sorted(event_places))


def _places(session: Session, kind: type[Event]) -> list[int]:
    return [place for place, event in enumerate(session.events) if type(event) is kind]


def _begin(full_session: Session, session: Session) -> int | None:
    """Return where the events of *session*, which may be a turn, begin in the whole one; None if it is another one."""
    if session is full_session or session.events is full_session.events:
        return 0
    turn = next((number for number, session_turn in enumerate(full_session.turns, 1) if session_turn is session), None)
    starts = (
        place
        for place, event in enumerate(full_session.events)
        if isinstance(event, TurnStarted) and event.turn == turn
    )
    return next((start + 1 for start in starts), None) if turn else None


_current: ContextVar[EventReferences | None] = ContextVar("looked", default=None)


@contextmanager
def collect_references() -> Iterator[EventReferences]:
    """Note what expectations inside look at."""
    references = EventReferences()
    token = _current.set(references)
    try:
        yield references
    finally:
        _current.reset(token)


def look_at(session: Session, kind: type[Event] | None, places: Iterable[int]) -> None:
    """Note that an expectation looks at *places* among the events of a *kind*, or among all events."""
    references = _current.get()
    if references is not None:
        references.note(session, kind, places)
