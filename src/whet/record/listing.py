"""List the runs of a folder, each with what it was asked and how it ended, from the heads of its files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from whet.errors import StoreError
from whet.record.batches import read_batch
from whet.record.document import ResultsPart
from whet.record.folder import BATCH_FILE, is_locked
from whet.record.read.run import run_folders
from whet.record.results_file import ResultsFile
from whet.record.run_file import RunFile, read_run_file

RunOutcome = Literal["passed", "failed", "errored", "unfinished", "running"]
RUN_OUTCOMES: tuple[RunOutcome, ...] = ("passed", "failed", "errored", "unfinished", "running")
# How the name of a run folder begins.
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}")


class ListedRun(Struct, frozen=True, kw_only=True):
    """One run: where it is, what it was asked and how it ended."""

    run: str
    folder: str
    suite: str | None
    suite_path: str | None
    command: str | None
    arms: tuple[str, ...]
    started_at: str | None
    outcome: RunOutcome
    trials: int
    passed: int
    failed: int
    errored: int
    cost_usd: float | None
    # The batch that it belongs to, whose runs one command started.
    batch: str | None


class RunListing(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/runs/1"):
    """What `whet runs --json` prints."""

    output_dir: str
    runs: tuple[ListedRun, ...]


class _Money(Struct):
    cost_usd: float | None = None


class _ResultsHead(ResultsPart):
    """What the list says of results.json."""

    interrupted: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    spending: _Money = field(default_factory=_Money)


def list_runs(output_dir: Path) -> list[ListedRun]:
    """Return the runs in *output_dir*, the newest first; a folder that cannot be read is not one of our runs."""
    batches = dict(_runs_of_batches(output_dir))
    return list(_readable_runs(output_dir, batches))


def _readable_runs(output_dir: Path, batches: dict[Path, str]) -> Iterator[ListedRun]:
    for folder in reversed(run_folders(output_dir)):
        try:
            yield _listed(folder, read_run_file(folder), batches.get(folder.resolve()))
        except StoreError:
            continue


def batch_folders(output_dir: Path) -> list[Path]:
    """Return the folders of batches in *output_dir*, the oldest first."""
    folders = sorted(path.parent for path in output_dir.glob(f"*/{BATCH_FILE}"))
    return [folder for folder in folders if not folder.is_symlink()]


def _runs_of_batches(output_dir: Path) -> Iterator[tuple[Path, str]]:
    for batch in batch_folders(output_dir):
        try:
            runs = read_batch(batch)
        except StoreError:
            continue
        yield from ((folder, batch.name) for _, folder in runs)


def _listed(folder: Path, asked: RunFile, batch: str | None) -> ListedRun:
    head = _read_head(folder)
    counts = {} if head is None else head.counts
    failed = counts.get("failed", 0) + counts.get("unexpected_passed", 0)
    return ListedRun(
        run=folder.name,
        folder=str(folder),
        suite=asked.suite,
        suite_path=asked.suite_path,
        command=asked.command,
        arms=tuple(asked.arm_facts),
        started_at=started_at(folder.name),
        outcome=_outcome(folder, head, failed),
        trials=asked.trials or counts.get("total", 0),
        passed=counts.get("passed", 0) + counts.get("expected_failed", 0),
        failed=failed,
        errored=counts.get("errored", 0),
        cost_usd=None if head is None else head.spending.cost_usd,
        batch=batch,
    )


def _read_head(folder: Path) -> _ResultsHead | None:
    try:
        return ResultsFile(folder).read(_ResultsHead)
    except StoreError:
        return None


def _outcome(folder: Path, head: _ResultsHead | None, failed: int) -> RunOutcome:
    if is_locked(folder):
        return "running"
    if head is None or head.interrupted or head.counts.get("not_run", 0):
        return "unfinished"
    if failed:
        return "failed"
    return "errored" if head.counts.get("errored", 0) else "passed"


def started_at(name: str) -> str | None:
    """Return the time in the name of a run folder, as ISO 8601; None if somebody renamed it."""
    match = _NAME.match(name)
    if match is None:
        return None
    return datetime.strptime(match[0], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")


def age_s(run: ListedRun, now: datetime) -> float | None:
    """Return how long ago a run began, if that is known."""
    if run.started_at is None:
        return None
    return (now - datetime.fromisoformat(run.started_at)).total_seconds()
