"""What happened to a run, in order: numbered from 1, and each thing told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from whet.server.storage.database import now_us
from whet.server.storage.tables import run_events, runs

_TOGETHER = 500


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something to tell; `mark` names it, so that it is not told twice."""

    mark: str
    type: str
    payload: bytes = b"{}"


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Something that was told."""

    number: int
    type: str
    payload: bytes
    created_us: int


def add_events(connection: Connection, run_id: str, events: Sequence[NewEvent]) -> int:
    """Append those of *events* that were not told before; how many they were."""
    if not events:
        return 0
    # Writing to the run first holds its row, so that nobody numbers events at the same time.
    count = connection.execute(
        update(runs).where(runs.c.id == run_id).values(event_count=runs.c.event_count).returning(runs.c.event_count)
    ).scalar_one()
    marks = [event.mark for event in events]
    known = set(
        connection.execute(
            select(run_events.c.mark).where(run_events.c.run_id == run_id, run_events.c.mark.in_(marks))
        ).scalars()
    )
    fresh = list({event.mark: event for event in events if event.mark not in known}.values())
    if not fresh:
        return 0
    now = now_us()
    connection.execute(
        insert(run_events),
        [
            {
                "run_id": run_id,
                "number": number,
                "mark": event.mark,
                "type": event.type,
                "payload": event.payload,
                "created_us": now,
            }
            for number, event in enumerate(fresh, count + 1)
        ],
    )
    connection.execute(update(runs).where(runs.c.id == run_id).values(event_count=count + len(fresh)))
    return len(fresh)


def events_after(connection: Connection, run_id: str, number: int) -> list[StoredEvent]:
    """The next events after the one of this *number*."""
    query = (
        select(run_events.c.number, run_events.c.type, run_events.c.payload, run_events.c.created_us)
        .where(run_events.c.run_id == run_id, run_events.c.number > number)
        .order_by(run_events.c.number)
        .limit(_TOGETHER)
    )
    return [StoredEvent(*row) for row in connection.execute(query)]
