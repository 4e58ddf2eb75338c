"""Runs as the service keeps them: what was asked, how far it is, and what came of it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, func, insert, select, update

from whet.service.database import Page, next_cursor, now_us, run_events, runs

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


Status = Literal["queued", "running", "completed", "failed", "cancelled"]
STATUSES: tuple[Status, ...] = ("queued", "running", "completed", "failed", "cancelled")
ENDED: tuple[Status, ...] = ("completed", "failed", "cancelled")
Outcome = Literal["passed", "failed", "errored"]


class RunAsked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a caller asked of a run: `skill` is an address, or `sha256:` and the digest of an archive that we have.

    `asked_by` is the prefix of the key that asked; runs from before it was kept have none.
    """

    runner: str | None = None
    skill: str | None = None
    variant: str | None = None
    trials: int | None = None
    asked_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run."""

    id: str
    organisation_id: str
    suite_id: str
    suite_version: int
    status: Status
    outcome: Outcome | None
    asked: RunAsked
    summary: bytes | None
    error: str | None
    created_us: int
    started_us: int | None
    ended_us: int | None
    cancel_us: int | None
    event_count: int

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended: for people in `error`, for programs in the rest."""

    status: Status
    outcome: Outcome | None = None
    summary: bytes | None = None
    error: str | None = None


def create_run(connection: Connection, organisation_id: str, suite: tuple[str, int], asked: RunAsked) -> StoredRun:
    """A new run of a version of a suite, at the end of the queue."""
    id_ = str(uuid.uuid4())
    connection.execute(
        insert(runs).values(
            id=id_,
            organisation_id=organisation_id,
            suite_id=suite[0],
            suite_version=suite[1],
            status="queued",
            request=msgspec.json.encode(asked),
            created_us=now_us(),
            event_count=0,
        )
    )
    add_events(connection, id_, [NewEvent("queued", "run_queued")])
    return _get(connection, id_)


def get_run(connection: Connection, organisation_id: str, id_: str) -> StoredRun | None:
    """A run of the organisation."""
    row = connection.execute(select(runs).where(runs.c.organisation_id == organisation_id, runs.c.id == id_)).first()
    return _stored(row) if row is not None else None


def list_runs(
    connection: Connection, organisation_id: str, page: Page, *, suite_id: str | None, status: Status | None
) -> tuple[list[StoredRun], str | None]:
    """Runs of the organisation, newest first, of all or of one suite; and the cursor for more."""
    query = select(runs).where(runs.c.organisation_id == organisation_id)
    if suite_id is not None:
        query = query.where(runs.c.suite_id == suite_id)
    if status is not None:
        query = query.where(runs.c.status == status)
    rows = list(connection.execute(page.of_rows(query, runs)))
    cursor = next_cursor(page, rows)
    return [_stored(row) for row in rows], cursor


def count_waiting(connection: Connection, organisation_id: str) -> int:
    """How many runs of the organisation have not ended."""
    query = select(func.count()).where(
        runs.c.organisation_id == organisation_id, runs.c.status.in_(("queued", "running"))
    )
    return connection.execute(query).scalar_one()


def start_run(connection: Connection, id_: str) -> bool:
    """Take a run out of the queue; whether it was still there."""
    started = connection.execute(
        update(runs).where(runs.c.id == id_, runs.c.status == "queued").values(status="running", started_us=now_us())
    )
    if started.rowcount != 1:
        return False
    add_events(connection, id_, [NewEvent("started", "run_started")])
    return True


def cancel_run(connection: Connection, id_: str) -> StoredRun:
    """End a run that waits, and note the wish for one that is under way."""
    wished = update(runs).where(runs.c.id == id_, runs.c.cancel_us.is_(None)).values(cancel_us=now_us())
    connection.execute(wished.where(runs.c.status.in_(("queued", "running"))))
    run = _get(connection, id_)
    if run.status == "queued" and end_run(connection, id_, Ending(status="cancelled"), only_from="queued"):
        return _get(connection, id_)
    return run


def end_run(connection: Connection, id_: str, ending: Ending, *, only_from: Status = "running") -> bool:
    """Keep how a run ended, once; whether this was the time."""
    ended = connection.execute(
        update(runs)
        .where(runs.c.id == id_, runs.c.status == only_from)
        .values(
            status=ending.status,
            outcome=ending.outcome,
            summary=ending.summary,
            error=ending.error.encode(errors="replace") if ending.error else None,
            ended_us=now_us(),
        )
    )
    if ended.rowcount != 1:
        return False
    payload = {"status": ending.status, "outcome": ending.outcome, "error": ending.error}
    add_events(connection, id_, [NewEvent("ended", f"run_{ending.status}", msgspec.json.encode(payload))])
    return True


def runs_under_way(connection: Connection) -> list[StoredRun]:
    """Every run that was started and has not ended, in the order of their starts."""
    rows = connection.execute(select(runs).where(runs.c.status == "running").order_by(runs.c.started_us, runs.c.id))
    return [_stored(row) for row in rows]


def oldest_waiting(connection: Connection) -> dict[str, StoredRun]:
    """The run of each organisation that has waited longest."""
    first = (
        select(runs.c.organisation_id, func.min(runs.c.created_us).label("created_us"))
        .where(runs.c.status == "queued")
        .group_by(runs.c.organisation_id)
        .subquery()
    )
    query = (
        select(runs)
        .join(first, (first.c.organisation_id == runs.c.organisation_id) & (first.c.created_us == runs.c.created_us))
        .where(runs.c.status == "queued")
    )
    return {row.organisation_id: _stored(row) for row in connection.execute(query)}


def count_by_status(connection: Connection) -> dict[str, int]:
    """How many runs there are of each status."""
    rows = connection.execute(select(runs.c.status, func.count()).group_by(runs.c.status))
    return {row[0]: row[1] for row in rows}


def _get(connection: Connection, id_: str) -> StoredRun:
    return _stored(connection.execute(select(runs).where(runs.c.id == id_)).one())


def _stored(row: Any) -> StoredRun:
    return StoredRun(
        id=row.id,
        organisation_id=row.organisation_id,
        suite_id=row.suite_id,
        suite_version=row.suite_version,
        status=row.status,
        outcome=row.outcome,
        asked=msgspec.json.decode(row.request, type=RunAsked),
        summary=row.summary,
        error=row.error.decode() if row.error is not None else None,
        created_us=row.created_us,
        started_us=row.started_us,
        ended_us=row.ended_us,
        cancel_us=row.cancel_us,
        event_count=row.event_count,
    )
