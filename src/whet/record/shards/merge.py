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
from dataclasses import replace
from itertools import count
from pathlib import Path

from msgspec import structs

from whet.dataclass import dataclass
from whet.errors import RecordChanged, StoreError, WorkspaceError
from whet.ground.copying import copy_tree, remove_tree
from whet.model.run import RunInfo, TrialResult
from whet.model.suite import WorkspaceSpec
from whet.reading.files import read_file
from whet.record.chain import Line, changed
from whet.record.folder import (
    JOURNAL_FILE,
    RUN_FILE,
    SKILLS_FILE,
    SOURCES_FILE,
    SPENT_FILE,
    create_run_folder,
    file_hash,
    open_new,
)
from whet.record.inside import is_inside
from whet.record.journal import FREE_SPACE, Journal, Spent
from whet.record.notes import NOTES_FILE, read_notes
from whet.record.recomputing import HeadOfCase, Heads, plan_of
from whet.record.results import JournalResults, write_results
from whet.record.run_file import MergedFrom, RunFile, write_run_file
from whet.record.sealing import trial_folder
from whet.record.shards import ShardRun
from whet.record.verifying import check_each_line, verify
from whet.version import __version__

_PREFIX = ".merge-"
_WORKSPACES, _IMAGES = "workspaces", "images"
_NUMBERED = re.compile(r"(.+?)(?:-\d+)?(\.[^.]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A record that shards were merged into; `results` are those of a run that is finished."""

    info: RunInfo
    asked: RunFile
    shards: tuple[ShardRun, ...]
    results: JournalResults | None
    trials: int

    def in_place(self, output_dir: Path) -> Merged:
        """Move the record to *output_dir*, in one step."""
        place = output_dir / self.info.run_dir.name
        self.info.run_dir.rename(place)
        return replace(self, info=replace(self.info, run_dir=place))


@contextmanager
def merging_in(output_dir: Path) -> Iterator[Path]:
    """Make a folder in *output_dir* for records that are not whole yet, and remove it in the end."""
    # Whether runs can be kept there at all.
    create_run_folder(output_dir).rmdir()
    for left in output_dir.glob(f"{_PREFIX}*"):
        _remove_abandoned(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=output_dir))
    held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield folder
    finally:
        remove_tree(folder)
        os.close(held)


def _remove_abandoned(folder: Path) -> None:
    """Remove what a merge left that was killed; one that is under way holds its folder."""
    with suppress(OSError):
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(folder)
        finally:
            os.close(held)


def write_merged(shards: Sequence[ShardRun], into: Path) -> Merged:
    """Write the record of all *shards*, which belong together, to a new folder in *into*, and verify it."""
    run_dir = create_run_folder(into)
    asked = _asked(shards)
    for name in (SOURCES_FILE, SKILLS_FILE):
        if (shards[0].folder / name).exists():
            shutil.copyfile(shards[0].folder / name, run_dir / name)
    write_run_file(run_dir, asked)
    for shard in shards:
        _copy_trials(shard, run_dir)
        _append_lines(shard.folder / SPENT_FILE, run_dir / SPENT_FILE)
        # What cannot be read as notes is said before it is copied.
        read_notes(shard.folder)
        _append_lines(shard.folder / NOTES_FILE, run_dir / NOTES_FILE)
        _copy_apart(shard.folder / _IMAGES, run_dir / _IMAGES)
    kept = _copy_shared(shards, run_dir)
    journal = _write_journal(shards, run_dir)
    merged = _with_results(shards, asked, run_dir, journal, kept)
    found = verify(run_dir)
    if found.problems:
        raise RecordChanged(
            f"the shards changed while they were merged, and nothing was written: {found.problems[0]}",
            hint="merge them again when nothing else writes to them",
        )
    return merged


