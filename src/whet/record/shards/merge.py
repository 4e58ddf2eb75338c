"""Write the records of shards as one: one journal with one chain, the files of all trials, and the results.

A new record is made in a folder that nothing takes for a run, is verified there, and is moved to its place in one
step. A merge that was killed leaves such a folder, and the next one removes it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from msgspec import Struct, structs
from msgspec.structs import replace

from whet.errors import RecordChanged, StoreError, WorkspaceError
from whet.model.run import RunInfo, TrialResult
from whet.model.suite import WorkspaceSpec
from whet.reading.files import read_file
from whet.record.file_hashes import trial_folder
from whet.record.folder import (
    CONTENTS_FILE,
    JOURNAL_FILE,
    RUN_FILE,
    SOURCES_FILE,
    SPENT_FILE,
    create_run_folder,
    file_hash,
    open_new,
)
from whet.record.journal.chain import JournalLine, change_error
from whet.record.journal.journal import FREE_SPACE, Journal, SpendingFile
from whet.record.notes import NOTES_FILE, read_notes
from whet.record.results import JournalResults, write_results
from whet.record.run_file import RunFile, ShardOrigin, write_run_file
from whet.record.safe_open import is_inside
from whet.record.shards.find import ShardRun
from whet.record.verify.recompute import HeadOfCase, Heads, plan_of
from whet.record.verify.verify import check_each_line, verify
from whet.version import __version__
from whet.workspace.copy import copy_tree, remove_tree

_PREFIX = ".merge-"
_WORKSPACES, _IMAGES = "workspaces", "images"
_NUMBERED = re.compile(r"(.+?)(?:-\d+)?(\.[^.]*)?")


class MergedRecord(Struct, frozen=True, kw_only=True):
    """A record that shards were merged into; `results` are those of a run that is finished."""

    info: RunInfo
    asked: RunFile
    shards: tuple[ShardRun, ...]
    results: JournalResults | None
    trials: int

    def in_place(self, output_dir: Path) -> MergedRecord:
        """Move the record to *output_dir*, in one step."""
        place = output_dir / self.info.run_dir.name
        self.info.run_dir.rename(place)
        return replace(self, info=replace(self.info, run_dir=place))


@contextmanager
def merge_folder(output_dir: Path) -> Iterator[Path]:
    """Make a folder in *output_dir* for records that are not whole yet, and remove it in the end."""
    # Whether runs can be kept there at all.
    create_run_folder(output_dir).rmdir()
    for left in output_dir.glob(f"{_PREFIX}*"):
        _remove_abandoned(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=output_dir))
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        remove_tree(folder)
        os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    """Remove what a merge left that was killed; one that is under way holds its folder."""
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(folder)
        finally:
            os.close(lock)


def write_merged(shards: Sequence[ShardRun], into: Path) -> MergedRecord:
    """Write the record of all *shards*, which belong together, to a new folder in *into*, and verify it."""
    run_dir = create_run_folder(into)
    run_file = _merge_run_files(shards)
    for name in (SOURCES_FILE, CONTENTS_FILE):
        if (shards[0].folder / name).exists():
            shutil.copyfile(shards[0].folder / name, run_dir / name)
    write_run_file(run_dir, run_file)
    for shard in shards:
        _copy_trials(shard, run_dir)
        _append_lines(shard.folder / SPENT_FILE, run_dir / SPENT_FILE)
        # What cannot be read as notes is said before it is copied.
        read_notes(shard.folder)
        _append_lines(shard.folder / NOTES_FILE, run_dir / NOTES_FILE)
        _copy_apart(shard.folder / _IMAGES, run_dir / _IMAGES)
    hashes = _copy_shared(shards, run_dir)
    journal = _write_journal(shards, run_dir)
    record = _with_results(shards, run_file, run_dir, journal, hashes)
    verification = verify(run_dir)
    if verification.problems:
        raise RecordChanged(
            f"the shards changed while they were merged, and nothing was written: {verification.problems[0]}",
            hint="merge them again when nothing else writes to them",
        )
    return record


def _merge_run_files(shards: Sequence[ShardRun]) -> RunFile:
    """Return what all shards together were asked; what differs by machine is that of the first."""
    first = shards[0]
    return structs.replace(
        first.asked,
        selection=replace(first.asked.selection, shard=None),
        trials=first.shard.trials,
        plan=first.shard.plan,
        fingerprint=first.shard.fingerprint,
        # A case whose executions are in two shards may be void in one of them only.
        voided={case: by for shard in reversed(shards) for case, by in shard.asked.voided.items()},
        warnings=tuple(dict.fromkeys(warning for shard in shards for warning in shard.asked.warnings)),
        shard=None,
        pile=None,
        merged=tuple(
            ShardOrigin(
                run=shard.folder.name,
                shard=shard.shard.number,
                seed=shard.asked.seed,
                whet_version=shard.asked.whet_version,
                run_hash=file_hash(shard.folder / RUN_FILE),
                lines=shard.lines,
                hash=shard.link,
            )
            for shard in shards
        ),
    )


def _copy_trials(shard: ShardRun, run_dir: Path) -> None:
    executions = {line.rpartition(" x")[0] for line in shard.asked.plan}
    for line in check_each_line(shard.folder):
        key = line.result.key
        if f"{key.case}@{key.runner}/{key.arm}" not in executions:
            raise _foreign(shard, line, f"is about {key}, which this shard was not asked")
        for where in _folders(line.result):
            source = shard.folder / where
            if not is_inside(where) or source.resolve() != shard.folder.resolve() / where:
                raise _foreign(shard, line, f"names {where}, which is not in the record")
            if source.is_dir() and not (run_dir / where).exists():
                _copy(source, run_dir / where)


def _folders(result: TrialResult) -> list[str]:
    """Return the folder of all attempts, and those of kept workspaces."""
    workspaces = (attempt.workspace_dir for attempt in result.attempts)
    return [trial_folder(result), *filter(None, (result.workspace_dir, *workspaces))]


def _foreign(shard: ShardRun, line: JournalLine, what: str) -> RecordChanged:
    return change_error(shard.folder / JOURNAL_FILE, f"line {line.number} {what}", shard.folder)


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    try:
        copy_tree(source, target, force=True)
    except WorkspaceError as error:
        raise StoreError(f"{source}: {error.message}", hint=FREE_SPACE) from error


def _append_lines(source: Path, target: Path) -> None:
    """Append the whole lines of one file to another; the last one may have been cut off."""
    if source.is_file() and not source.is_symlink():
        before = read_file(target) if target.exists() else b""
        with open_new(target) as file:
            file.write(before + b"".join(line for line in read_file(source).splitlines(True) if line.endswith(b"\n")))


def _copy_apart(source: Path, target: Path, new_names: dict[str, str] | None = None) -> None:
    """Copy what is in a folder, under other names if there is something of the same name; notes them in *new_names*."""
    for path in sorted(source.iterdir()) if source.is_dir() and not source.is_symlink() else ():
        target.mkdir(exist_ok=True)
        copy = next(place for place in (target / name for name in _names(path.name)) if not os.path.lexists(place))
        if path.is_dir() and not path.is_symlink():
            _copy(path, copy)
        else:
            shutil.copy2(path, copy, follow_symlinks=False)
        if new_names is not None:
            new_names[path.name] = copy.name


def _names(name: str) -> Iterator[str]:
    """Yield *name*, and then the same with numbers, as whet numbers shared workspaces."""
    yield name
    match = _NUMBERED.fullmatch(name)
    base, suffix = (match[1], match[2] or "") if match else (name, "")
    yield from (f"{base}-{number}{suffix}" for number in count(2))


def _copy_shared(shards: Sequence[ShardRun], run_dir: Path) -> dict[str, str]:
    """Copy the workspaces that trials shared, each shard's own; return their hashes, by their new paths."""
    if (shards[0].asked.workspace or {}).get("mode") != "shared":
        return {}
    hashes: dict[str, str] = {}
    for shard in shards:
        new_names: dict[str, str] = {}
        _copy_apart(shard.folder / _WORKSPACES, run_dir / _WORKSPACES, new_names)
        known_hashes = shard.heads.record.workspaces if shard.heads else {}
        for old, new in new_names.items():
            list_file = shard.folder / f"{old}.json"
            if list_file.is_file():
                shutil.copyfile(list_file, run_dir / f"{new}.json")
            if due := known_hashes.get(f"{_WORKSPACES}/{old}"):
                hashes[f"{_WORKSPACES}/{new}"] = due
    return hashes


