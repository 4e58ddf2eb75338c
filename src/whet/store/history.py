"""Earlier runs: what did not go as expected the last time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet import wire
from whet.errors import StoreError, UsageError
from whet.model.run import TrialResult
from whet.store.folder import RESULTS_FILE, RUN_FILE, read_run_file
from whet.store.verifying import check_journal


@dataclass(frozen=True, slots=True, kw_only=True)
class _Execution:
    runner: str
    variant: str
    passed: bool
    snapshot: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    id: str
    executions: tuple[_Execution, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Results:
    cases: tuple[_Case, ...]


def newest_run(output_dir: Path, suite: Path) -> Path:
    """The folder of the newest run of *suite*."""
    folder = _newest(output_dir, suite)
    if folder is None:
        raise UsageError(f"{suite} has not been run into {output_dir} before", hint="leave out --last-failed")
    return folder


def settings_of(folder: Path) -> Path | None:
    """The settings file that a run was given by name, if it was."""
    named = read_run_file(folder).get("config_file")
    return Path(named) if isinstance(named, str) else None


def skill_of(folder: Path) -> Path | None:
    """The skill under test of a run, if there was one."""
    named = read_run_file(folder).get("skill")
    return Path(named) if isinstance(named, str) else None


def last_failed(folder: Path) -> frozenset[tuple[str, str, str]]:
    """The executions with a trial that did not go as expected in a run."""
    failed = frozenset(
        (result.key.case, result.key.runner, result.key.variant) for result in finished(folder) if not result.passed
    ) | _not_held(folder / RESULTS_FILE)
    if not failed:
        raise UsageError(f"nothing failed in the last run ({folder.name})", hint="leave out --last-failed")
    return failed


def _not_held(results: Path) -> frozenset[tuple[str, str, str]]:
    """The executions whose usage snapshot does not hold; only the results tell, which a run that was killed has not."""
    if not results.exists():
        return frozenset()
    try:
        document = wire.decode(results.read_bytes(), _Results)
    except (OSError, wire.WireError) as error:
        raise StoreError(f"{results} cannot be read: {error}", hint="leave out --last-failed") from error
    return frozenset(
        (case.id, execution.runner, execution.variant)
        for case in document.cases
        for execution in case.executions
        if execution.snapshot is not None and not execution.passed
    )


def _newest(output_dir: Path, suite: Path) -> Path | None:
    """Names sort by time; a folder that cannot be read is somebody else's."""
    folders = sorted((path.parent for path in output_dir.glob(f"*/{RUN_FILE}")), reverse=True)
    for folder in folders:
        if folder.is_symlink():
            continue
        try:
            if read_run_file(folder).get("suite_path") == str(suite):
                return folder
        except StoreError:
            continue
    return None


def finished(run_dir: Path) -> list[TrialResult]:
    """How the trials of a run ended, in that order; `RecordChanged` where the record does not fit together."""
    return [line.result for line in check_journal(run_dir)]
