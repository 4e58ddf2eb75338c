"""Earlier runs: what did not go as expected the last time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import StoreError, UsageError
from whet.model import wire
from whet.model.run import TrialKey, TrialResult
from whet.model.session import SessionSummary
from whet.record.chain import Line
from whet.record.folder import RESULTS_FILE, RUN_FILE, read_run_file
from whet.record.verifying import check_files, check_journal


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


_SESSION = "session.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An earlier run; `suite_path` is where its suite was."""

    run_dir: Path
    suite_path: Path
    config_file: Path | None
    workspace: Mapping[str, Any] | None
    skill: Path | None
    results: Mapping[tuple[str, str, str, int], TrialResult]
    lines: tuple[Line, ...] = ()

    def result(self, key: TrialKey) -> TrialResult | None:
        """How that trial ended."""
        return self.results.get(_name(key))

    def check_files(self, key: TrialKey | None = None) -> None:
        """Refuse a record of which a file has changed; of one trial only, where *key* names it."""
        check_files(self.run_dir, [line for line in self.lines if key is None or line.result.key == key])

    def session(self, result: TrialResult) -> SessionSummary | None:
        """The session that checks looked at, if the trial came to one."""
        decided = result.failure is None or result.failure.phase == "check"
        file = self.run_dir / result.artifact_dir / _SESSION
        if not decided or not file.is_file():
            return None
        try:
            session = wire.decode(file.read_bytes(), SessionSummary)
        except (OSError, wire.WireError) as error:
            raise StoreError(f"{file} cannot be read: {error}") from error
        return session if session.complete else None


def read_record(run_dir: Path) -> Record:
    """The record in *run_dir*, if it is whole; a run without a finished trial has nothing to regrade."""
    lines = check_journal(run_dir)
    facts = read_run_file(run_dir)
    if "suite_path" not in facts:
        raise StoreError(f"{run_dir}: run.json is not the record of a run: it names no suite")
    if not lines:
        raise UsageError(f"no trial of {run_dir.name} has ended, so it holds nothing yet")
    workspace, config_file = facts.get("workspace"), facts.get("config_file")
    return Record(
        run_dir=run_dir,
        suite_path=Path(str(facts["suite_path"])),
        config_file=Path(config_file) if isinstance(config_file, str) else None,
        workspace=workspace if isinstance(workspace, dict) else None,
        skill=skill_of(run_dir),
        results={_name(line.result.key): line.result for line in lines},
        lines=tuple(lines),
    )


def _name(key: TrialKey) -> tuple[str, str, str, int]:
    """A suite may bear another name by now."""
    return key.case, key.runner, key.variant, key.number