def _write_journal(shards: Sequence[ShardRun], run_dir: Path) -> Journal:
    """Write the lines of all shards as one chain: first those of the plan, then those of each time it grew."""
    journal = Journal(run_dir / JOURNAL_FILE)
    for stage, trials in enumerate((None, *shards[0].grown)):
        if trials:
            journal.grow(trials)
        for shard in shards:
            passed_stages = 0
            for line in check_each_line(shard.folder):
                passed_stages += bool(line.grown)
                if passed_stages == stage:
                    journal.append(line.result, line.files)
    journal.sync()
    return journal


def _with_results(
    shards: Sequence[ShardRun], run_file: RunFile, run_dir: Path, journal: Journal, hashes: dict[str, str]
) -> MergedRecord:
    """Write results.json if every trial has ended: those of an unfinished run come with its resume."""
    heads_of_shards = [shard.heads for shard in shards if shard.heads]
    is_finished = len(heads_of_shards) == len(shards) and sum(shard.done for shard in shards) >= _due(run_file, shards)
    first = heads_of_shards[0] if heads_of_shards else None
    origins = (row.origin for row in run_file.settings)
    info = RunInfo(
        run_id=run_dir.name,
        run_dir=run_dir,
        suite=run_file.suite or "",
        suite_path=Path(run_file.suite_path or ""),
        started_at=min((heads.started_at for heads in heads_of_shards), default=""),
        sandbox=first.sandbox if first else "",
        version=__version__,
        command=run_file.command or "run",
        settings_files=tuple(Path(name) for name in dict.fromkeys(origins) if name.endswith(".toml")),
    )
    results = None
    if is_finished and first:
        plan, snapshots = plan_of(
            structs.replace(
                first,
                cases=_cases(heads_of_shards, run_file),
                voided=run_file.voided,
                warnings=run_file.warnings,
            )
        )
        workspace = _workspace(run_file)
        plan = replace(plan, executions=tuple(replace(execution, workspace=workspace) for execution in plan.executions))
        results = JournalResults(
            plan,
            journal,
            # Shards may have run side by side.
            max(heads.duration_s for heads in heads_of_shards),
            snapshots,
            beside=SpendingFile(run_dir / SPENT_FILE).spending,
            workspaces=hashes,
        )
        write_results(info, results, interrupted=False, ended_at=max(heads.ended_at for heads in heads_of_shards))
    return MergedRecord(info=info, asked=run_file, shards=tuple(shards), results=results, trials=len(journal))


