"""Runs as callers see them."""

from __future__ import annotations

from typing import Any

import msgspec

from whet.server.documents import shown_time
from whet.server.storage.runs import StoredRun


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
