"""Runs, from the queue to their end, and the events that tell of it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from sqlalchemy import ColumnElement, Connection, and_, exists, func, insert, or_, select, update

from whet.model.comparison import MOST_ROUNDS, Decision, Goal
from whet.service.database import Kind, Status, now_us, run_events, runs
from whet.service.errors import not_found
from whet.service.http import Moment, NextCursor, Page, Strict

Outcome = Literal["passed", "failed", "errored", "compared"]
ImproveOutcome = Literal["succeeded", "no_winner", "undecided", "failed_transient", "failed_terminal"]
_EVENTS_AT_ONCE = 500
_FIRST_EVENTS: Mapping[Kind, str] = {"run": "run_queued", "improve": "run_enqueued"}


class RunArm(Strict):
    """One arm of a run, as it was asked for."""

    name: str
    skill: str | None
    skill_label: str | None
    runner: str | None
    model: str | None


class UntilDecided(Strict):
    """When a run ends by itself: as soon as one arm is known to be better, or more rounds would not help."""

    effect_points: float = Field(default=10, ge=0.1, le=100, description="The difference that matters.")
    max_rounds: int = Field(default=10, ge=2, le=MOST_ROUNDS, description="The most trials per case and arm.")
    margin_points: float | None = Field(
        default=None, gt=0, le=100, description="Also end once no arm can be worse by so much."
    )
    goal: Goal | None = Field(
        default=None, description="End when it is known whether an arm takes less of this, and is not worse."
    )


class Decided(Strict):
    """An arm of this run beside the same arm of the run before."""

    arm: str
    runner: str | None
    verdict: Decision
    difference: float
    low: float
    high: float
    said: str = Field(description="The decision in one sentence.")


class Moved(Strict):
    """A case whose mean value changed."""

    case: str
    arm: str
    runner: str | None
    weight: float
    before: float
    after: float
    may_be_chance: bool


class Previous(Strict):
    """The comparison with the last completed run of the suite on the same runner and arms."""

    run_id: str
    suite_version: int
    skill: str | None
    newly_failing: list[str]
    newly_passing: list[str]
    decisions: list[Decided]
    moved: list[Moved] = Field(description="The cases that moved most, at most 20 of each arm.")
    refused: str | None = Field(description="Why nothing could be decided.")


class Run(Strict):
    """A run and its outcome."""

    organisation_id: SkipJsonSchema[str] = Field(exclude=True)
    kind: SkipJsonSchema[Kind] = Field(exclude=True)
    id: str
    suite_id: str
    suite_version: int
    status: Status
    outcome: Outcome | None
    runner: str | None
    skill: str | None
    skill_label: str | None = Field(description="The label by which the skill was asked for.")
    arm: str | None
    arms: list[RunArm] | None
    trials: int | None
    until_decided: UntilDecided | None
    label: str | None
    asked_by: str | None = Field(description="The prefix of the key that started it.")
    summary: dict[str, Any] | None
    error: str | None
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    cancel_requested_at: Moment | None
    event_count: int
    bytes: int | None = Field(description="The size of its files, once it has ended.")
    previous: Previous | None

    @property
    def ended(self) -> bool:
        """Whether it has ended in any way."""
        return self.status not in ("queued", "running")

    @classmethod
    def of(cls, row: Any) -> Run:
        """Return the run in a row of the table."""
        request: dict[str, Any] = msgspec.json.decode(row.request)
        # Our own rows need no validation.
        return cls.model_construct(
            organisation_id=row.organisation_id,
            kind=row.kind,
            id=row.id,
            suite_id=row.suite_id,
            suite_version=row.suite_version,
            status=row.status,
            outcome=row.outcome,
            # A request leaves out what is null, and what an old version did not know.
            **{name: request.get(name) for name in ("runner", "skill", "skill_label", "arm", "trials", "asked_by")},
            arms=[_arm(arm) for arm in request["arms"]] if request.get("arms") else None,
            until_decided=UntilDecided(**request["until_decided"]) if request.get("until_decided") else None,
            label=row.label,
            summary=msgspec.json.decode(row.summary) if row.summary is not None else None,
            error=row.error.decode() if row.error is not None else None,
            created_at=shown_time(row.created_us),
            started_at=shown_time(row.started_us),
            ended_at=shown_time(row.ended_us),
            cancel_requested_at=shown_time(row.cancel_us),
            event_count=row.event_count,
            bytes=row.bytes,
            previous=Previous.model_validate_json(row.previous) if row.previous is not None else None,
        )


def _arm(asked: dict[str, Any]) -> RunArm:
    return RunArm.model_construct(**{name: asked.get(name) for name in RunArm.model_fields})


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


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended; `error` is for people."""

    status: Status
    outcome: Outcome | ImproveOutcome | None = None
    summary: bytes | None = None
    error: str | None = None
    # The size of the folder, and the comparison with the run before.
    bytes: int | None = None
    previous: Previous | None = None


