"""Note which events of a session the expectations of a check look at, so that a page can lead from one to the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice

from whet.model.seen import Event, TurnStarted
from whet.model.session import Session

# More would not help to find the one that matters.
MOST_EVENTS = 100


class Looked:
    """What the expectations of one check looked at, as places among the events of a session or of one of its turns."""

    def __init__(self) -> None:
        self._noted: dict[tuple[int, type[Event] | None, int], Session] = {}

    def note(self, session: Session, kind: type[Event] | None, places: Iterable[int]) -> None:
        """Note *places* among the events of a *kind*, or among all events."""
        left = MOST_EVENTS - len(self._noted)
        for place in islice(places, max(0, left)):
            self._noted.setdefault((id(session), kind, place), session)

    def events(self, whole: Session) -> tuple[int, ...]:
        """Return the places of what was noted among the events of the *whole* session."""
        found: set[int] = set()
        for (_, kind, place), session in self._noted.items():
            own = _places(session, kind) if kind else range(len(session.events))
            begin = _begin(whole, session)
            if begin is not None and 0 <= place < len(own):
                found.add(begin + own[place])
        return tuple(sorted(found))


def _places(session: Session, kind: type[Event]) -> list[int]:
    return [place for place, event in enumerate(session.events) if type(event) is kind]


def _begin(whole: Session, session: Session) -> int | None:
    """Return where the events of *session*, which may be a turn, begin in the whole one; None if it is another one."""
    if session is whole or session.events is whole.events:
        return 0
    turn = next((number for number, each in enumerate(whole.turns, 1) if each is session), None)
    starts = (
        place for place, event in enumerate(whole.events) if isinstance(event, TurnStarted) and event.turn == turn
    )
    return next((start + 1 for start in starts), None) if turn else None


_current: ContextVar[Looked | None] = ContextVar("looked", default=None)


@contextmanager
def looking() -> Iterator[Looked]:
    """Note what expectations inside look at."""
    found = Looked()
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


def look_at(session: Session, kind: type[Event] | None, places: Iterable[int]) -> None:
    """Note that an expectation looks at *places* among the events of a *kind*, or among all events."""
    looked = _current.get()
    if looked is not None:
        looked.note(session, kind, places)