def _asked(shards: Sequence[ShardRun]) -> RunFile:
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
        shard=None,
        pile=None,
        merged=tuple(
            MergedFrom(
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
    planned = {line.rpartition(" x")[0] for line in shard.asked.plan}
    for line in check_each_line(shard.folder):
        key = line.result.key
        if f"{key.case}@{key.runner}/{key.arm}" not in planned:
            raise _foreign(shard, line, f"is about {key}, which this shard was not asked")
        for where in _folders(line.result):
            source = shard.folder / where
            if not is_inside(where) or source.resolve() != shard.folder.resolve() / where:
                raise _foreign(shard, line, f"names {where}, which is not in the record")
            if source.is_dir() and not (run_dir / where).exists():
                _copy(source, run_dir / where)


def _folders(result: TrialResult) -> list[str]:
    """Return the folder of all attempts, and those of kept workspaces."""
    kept = (attempt.workspace_dir for attempt in result.attempts)
    return [trial_folder(result), *filter(None, (result.workspace_dir, *kept))]


def _foreign(shard: ShardRun, line: Line, what: str) -> RecordChanged:
    return changed(shard.folder / JOURNAL_FILE, f"line {line.number} {what}", shard.folder)


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


def _copy_apart(source: Path, target: Path, renamed: dict[str, str] | None = None) -> None:
    """Copy what is in a folder, under other names if there is something of the same name; notes them in *renamed*."""
    for path in sorted(source.iterdir()) if source.is_dir() and not source.is_symlink() else ():
        target.mkdir(exist_ok=True)
        copy = next(each for each in (target / name for name in _names(path.name)) if not os.path.lexists(each))
        if path.is_dir() and not path.is_symlink():
            _copy(path, copy)
        else:
            shutil.copy2(path, copy, follow_symlinks=False)
        if renamed is not None:
            renamed[path.name] = copy.name


def _names(name: str) -> Iterator[str]:
    """Yield *name*, and then the same with numbers, as whet numbers shared workspaces."""
    yield name
    found = _NUMBERED.fullmatch(name)
    base, suffix = (found[1], found[2] or "") if found else (name, "")
    yield from (f"{base}-{number}{suffix}" for number in count(2))


def _copy_shared(shards: Sequence[ShardRun], run_dir: Path) -> dict[str, str]:
    """Copy the workspaces that trials shared, each shard's own; return their hashes, by their new paths."""
    if (shards[0].asked.workspace or {}).get("mode") != "shared":
        return {}
    hashes: dict[str, str] = {}
    for shard in shards:
        renamed: dict[str, str] = {}
        _copy_apart(shard.folder / _WORKSPACES, run_dir / _WORKSPACES, renamed)
        known = shard.heads.record.workspaces if shard.heads else {}
        for old, new in renamed.items():
            listed = shard.folder / f"{old}.json"
            if listed.is_file():
                shutil.copyfile(listed, run_dir / f"{new}.json")
            if due := known.get(f"{_WORKSPACES}/{old}"):
                hashes[f"{_WORKSPACES}/{new}"] = due
    return hashes


def _write_journal(shards: Sequence[ShardRun], run_dir: Path) -> Journal:
    """Write the lines of all shards as one chain: first those of the plan, then those of each time it grew."""
    journal = Journal(run_dir / JOURNAL_FILE)
    for stage, grown in enumerate((None, *shards[0].grown)):
        if grown:
            journal.grow(grown)
        for shard in shards:
            reached = 0
            for line in check_each_line(shard.folder):
                reached += bool(line.grown)
                if reached == stage:
                    journal.append(line.result, line.files)
    journal.sync()
    return journal


def _with_results(
    shards: Sequence[ShardRun], asked: RunFile, run_dir: Path, journal: Journal, kept: dict[str, str]
) -> Merged:
    """Write results.json if every trial has ended: those of an unfinished run come with its resume."""
    found = [shard.heads for shard in shards if shard.heads]
    whole = len(found) == len(shards) and sum(shard.done for shard in shards) >= _due(asked, shards)
    first = found[0] if found else None
    origins = (row.origin for row in asked.settings)
    info = RunInfo(
        run_id=run_dir.name,
        run_dir=run_dir,
        suite=asked.suite or "",
        suite_path=Path(asked.suite_path or ""),
        started_at=min((heads.started_at for heads in found), default=""),
        sandbox=first.sandbox if first else "",
        version=__version__,
        command=asked.command or "run",
        settings_files=tuple(Path(name) for name in dict.fromkeys(origins) if name.endswith(".toml")),
    )
    results = None
    if whole and first:
        plan, snapshots = plan_of(structs.replace(first, cases=_cases(found, asked), voided=asked.voided))
        begun = _workspace(asked)
        plan = replace(plan, executions=tuple(replace(each, workspace=begun) for each in plan.executions))
        results = JournalResults(
            plan,
            journal,
            # They may have run side by side.
            max(heads.duration_s for heads in found),
            snapshots,
            beside=Spent(run_dir / SPENT_FILE).spending,
            workspaces=kept,
        )
        write_results(info, results, interrupted=False, ended_at=max(heads.ended_at for heads in found))
    return Merged(info=info, asked=asked, shards=tuple(shards), results=results, trials=len(journal))


def _workspace(asked: RunFile) -> WorkspaceSpec:
    """Return what workspaces began as, for reporters."""
    facts = asked.workspace or {}
    mode, cwd, template = (facts.get(name) for name in ("mode", "cwd", "template_dir"))
    return WorkspaceSpec(
        mode="shared" if mode == "shared" else "isolated",
        cwd=Path(cwd) if cwd else None,
        template_dir=Path(template) if template else None,
    )


def _due(asked: RunFile, shards: Sequence[ShardRun]) -> int:
    """Return how many trials all shards together have."""
    return (asked.trials or 0) + sum(shards[0].grown) * len(asked.plan)


def _cases(found: Sequence[Heads], asked: RunFile) -> tuple[HeadOfCase, ...]:
    """Return the cases of all shards in declared order, with all their executions."""
    order = {line.rpartition(" x")[0]: number for number, line in enumerate(asked.plan)}
    executions = sorted(
        ((case, each) for heads in found for case in heads.cases for each in case.executions),
        key=lambda pair: order[f"{pair[0].id}@{pair[1].runner}/{pair[1].arm}"],
    )
    cases = {case.id: case for case, _ in executions}
    return tuple(
        structs.replace(case, executions=tuple(each for own, each in executions if own.id == name))
        for name, case in cases.items()
    )
