"""Trials of a run under way that have begun and not ended: which, since when, and where their events grow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from whet.model.run import ExecutionKey, folder_name
from whet.record.read.rows import RowKey
from whet.view._figures import PlannedExecution
from whet.view.documents import RunningTrial, trial_key

# A page names no more than a machine runs at once.
_MOST = 100


def running_trials(
    run_dir: Path, executions: Mapping[ExecutionKey, PlannedExecution], ended: Collection[RowKey], more: int
) -> Iterator[RunningTrial]:
    """Yield the trials that have a folder and no line in the journal yet; *more* were added to each execution."""
    found = 0
    for (case, runner, arm), planned in executions.items():
        for number in range(1, (planned.trials or 0) + more + 1):
            key = RowKey(case, runner, arm, number)
            begun = None if key in ended else begun_at(run_dir / live_folder(key))
            if begun is not None and found < _MOST:
                found += 1
                yield RunningTrial(key=trial_key(key), since=begun)


def live_folder(key: RowKey) -> str:
    """Return where the attempts at a trial are, as a path in the record."""
    return "/".join(("trials", *map(folder_name, (key.case, key.runner, key.arm)), str(key.number)))


def begun_at(folder: Path) -> str | None:
    """Return when the last attempt at a trial began: then its folder was made in that of the trial."""
    try:
        return datetime.fromtimestamp(folder.lstat().st_mtime, UTC).isoformat(timespec="milliseconds")
    except OSError:
        return None


def last_attempt(folder: Path) -> int | None:
    """Return the number of the attempt that is under way; None if none has begun."""
    try:
        numbers = [int(item.name) for item in folder.iterdir() if item.name.isdecimal()]
    except OSError:
        return None
    return max(numbers, default=None)
