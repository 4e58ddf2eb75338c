"""What an agent changed in its files, as the record of a trial holds it."""

from __future__ import annotations

from pathlib import Path

from whet.model.grade import Changes
from whet.model.run import TrialResult
from whet.reading.files import read_file
from whet.record.read.run import RecordedRun
from whet.workspace.changes import RecordedChanges, read_changes

_DIFF_FILE = "diff.patch"


def changes_of(record: RecordedRun, result: TrialResult) -> Changes:
    """Return what had changed in the workspace of a trial."""
    artifacts = record.run_dir / result.artifact_dir
    return read_recorded_changes(artifacts, known_changes(artifacts, result))


def known_changes(artifacts: Path, result: TrialResult) -> RecordedChanges | None:
    """Return the recorded list of changed files; None if it has not as many as the trial had."""
    change_record = read_changes(artifacts)
    file_count = (
        0
        if change_record is None
        else len(change_record.created) + len(change_record.modified) + len(change_record.deleted)
    )
    return change_record if file_count == result.changed_files else None


def read_recorded_changes(artifacts: Path, change_record: RecordedChanges | None) -> Changes:
    """Return the changes in a list with their diff; none without a list."""
    if change_record is None:
        return Changes()
    diff = artifacts / _DIFF_FILE
    return Changes(
        created=change_record.created,
        modified=change_record.modified,
        deleted=change_record.deleted,
        diff=read_file(diff).decode("utf-8", "replace") if diff.is_file() else "",
    )
