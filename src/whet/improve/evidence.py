"""Find runs that show already what a skill does in practice, so that nobody pays twice for the same baseline."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from whet.errors import NothingSelected, StoreError
from whet.improve.propose.task import PracticeRun
from whet.improve.runs import PhaseAsk, RunsOfPhases, plan_phase
from whet.model.suite import SKILL, Suite
from whet.plan.measured import measure
from whet.record.improve.folder import ImproveFolder, improve_folders
from whet.record.read.run import newest_run, read_run
from whet.record.run_file import read_run_file
from whet.record.sources import sources_of
from whet.version import __version__
from whet.workspace.copy import remove_tree

BASELINE, REUSED = "baseline", "baseline-reused"
_FRESH = timedelta(days=30)


def reuse_baseline(common: RunsOfPhases, ask: PhaseAsk) -> Path | None:
    """Copy the baseline of an earlier improve run that is not older than 30 days, if it measured the same."""
    run = common.folder.run_of(REUSED)
    if run is not None:
        return run
    planned_run = plan_phase(common, ask)
    plan, settings = planned_run.plan, planned_run.settings
    due = (plan.suite.digest, measure(plan, settings, sources_of(plan, settings, ())), __version__)
    for baseline in _baselines(common.folder):
        with suppress(StoreError):
            run_file = read_run_file(baseline)
            is_same = (run_file.suite_digest, run_file.measured, run_file.whet_version) == due
            if is_same and not read_run(baseline).missing:
                return _copy(baseline, common.folder.runs_of(REUSED) / baseline.name)
    return None


def earlier_practice(folder: ImproveFolder, suite: Suite, start: str, output_dir: Path) -> Iterator[PracticeRun]:
    """Yield a run from before that shows what the version with the digest *start* does."""
    for baseline in _baselines(folder):
        with suppress(StoreError):
            if ImproveFolder(baseline.parents[2]).read().start == start:
                yield PracticeRun(folder=baseline)
                return
    with suppress(StoreError, NothingSelected):
        run = newest_run(output_dir, suite.source, of_failed=False)
        if run.asked.skill_digest == start:
            yield PracticeRun(folder=run.run_dir, arm=SKILL)


def _baselines(folder: ImproveFolder) -> Iterator[Path]:
    """Yield the baselines of other improve runs, the newest first."""
    for other in improve_folders(folder.path.parent):
        baseline = other.run_of(BASELINE) or other.run_of(REUSED)
        if other.path != folder.path and baseline is not None and _is_fresh(baseline):
            yield baseline


def _is_fresh(run: Path) -> bool:
    try:
        began = datetime.strptime(run.name, "%Y%m%dT%H%M%S-%f").replace(tzinfo=UTC)
    except ValueError:
        return False
    return datetime.now(UTC) - began < _FRESH


def _copy(run: Path, place: Path) -> Path:
    """Copy the record of a run in one step, so that the folder of the improve run has all that it rests on."""
    draft = place.with_name(f".{place.name}-draft")
    remove_tree(draft)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(run, draft, symlinks=True)
    draft.rename(place)
    return place
