"""Runs, from the queue to their end, and the events that tell of it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from sqlalchemy import Connection, func, insert, select, update

from whet.service.database import Status, now_us, run_events, runs
from whet.service.http import Moment, NextCursor, Page, Strict
from whet.service.refusals import not_found

Outcome = Literal["passed", "failed", "errored"]
_EVENTS_AT_ONCE = 500


class RunBody(Strict):
    """What to run a suite with."""

    runner: str | None = Field(
        default=None, max_length=200, description="One of the server's runners; none for no agent."
    )
    skill: str | None = Field(
        default=None,
        max_length=2000,
        description="The address of an archive (https, r2, s3), or sha256:DIGEST of one that was uploaded before.",
    )
    arm: Literal["skill", "no_skill"] | None = Field(default=None, description="Only this arm.")
    trials: int | None = Field(default=None, ge=1, le=100, description="Samples of every case.")
    suite_version: int | None = Field(default=None, ge=1, le=2**31 - 1, description="The newest by default.")


class Run(Strict):
    """A run and its outcome."""

    organisation_id: SkipJsonSchema[str] = Field(exclude=True)
    id: str
    suite_id: str
    suite_version: int
    status: Status
    outcome: Outcome | None
    runner: str | None
    skill: str | None
    arm: str | None
    trials: int | None
    asked_by: str | None = Field(description="The prefix of the key that started it.")
    summary: dict[str, Any] | None
    error: str | None
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    cancel_requested_at: Moment | None
    event_count: int

    @property
    def ended(self) -> bool:
        """Whether it has ended in any way."""
        return self.status not in ("queued", "running")

    @classmethod
    def of(cls, row: Any) -> Run:
        """Return the run in a row of the table."""
        asked: dict[str, Any] = msgspec.json.decode(row.request)
        # Our own rows need no validation.
        return cls.model_construct(
            organisation_id=row.organisation_id,
            id=row.id,
            suite_id=row.suite_id,
            suite_version=row.suite_version,
            status=row.status,
            outcome=row.outcome,
            # A request leaves out what is null, and "asked_by" if it is from an old version.
            **{name: asked.get(name) for name in ("runner", "skill", "arm", "trials", "asked_by")},
            summary=msgspec.json.decode(row.summary) if row.summary is not None else None,
            error=row.error.decode() if row.error is not None else None,
            created_at=shown_time(row.created_us),
            started_at=shown_time(row.started_us),
            ended_at=shown_time(row.ended_us),
            cancel_requested_at=shown_time(row.cancel_us),
            event_count=row.event_count,
        )


def shown_time(moment_us: int | None) -> str | None:
    """Return a moment as text in UTC, such as 2026-01-31T12:00:00.000Z."""
    if moment_us is None:
        return None
    return datetime.fromtimestamp(moment_us / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunAnswer(Strict):
    """One run."""

    run: Run


class RunPage(Strict):
    """Runs, newest first."""

    runs: list[Run]
    next_cursor: NextCursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended; `error` is for people."""

    status: Status
    outcome: Outcome | None = None
    summary: bytes | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to add; one with the same `mark` is added only once."""

    mark: str
    type: str
    payload: bytes = b"{}"


def add_events(connection: Connection, run_id: str, events: Sequence[NewEvent]) -> int:
    """Append those of *events* that are new, and return how many they are."""
    if not events:
        return 0
    # This locks the row of the run, so that no other transaction numbers events at the same time.
    count = connection.execute(
        update(runs).where(runs.c.id == run_id).values(event_count=runs.c.event_count).returning(runs.c.event_count)
    ).scalar_one()
    marks = [event.mark for event in events]
    query = select(run_events.c.mark).where(run_events.c.run_id == run_id, run_events.c.mark.in_(marks))
    known = set(connection.execute(query).scalars())
    fresh = list({event.mark: event for event in events if event.mark not in known}.values())
    if not fresh:
        return 0
    now = now_us()
    rows = [
        {
            "run_id": run_id,
            "number": number,
            "mark": event.mark,
            "type": event.type,
            "payload": event.payload,
            "created_us": now,
        }
        for number, event in enumerate(fresh, count + 1)
    ]
    connection.execute(insert(run_events), rows)
    connection.execute(update(runs).where(runs.c.id == run_id).values(event_count=count + len(fresh)))
    return len(fresh)


def events_after(connection: Connection, run_id: str, number: int) -> Sequence[Any]:
    """Return number, type and payload of the next events after this *number*."""
    query = (
        select(run_events.c.number, run_events.c.type, run_events.c.payload)
        .where(run_events.c.run_id == run_id, run_events.c.number > number)
        .order_by(run_events.c.number)
        .limit(_EVENTS_AT_ONCE)
    )
    return connection.execute(query).all()


def create_run(
    connection: Connection, organisation_id: str, suite: tuple[str, int], body: RunBody, asked_by: str | None = None
) -> Run:
    """Add a run of a version of a suite to the queue; *asked_by* is the prefix of a key."""
    id_ = str(uuid.uuid4())
    asked = {**body.model_dump(exclude_none=True, exclude={"suite_version"}), "asked_by": asked_by}
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
    return get_run(connection, organisation_id, id_)


def get_run(connection: Connection, organisation_id: str, id_: str) -> Run:
    """Return a run of the organisation; raises Refused if there is none."""
    row = connection.execute(select(runs).where(runs.c.organisation_id == organisation_id, runs.c.id == id_)).first()
    if row is None:
        raise not_found("run")
    return Run.of(row)


def list_runs(
    connection: Connection, organisation_id: str, page: Page, *, suite_id: str | None, status: Status | None
) -> tuple[list[Run], str | None]:
    """Return a page of the organisation's runs, newest first, and the cursor of the next one."""
    query = select(runs).where(runs.c.organisation_id == organisation_id)
    if suite_id is not None:
        query = query.where(runs.c.suite_id == suite_id)
    if status is not None:
        query = query.where(runs.c.status == status)
    rows, cursor = page.split(list(connection.execute(page.select(query, runs))))
    return [Run.of(row) for row in rows], cursor


