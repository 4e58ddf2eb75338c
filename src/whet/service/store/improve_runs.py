"""Improve runs: what callers see of them, and the events that tell of them, in the words of SelfTune."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from sqlalchemy import ColumnElement, Connection, select, update

from whet.service.database import proposals, runs, suites
from whet.service.http import Moment, NextCursor, Page, Strict
from whet.service.store.runs import ImproveOutcome, cancel, enqueue, get_row, kept, shown_time

ImproveStatus = Literal[
    "queued", "running", "succeeded", "no_winner", "undecided", "failed_transient", "failed_terminal", "cancelled"
]
# What an improve run is at: before and after `whet improve` works, and while it does.
ImprovePhase = Literal[
    "materialize", "validate", "classify", "eval_current", "generating", "eval_candidates", "confirm", "persist"
]
_OUTCOMES: tuple[ImproveOutcome, ...] = get_args(ImproveOutcome)


class ImproveSummary(Strict):
    """What came of an improve run, once there is anything."""

    reason: str | None = Field(description="Why it ended so.")
    hint: str | None = Field(description="What to do next.")
    rounds: int
    candidates: int
    accepted: str | None = Field(description="The candidate that the proposal holds.")
    error_spent: float = Field(description="The share of the error that its confirm steps took.")
    cost_usd: float
    trials: int


class AskedOptions(Strict):
    """The options of an improve run; those that are null are as `whet improve` chooses them."""

    part: Literal["description", "body", "all"] | None
    goal: Literal["better", "cheaper"]
    candidates: int
    rounds: int
    max_cost_usd: float
    accept: Literal["like-these", "these"] | None


class ImproveRun(Strict):
    """A run that looks for a better version of a skill."""

    organisation_id: SkipJsonSchema[str] = Field(exclude=True)
    id: str
    eval_suite_id: str
    suite_version: int
    status: ImproveStatus
    phase: ImprovePhase | None = Field(description="While it is running.")
    runner: str
    proposer: str | None
    skill: str
    skill_label: str | None = Field(description="The label by which the skill was asked for.")
    options: AskedOptions
    label: str | None
    asked_by: str | None = Field(description="The prefix of the key that started it.")
    proposal_id: str | None
    summary: ImproveSummary | None
    error: str | None
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    cancel_requested_at: Moment | None
    event_count: int
    bytes: int | None = Field(description="The size of its files, once it has ended.")

    @property
    def ended(self) -> bool:
        """Whether it has ended in any way."""
        return self.status not in ("queued", "running")

    @classmethod
    def of(cls, row: Any, proposal_id: str | None) -> ImproveRun:
        """Return the improve run in a row of the table of runs."""
        request: dict[str, Any] = msgspec.json.decode(row.request)
        summary = msgspec.json.decode(row.summary) if row.summary is not None else None
        return cls.model_construct(
            organisation_id=row.organisation_id,
            id=row.id,
            eval_suite_id=row.suite_id,
            suite_version=row.suite_version,
            status=improve_status(row.status, row.outcome),
            phase=row.phase if row.status == "running" else None,
            **{name: request.get(name) for name in ("runner", "proposer", "skill", "skill_label", "asked_by")},
            options=AskedOptions.model_construct(
                **{name: request["options"].get(name) for name in AskedOptions.model_fields}
            ),
            label=row.label,
            proposal_id=proposal_id,
            summary=ImproveSummary.model_construct(**summary) if summary is not None else None,
            error=row.error.decode() if row.error is not None else None,
            created_at=shown_time(row.created_us),
            started_at=shown_time(row.started_us),
            ended_at=shown_time(row.ended_us),
            cancel_requested_at=shown_time(row.cancel_us),
            event_count=row.event_count,
            bytes=row.bytes,
        )


class ImproveRunAnswer(Strict):
    """One improve run."""

    improve_run: ImproveRun


class ImproveRunPage(Strict):
    """Improve runs, newest first."""

    improve_runs: list[ImproveRun]
    next_cursor: NextCursor


def improve_status(status: str, outcome: str | None) -> ImproveStatus:
    """Return the status of an improve run whose row has these values."""
    shown: Any = status if status in ("queued", "running", "cancelled") else outcome
    # A service that could not carry it out may be able to later.
    return shown if shown is not None else "failed_transient"


def create_improve_run(
    connection: Connection,
    organisation_id: str,
    suite: tuple[str, int],
    asked: Mapping[str, Any],
    label: str | None,
) -> ImproveRun:
    """Add an improve run on a version of a suite to the queue."""
    id_ = enqueue(connection, organisation_id, suite, asked, label, "improve")
    return get_improve_run(connection, organisation_id, id_)


def get_improve_run(connection: Connection, organisation_id: str, id_: str) -> ImproveRun:
    """Return an improve run of the organisation; raises Refused if there is none."""
    row = get_row(connection, organisation_id, id_, "improve")
    proposal_id = connection.execute(select(proposals.c.id).where(proposals.c.run_id == id_)).scalar()
    return ImproveRun.of(row, proposal_id)


def list_improve_runs(
    connection: Connection, organisation_id: str, page: Page, *, suite_id: str | None, status: ImproveStatus | None
) -> tuple[list[ImproveRun], str | None]:
    """Return a page of the organisation's improve runs, newest first, and the cursor of the next one."""
    query = select(runs, proposals.c.id.label("proposal_id")).outerjoin(proposals, proposals.c.run_id == runs.c.id)
    query = query.where(kept(organisation_id, "improve"))
    if suite_id is not None:
        query = query.where(runs.c.suite_id == suite_id)
    if status is not None:
        query = query.where(_has(status))
    rows, cursor = page.split(list(connection.execute(page.select(query, runs))))
    return [ImproveRun.of(row, row.proposal_id) for row in rows], cursor


def _has(status: ImproveStatus) -> ColumnElement[bool]:
    return runs.c.outcome == status if status in _OUTCOMES else runs.c.status == status


def cancel_improve_run(connection: Connection, organisation_id: str, id_: str) -> ImproveRun:
    """End an improve run that waits, and mark one that is running to be cancelled."""
    get_row(connection, organisation_id, id_, "improve")
    cancel(connection, id_)
    return get_improve_run(connection, organisation_id, id_)


# What the worker keeps while an improve run is running.


def enter_phase(connection: Connection, id_: str, phase: ImprovePhase) -> None:
    """Keep what an improve run is at."""
    connection.execute(update(runs).where(runs.c.id == id_).values(phase=phase))


def split_of(connection: Connection, suite_id: str) -> bytes | None:
    """Return the lock of the split of a suite, if an improve run has drawn it."""
    return connection.execute(select(suites.c.split).where(suites.c.id == suite_id)).scalar()


def keep_split(connection: Connection, suite_id: str, lock: bytes) -> None:
    """Keep the lock of the split of a suite, unless the suite was deleted."""
    query = update(suites).where(suites.c.id == suite_id, suites.c.deleted_us.is_(None))
    connection.execute(query.values(split=lock))


# Events.


def event_document(run: ImproveRun, event: Any) -> dict[str, Any]:
    """Return an event as callers see it."""
    stored: dict[str, Any] = msgspec.json.decode(event.payload)
    if "outcome" in stored:
        # The last event, which tells how any run ends.
        status = improve_status(stored["status"], stored["outcome"])
        stored = {"status": status, "payload": {"error": stored["error"]}}
    return {
        "id": event.number,
        "run_id": run.id,
        "org_id": run.organisation_id,
        "type": event.type,
        **stored,
        "created_at": shown_time(event.created_us),
    }