class NewEvent(msgspec.Struct, frozen=True):
    """An event to add; one with the same `mark` is added only once."""

    mark: str
    type: str
    payload: bytes = b"{}"


def add_events(connection: Connection, run_id: str, events: Sequence[NewEvent]) -> int:
    """Append those of *events* that are new, and return how many they are."""
    if not events:
        return 0
    # The update locks the row of the run, so that no other transaction numbers events at the same time.
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
    """Return number, type, payload and time of the next events after this *number*."""
    query = (
        select(run_events.c.number, run_events.c.type, run_events.c.payload, run_events.c.created_us)
        .where(run_events.c.run_id == run_id, run_events.c.number > number)
        .order_by(run_events.c.number)
        .limit(_EVENTS_AT_ONCE)
    )
    return connection.execute(query).all()


def create_run(
    connection: Connection,
    organisation_id: str,
    suite: tuple[str, int],
    asked: Mapping[str, Any],
    label: str | None = None,
) -> Run:
    """Add a run of a version of a suite to the queue, with what was *asked*."""
    return get_run(connection, organisation_id, enqueue(connection, organisation_id, suite, asked, label, "run"))


def enqueue(
    connection: Connection,
    organisation_id: str,
    suite: tuple[str, int],
    asked: Mapping[str, Any],
    label: str | None,
    kind: Kind,
) -> str:
    """Add what was *asked* of a version of a suite to the queue, and return its id."""
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
            label=label,
            kind=kind,
        )
    )
    add_events(connection, id_, [NewEvent("queued", _FIRST_EVENTS[kind])])
    return id_


def kept(organisation_id: str, kind: Kind) -> ColumnElement[bool]:
    """Return the condition for what the organisation keeps of a *kind*."""
    return and_(runs.c.organisation_id == organisation_id, runs.c.kind == kind, runs.c.deleted_us.is_(None))


def get_row(connection: Connection, organisation_id: str, id_: str, kind: Kind) -> Any:
    """Return a row of a *kind*; raises Refused if the organisation has none with this id."""
    row = connection.execute(select(runs).where(kept(organisation_id, kind), runs.c.id == id_)).first()
    if row is None:
        raise not_found("run" if kind == "run" else "improve run")
    return row


def get_run(connection: Connection, organisation_id: str, id_: str) -> Run:
    """Return a run of the organisation; raises Refused if there is none."""
    return Run.of(get_row(connection, organisation_id, id_, "run"))


def label_run(connection: Connection, organisation_id: str, id_: str, label: str | None) -> Run:
    """Give a run of the organisation another label, or none."""
    get_run(connection, organisation_id, id_)
    connection.execute(update(runs).where(runs.c.id == id_).values(label=label))
    return get_run(connection, organisation_id, id_)


def list_runs(
    connection: Connection, organisation_id: str, page: Page, *, suite_id: str | None, status: Status | None
) -> tuple[list[Run], str | None]:
    """Return a page of the organisation's runs, newest first, and the cursor of the next one."""
    query = select(runs).where(kept(organisation_id, "run"))
    if suite_id is not None:
        query = query.where(runs.c.suite_id == suite_id)
    if status is not None:
        query = query.where(runs.c.status == status)
    rows, cursor = page.split(list(connection.execute(page.select(query, runs))))
    return [Run.of(row) for row in rows], cursor


def _waiting(organisation_id: str) -> Any:
    return (runs.c.organisation_id == organisation_id) & runs.c.status.in_(("queued", "running"))


def count_waiting(connection: Connection, organisation_id: str) -> int:
    """Return how many runs of the organisation have not ended."""
    return connection.execute(select(func.count()).where(_waiting(organisation_id))).scalar_one()


