"""The record that is regraded: an earlier run, its results by trial, and what its workspaces began as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet import wire
from whet.errors import StoreError, UsageError
from whet.model.run import TrialKey, TrialResult
from whet.model.session import SessionSummary
from whet.store.chain import Line
from whet.store.folder import read_run_file
from whet.store.history import skill_of
from whet.store.verifying import check_files, check_journal

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
