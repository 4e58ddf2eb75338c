"""Earlier runs: what did not go as expected the last time."""

from __future__ import annotations

from pathlib import Path

from whet import wire
from whet.errors import StoreError, UsageError
from whet.model.run import TrialResult
from whet.store.folder import JOURNAL_FILE, RUN_FILE, read_run_file


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
        (result.key.case, result.key.runner, result.key.variant)
        for result in finished(folder / JOURNAL_FILE)
        if not result.passed
    )
    if not failed:
        raise UsageError(f"nothing failed in the last run ({folder.name})", hint="leave out --last-failed")
    return failed


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


def finished(journal: Path) -> list[TrialResult]:
    """The results in a journal, in the order in which trials ended."""
    if not journal.exists():
        return []
    try:
        lines = journal.read_bytes().split(b"\n")
        # The last piece is empty, or a line that a crash cut off.
        return [wire.decode(line, TrialResult) for line in lines[:-1]]
    except (OSError, wire.WireError) as error:
        raise StoreError(f"{journal} cannot be read: {error}", hint="start a new run") from error