def _workspace(run_file: RunFile) -> WorkspaceSpec:
    """Return what workspaces began as, for reporters."""
    facts = run_file.workspace or {}
    mode, cwd, template = (facts.get(name) for name in ("mode", "cwd", "template_dir"))
    return WorkspaceSpec(
        mode="shared" if mode == "shared" else "isolated",
        cwd=Path(cwd) if cwd else None,
        template_dir=Path(template) if template else None,
    )


def _due(run_file: RunFile, shards: Sequence[ShardRun]) -> int:
    """Return how many trials all shards together have."""
    return (run_file.trials or 0) + sum(shards[0].grown) * len(run_file.plan)


def _cases(heads_of_shards: Sequence[Heads], run_file: RunFile) -> tuple[HeadOfCase, ...]:
    """Return the cases of all shards in declared order, with all their executions."""
    order = {line.rpartition(" x")[0]: number for number, line in enumerate(run_file.plan)}
    executions = sorted(
        ((case, execution) for heads in heads_of_shards for case in heads.cases for execution in case.executions),
        key=lambda pair: order[f"{pair[0].id}@{pair[1].runner}/{pair[1].arm}"],
    )
    cases = {case.id: case for case, _ in executions}
    return tuple(
        structs.replace(case, executions=tuple(execution for owner, execution in executions if owner.id == name))
        for name, case in cases.items()
    )
