"""The workspace of a recorded trial: as it was kept, or as the record can make it again, with what it then lacks."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from whet.agents.replay_player import lay
from whet.errors import WorkspaceError
from whet.grade.recorded import Gaps
from whet.model.changes import Changes
from whet.model.run import TrialResult
from whet.regrade.record import Record
from whet.workspace.copying import copy_tree
from whet.workspace.recording import RecordedChanges, read_changes

_UNKNOWN_CHANGES = "the run was made before changed files were recorded"
_DIFF_FILE = "diff.patch"


def lay_ground(record: Record, result: TrialResult, into: Path) -> tuple[Gaps, Changes]:
    """Make the folder *into* and fill it with what the trial left; what is missing of it, and what had changed."""
    into.mkdir()
    artifacts = record.run_dir / result.artifact_dir
    recorded = _known_changes(artifacts, result)
    changes = _changes(artifacts, recorded)
    unknown = None if recorded is not None else _UNKNOWN_CHANGES
    kept = record.run_dir / result.workspace_dir if result.workspace_dir else None
    if kept is not None and kept.is_dir():
        copy_tree(kept, into, force=True)
        return Gaps(changes=unknown), changes
    reason = next(_reasons(record, result, recorded), None)
    template = _template(record)
    if reason is None and template is not None:
        copy_tree(template, into)
    _lay(artifacts, into)
    return Gaps(workspace=reason, changes=unknown, paths=recorded.kept if recorded else ()), changes


def _known_changes(artifacts: Path, result: TrialResult) -> RecordedChanges | None:
    found = read_changes(artifacts)
    listed = 0 if found is None else len(found.created) + len(found.modified) + len(found.deleted)
    return found if listed == result.changed_files else None


def _changes(artifacts: Path, recorded: RecordedChanges | None) -> Changes:
    if recorded is None:
        return Changes()
    diff = artifacts / _DIFF_FILE
    return Changes(
        created=recorded.created,
        modified=recorded.modified,
        deleted=recorded.deleted,
        diff=diff.read_text(encoding="utf-8", errors="replace") if diff.is_file() else "",
    )


def _reasons(record: Record, result: TrialResult, recorded: RecordedChanges | None) -> Iterator[str]:
    """Why the workspace cannot be made again as it was."""
    if record.workspace is None:
        yield "the run does not say what its workspaces began as"
        return
    if record.workspace.get("mode") == "shared":
        yield "it was shared between trials"
    if record.workspace.get("bootstrap"):
        yield "what its bootstrap command wrote is not known"
    template = _template(record)
    if template is not None and not _untouched_since(template, result.started_at):
        yield f"its template {template} has changed since, or is gone"
    if recorded is None:
        yield _UNKNOWN_CHANGES
        return
    yield from (f"{path}: {reason}" for path, reason in recorded.missing.items())
    if recorded.git:
        yield "its .git folder is never recorded"


def _template(record: Record) -> Path | None:
    named = record.workspace.get("template_dir") if record.workspace else None
    return Path(named) if isinstance(named, str) else None


def _untouched_since(folder: Path, moment: str) -> bool:
    """Whether nothing in *folder* changed since; a copy of it counts as changed, because its times are new."""
    since_ns = int(datetime.fromisoformat(moment).timestamp() * 1e9)
    if not folder.is_dir():
        return False
    for place, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            found = os.lstat(f"{place}/{name}")
            if max(found.st_mtime_ns, found.st_ctime_ns) >= since_ns:
                return False
    return True


def _lay(artifacts: Path, into: Path) -> None:
    try:
        lay(artifacts, into)
    except (OSError, ValueError, tarfile.TarError) as error:
        raise WorkspaceError(f"the recorded changes in {artifacts} cannot be laid out again: {error}") from error