def count_waiting(connection: Connection, organisation_id: str) -> int:
    """Return how many runs of the organisation have not ended."""
    query = select(func.count()).where(
        runs.c.organisation_id == organisation_id, runs.c.status.in_(("queued", "running"))
    )
    return connection.execute(query).scalar_one()


def count_by_status(connection: Connection) -> dict[str, int]:
    """Return how many runs have each status."""
    rows = connection.execute(select(runs.c.status, func.count()).group_by(runs.c.status))
    return {row[0]: row[1] for row in rows}


def start_run(connection: Connection, id_: str) -> bool:
    """Take a run out of the queue; returns False if it is not there any more."""
    started = connection.execute(
        update(runs).where(runs.c.id == id_, runs.c.status == "queued").values(status="running", started_us=now_us())
    )
    if started.rowcount != 1:
        return False
    add_events(connection, id_, [NewEvent("started", "run_started")])
    return True


def cancel_run(connection: Connection, organisation_id: str, id_: str) -> Run:
    """End a run that waits, and mark one that is running to be cancelled."""
    # Refuses a run of another organisation.
    get_run(connection, organisation_id, id_)
    marked = update(runs).where(runs.c.id == id_, runs.c.cancel_us.is_(None)).values(cancel_us=now_us())
    connection.execute(marked.where(runs.c.status.in_(("queued", "running"))))
    end_run(connection, id_, Ending(status="cancelled"), only_from="queued")
    return get_run(connection, organisation_id, id_)


def end_run(connection: Connection, id_: str, ending: Ending, *, only_from: Status = "running") -> bool:
    """Store how a run ended; returns False if it has ended before."""
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


def running_runs(connection: Connection) -> list[Run]:
    """Return every run that has started and not ended, in the order of their starts."""
    rows = connection.execute(select(runs).where(runs.c.status == "running").order_by(runs.c.started_us, runs.c.id))
    return [Run.of(row) for row in rows]


def _oldest_waiting(connection: Connection) -> dict[str, Run]:
    """Return the run of each organisation that has waited longest, the oldest first."""
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
        .order_by(runs.c.created_us, runs.c.organisation_id)
    )
    return {row.organisation_id: Run.of(row) for row in connection.execute(query)}


class Queue:
    """Takes runs out of the database one at a time, and is fair to organisations."""

    def __init__(self) -> None:
        # When each organisation was last served, as a count.
        self._served: Counter[str] = Counter()

    def take(self, connection: Connection) -> Run | None:
        """Start the next run and return it; returns None if no run waits."""
        waiting = _oldest_waiting(connection)
        running = Counter(run.organisation_id for run in running_runs(connection))
        for organisation_id in sorted(waiting, key=lambda name: (running[name], self._served[name])):
            run = waiting[organisation_id]
            if start_run(connection, run.id):
                self._served[organisation_id] = max(self._served.values(), default=0) + 1
                return run
        return None
