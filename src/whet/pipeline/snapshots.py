"""Holding a run to its snapshots of usage."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from whet.config import Settings
from whet.errors import StoreError
from whet.model.event import Notice
from whet.model.snapshot import SnapshotOutcome
from whet.pipeline.under_way import UnderWay
from whet.plan import RunRequest
from whet.store.results import JournalResults
from whet.store.snapshots import SnapshotFile, SnapshotKey, compare_all, snapshot_rule

_UNUSED = "no case or runner has that name; delete the entry from the snapshot file, or rename it to the new name"


def find_snapshots(settings: Settings, request: RunRequest) -> SnapshotFile | None:
    """The snapshots that this run is held to; a file that cannot be read is found before anything starts."""
    default_dir = settings.file.parent if settings.file else Path.cwd()
    rule = snapshot_rule(
        settings.snapshots, default_dir=default_dir, update=request.update_snapshots, environ=os.environ
    )
    return SnapshotFile(rule) if rule else None


def hold_to_snapshots(
    under_way: UnderWay, settings: Settings, file: SnapshotFile | None
) -> dict[SnapshotKey, SnapshotOutcome]:
    """Hold the run to its snapshots, and tell of each that is new, does not hold, or belongs to nobody."""
    if file is None:
        return {}
    outcomes = compare_all(file, JournalResults(under_way.plan, under_way.journal, 0.0))
    for outcome in outcomes.values():
        if outcome.status != "held":
            level: Literal["info", "warning"] = "info" if outcome.verdict is None else "warning"
            under_way.emit(Notice(level=level, message=f"snapshot {outcome.status}: {outcome.key}: {outcome.message}"))
    for key in file.unused(under_way.plan, frozenset(runner.id for runner in settings.runners)):
        under_way.emit(Notice(level="warning", message=f"snapshot unused: {key}: {_UNUSED}"))
    try:
        file.save()
    except StoreError as error:
        under_way.emit(Notice(level="warning", message=error.message))
        return outcomes | {key: replace(outcome, status="missing") for key, outcome in outcomes.items() if outcome.new}
    return outcomes
