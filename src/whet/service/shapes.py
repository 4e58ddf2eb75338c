"""The shapes of answers and requests, for the OpenAPI document; suites themselves have a schema of their own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from whet.service.documents import shown_time
from whet.service.stored_runs import Status, StoredRun

Cursor = Annotated[str | None, Field(description="Give it back as `cursor` for what follows; null at the end.")]
Moment = Annotated[str, Field(description="In UTC.", examples=["2026-01-31T12:00:00.000Z"])]


class Strict(BaseModel):
    """An object with these fields and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Detail(Strict):
    """One thing that is wrong, and where."""

    path: str = Field(examples=["cases_json[3].environment_ref"])
    message: str


class Problem(Strict):
    """Why a request was not carried out."""

    error: str
    details: list[Detail]


class SuiteHead(BaseModel):
    """A suite without its cases."""

    id: str
    version: int
    name: str
    source_id: str | None
    source_kind: str
    verifier_kind: str
    supports_no_skill: bool
    resource_limits_json: dict[str, Any]
    suite_kind: str
    runnable: bool
    not_runnable_reasons: list[str]
    created_at: Moment
    updated_at: Moment


class CountedSuite(SuiteHead):
    """A suite as lists show it."""

    case_count: int


class Suite(SuiteHead):
    """A suite with its cases."""

    cases_json: list[dict[str, Any]]


class SuiteAnswer(Strict):
    """One suite."""

    suite: Suite


class SuitePage(Strict):
    """Suites, newest first."""

    suites: list[CountedSuite]
    next_cursor: Cursor


class VersionPage(Strict):
    """The versions of a suite, newest first."""

    versions: list[CountedSuite]
    next_cursor: Cursor


class RunBody(Strict):
    """What to run a suite with."""

    runner: str | None = Field(
        default=None, max_length=200, description="One of the server's runners; none for no agent."
    )
    skill: str | None = Field(
        default=None,
        max_length=2000,
        description="An archive by its address (https, r2, s3), or sha256:DIGEST of one that was uploaded before.",
    )
    variant: Literal["skill", "no_skill"] | None = Field(default=None, description="Only this variant.")
    trials: int | None = Field(default=None, ge=1, le=100, description="Samples of every case.")
    suite_version: int | None = Field(default=None, ge=1, le=2**31 - 1, description="The newest where it is not said.")


class Run(Strict):
    """A run and what came of it."""

    id: str
    suite_id: str
    suite_version: int
    status: Status
    outcome: Literal["passed", "failed", "errored"] | None
    runner: str | None
    skill: str | None
    variant: str | None
    trials: int | None
    asked_by: str | None = Field(description="The prefix of the key that asked for it.")
    summary: dict[str, Any] | None
    error: str | None
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    cancel_requested_at: Moment | None
    event_count: int


class RunAnswer(Strict):
    """One run."""

    run: Run


class RunPage(Strict):
    """Runs, newest first."""

    runs: list[Run]
    next_cursor: Cursor


class TrialPage(Strict):
    """Trials that have ended, in the order of their ends, as the journal keeps them."""

    trials: list[dict[str, Any]]
    next_cursor: str


class Artifact(Strict):
    """A file that is kept from a run."""

    path: str
    size: int


class ArtifactPage(Strict):
    """Files of a run, in the order of their paths."""

    artifacts: list[Artifact]
    next_cursor: Cursor


class RunnerList(Strict):
    """What runs can be asked for."""

    runners: list[str]


class Health(Strict):
    """Whether the service works."""

    status: Literal["ok", "down"]
    database: Literal["ok", "down"]
    version: str


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, besides those that every route with a key has."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in (401, 403, 429, *statuses)}


_MEANINGS = {
    400: "The body cannot be read.",
    401: "No key, or none that counts.",
    403: "The key lacks the scope.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "It cannot be done as things stand.",
    412: "The suite has changed.",
    413: "The body is too large.",
    415: "The content type is another one.",
    422: "What was sent is not valid.",
    429: "Too much was asked; see Retry-After.",
}


def shown_run(run: StoredRun) -> dict[str, Any]:
    """A run: what was asked, how far it is, what came of it."""
    return {
        "id": run.id,
        "suite_id": run.suite_id,
        "suite_version": run.suite_version,
        "status": run.status,
        "outcome": run.outcome,
        "runner": run.asked.runner,
        "skill": run.asked.skill,
        "variant": run.asked.variant,
        "trials": run.asked.trials,
        "asked_by": run.asked.asked_by,
        "summary": msgspec.Raw(run.summary) if run.summary is not None else None,
        "error": run.error,
        "created_at": shown_time(run.created_us),
        "started_at": _time(run.started_us),
        "ended_at": _time(run.ended_us),
        "cancel_requested_at": _time(run.cancel_us),
        "event_count": run.event_count,
    }


def _time(moment_us: int | None) -> str | None:
    return shown_time(moment_us) if moment_us is not None else None