def waiting_with(connection: Connection, organisation_id: str, skill: str) -> str | None:
    """Return the id of a run of the organisation that has not ended and names this *skill*."""
    rows = connection.execute(select(runs.c.id, runs.c.request).where(_waiting(organisation_id)))
    return next((row.id for row in rows if skill in named_skills(row.request)), None)


def named_skills(request: bytes) -> set[str]:
    """Return the skills that the request of a run names, also those of its arms."""
    document: dict[str, Any] = msgspec.json.decode(request)
    return {part["skill"] for part in (document, *document.get("arms", ())) if part.get("skill") is not None}


def count_by_status(connection: Connection) -> dict[str, int]:
    """Return how many runs have each status."""
    query = select(runs.c.status, func.count()).where(runs.c.deleted_us.is_(None)).group_by(runs.c.status)
    rows = connection.execute(query)
    return {row[0]: row[1] for row in rows}


def start_run(connection: Connection, id_: str) -> bool:
    """Take a run out of the queue; returns False if it is not there any more."""
    result = connection.execute(
        update(runs).where(runs.c.id == id_, runs.c.status == "queued").values(status="running", started_us=now_us())
    )
    if result.rowcount != 1:
        return False
    add_events(connection, id_, [NewEvent("started", "run_started")])
    return True


def cancel_run(connection: Connection, organisation_id: str, id_: str) -> Run:
    """End a run that waits, and mark one that is running to be cancelled."""
    # Refuses a run of another organisation.
    get_run(connection, organisation_id, id_)
    cancel(connection, id_)
    return get_run(connection, organisation_id, id_)


def cancel(connection: Connection, id_: str) -> None:
    """End what waits, and mark what is running to be cancelled."""
    mark = update(runs).where(runs.c.id == id_, runs.c.cancel_us.is_(None)).values(cancel_us=now_us())
    connection.execute(mark.where(runs.c.status.in_(("queued", "running"))))
    end_run(connection, id_, Ending(status="cancelled"), only_from="queued")


def is_cancelled(connection: Connection, id_: str) -> bool:
    """Return whether somebody has asked that a run ends."""
    return connection.execute(select(runs.c.cancel_us).where(runs.c.id == id_)).scalar() is not None


def end_run(connection: Connection, id_: str, ending: Ending, *, only_from: Status = "running") -> bool:
    """Store how a run ended; returns False if it has ended before."""
    result = connection.execute(
        update(runs)
        .where(runs.c.id == id_, runs.c.status == only_from)
        .values(
            status=ending.status,
            outcome=ending.outcome,
            summary=ending.summary,
            error=ending.error.encode(errors="replace") if ending.error else None,
            bytes=ending.bytes,
            previous=ending.previous.model_dump_json().encode() if ending.previous is not None else None,
            ended_us=now_us(),
            phase=None,
        )
    )
    if result.rowcount != 1:
        return False
    payload = {"status": ending.status, "outcome": ending.outcome, "error": ending.error}
    add_events(connection, id_, [NewEvent("ended", f"run_{ending.status}", msgspec.json.encode(payload))])
    return True


def running_runs(connection: Connection) -> list[Run]:
    """Return every run that has started and not ended, in the order of their starts."""
    rows = connection.execute(select(runs).where(runs.c.status == "running").order_by(runs.c.started_us, runs.c.id))
    return [Run.of(row) for row in rows]


def _may_start() -> ColumnElement[bool]:
    """Return the condition for what waits for a worker only: improve runs of a suite share its split, in turns."""
    before = runs.alias()
    is_under_way = exists().where(
        before.c.suite_id == runs.c.suite_id, before.c.kind == "improve", before.c.status == "running"
    )
    return and_(runs.c.status == "queued", or_(runs.c.kind != "improve", ~is_under_way))


def _oldest_waiting(connection: Connection) -> dict[str, Run]:
    """Return the run of each organisation that has waited longest, the oldest first."""
    first = (
        select(runs.c.organisation_id, func.min(runs.c.created_us).label("created_us"))
        .where(_may_start())
        .group_by(runs.c.organisation_id)
        .subquery()
    )
    query = (
        select(runs)
        .join(first, (first.c.organisation_id == runs.c.organisation_id) & (first.c.created_us == runs.c.created_us))
        .where(_may_start())
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
