"""Remove runs: none that is under way, none from the middle of a batch, and no half of one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from whet.errors import StoreError, UsageError
from whet.model import codec
from whet.record.batches import read_batch
from whet.record.folder import BATCH_FILE, LATEST, RUN_FILE, alone_in, is_locked, lock, point_latest
from whet.record.listing import batch_folders
from whet.record.read.run import run_folders
from whet.workspace.copy import remove_tree, tree_size

# Runs go there in one step before they are deleted, so that no list shows half of one.
_ON_THE_WAY_OUT = ".removed"


class SparedRun(Struct, frozen=True, kw_only=True):
    """A run that was not removed, and why."""

    run: str
    reason: str


class Removal(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/removal/1"):
    """What was removed, or would be, and what that frees; `whet runs remove --json` prints it."""

    removed: tuple[str, ...]
    spared: tuple[SparedRun, ...]
    bytes: int
    dry_run: bool = False


def foresee_removal(folders: Sequence[Path], output_dir: Path) -> Removal:
    """Return what removing *folders*, of runs and of batches, would do."""
    removable, spared = _sort(folders, output_dir)
    return Removal(
        removed=tuple(folder.name for folder in removable),
        spared=tuple(spared),
        bytes=sum(map(tree_size, removable)),
        dry_run=True,
    )


def remove_runs(folders: Sequence[Path], output_dir: Path) -> Removal:
    """Remove *folders*, of runs and of batches, and point `latest` at the newest that is left."""
    with alone_in(output_dir):
        # While we waited, another whet may have removed some of them.
        return _remove(list(filter(Path.exists, folders)), output_dir)


def _remove(folders: Sequence[Path], output_dir: Path) -> Removal:
    removable, spared = _sort(folders, output_dir)
    places = list(dict.fromkeys((output_dir, *(folder.parent for folder in removable))))
    for place in places:
        # What a removal left that was killed.
        remove_tree(place / _ON_THE_WAY_OUT)
    removed: list[str] = []
    freed = 0
    for folder in removable:
        try:
            size = _move_aside(folder)
        except (OSError, UsageError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            spared.append(SparedRun(run=folder.name, reason=f"cannot be removed: {why}"))
            continue
        removed.append(folder.name)
        freed += size
    for place in places:
        spared += (SparedRun(run=place.name, reason=problem) for problem in remove_tree(place / _ON_THE_WAY_OUT))
        _point_latest(place)
    return Removal(removed=tuple(removed), spared=tuple(spared), bytes=freed)


def _move_aside(folder: Path) -> int:
    """Move *folder* out of sight while it is locked, and return its size."""
    aside = folder.parent / _ON_THE_WAY_OUT
    descriptor = lock(folder)
    try:
        size = tree_size(folder)
        aside.mkdir(exist_ok=True)
        folder.rename(aside / folder.name)
    finally:
        os.close(descriptor)
    return size


def _sort(folders: Sequence[Path], output_dir: Path) -> tuple[list[Path], list[SparedRun]]:
    """Return what can be removed, batches with their runs, and what cannot."""
    members = {batch: [run for _, run in _runs_of(batch)] for batch in batch_folders(output_dir)}
    chosen = dict.fromkeys(folder.resolve() for folder in folders)
    removable: dict[Path, None] = {}
    spared: list[SparedRun] = []
    for folder in chosen:
        if folder in removable:
            continue
        batch = next((batch for batch, runs in members.items() if folder in (batch.resolve(), *runs)), None)
        unit = [folder] if batch is None else [*members[batch], batch.resolve()]
        reason = _why_not(unit, chosen, batch)
        if reason is None:
            removable.update(dict.fromkeys(unit))
        else:
            spared.append(SparedRun(run=folder.name, reason=reason))
    return list(removable), spared


def _runs_of(batch: Path) -> Iterator[tuple[str, Path]]:
    # A batch that lost a run is removed with those that it has.
    with suppress(StoreError):
        yield from read_batch(batch)


def _why_not(unit: Sequence[Path], chosen: Iterable[Path], batch: Path | None) -> str | None:
    if not all(map(_is_ours, unit)):
        return "is not the record of a run"
    if any(is_locked(folder) for folder in unit):
        return "is under way"
    names = set(chosen)
    if batch is not None and batch.resolve() not in names and not names.issuperset(unit[:-1]):
        return f"belongs to {batch.name}, a run of several suites: remove that one"
    return None


def _is_ours(folder: Path) -> bool:
    """Return whether whet wrote a folder, in whatever format; other tools have files called run.json too."""
    for name in (RUN_FILE, BATCH_FILE):
        with suppress(OSError, codec.WireError):
            return (codec.decode_file(folder / name, _SchemaName).schema or "").startswith("whet/")
    return False


class _SchemaName(Struct):
    schema: str | None = None


def _point_latest(output_dir: Path) -> None:
    """Let `latest` lead to the newest that is left, if it led to what is gone."""
    link = output_dir / LATEST
    if not link.is_symlink() or link.exists():
        return
    remaining = sorted((*run_folders(output_dir), *batch_folders(output_dir)))
    if remaining:
        point_latest(remaining[-1])
    else:
        link.unlink()
