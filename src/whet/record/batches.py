"""Batches: the runs that one command started, one for each suite, and how to find them again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from os.path import relpath
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import StoreError
from whet.model import codec
from whet.model.comparison import ArmSamples, RunSamples, Sampled
from whet.reading.text import count
from whet.record.folder import BATCH_FILE, PRIVATE, RUN_FILE, find_run_folder, write_atomically, writing
from whet.record.read.run import RecordedRun, read_run
from whet.record.run_file import RunFile

_RESTORE = "restore it, or name the runs that you have one by one"


class BatchedRun(Struct, frozen=True, kw_only=True):
    """One run of a batch: what its cases are called by in the batch, and its folder, seen from that of the batch."""

    name: str
    folder: str


class Batch(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/batch/1"):
    """What batch.json says."""

    runs: tuple[BatchedRun, ...] = ()


def write_batch(folder: Path, runs: Sequence[tuple[str, Path]]) -> None:
    """Note in *folder* which runs belong together, each with its name."""
    entries = tuple(BatchedRun(name=name, folder=relpath(run, folder)) for name, run in runs)
    with writing(folder):
        write_atomically(folder / BATCH_FILE, codec.encode_pretty(Batch(runs=entries)), mode=PRIVATE)


def find_batch(reference: str, output_dir: Path) -> Path | None:
    """Return the folder of the batch that *reference* names, or None if it names none."""
    folders = (folder for folder in (output_dir / reference, Path(reference)) if (folder / BATCH_FILE).is_file())
    folder_path = next(folders, None)
    return folder_path.resolve() if folder_path else None


def read_batch(folder: Path) -> list[tuple[str, Path]]:
    """Return the runs of the batch in *folder*, each with its name; raises `StoreError` if one is not there."""
    path = folder / BATCH_FILE
    try:
        batch = codec.decode_file(path, Batch)
    except (OSError, codec.WireError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    names: dict[Path, str] = {}
    for run in batch.runs:
        place = (folder / run.folder).resolve()
        if place in names:
            raise StoreError(f"{path} names the run {place} twice", hint=_RESTORE)
        if not (place / RUN_FILE).is_file():
            raise StoreError(f"{path} names the run {place}, which does not exist", hint=_RESTORE)
        names[place] = run.name
    if not names:
        raise StoreError(f"{path} names no runs", hint=_RESTORE)
    return [(name, place) for place, name in names.items()]


def find_runs(reference: str, output_dir: Path) -> list[Path]:
    """Return the folder of the run that *reference* names, or those of all runs of a batch."""
    batch = find_batch(reference, output_dir)
    return [run for _, run in read_batch(batch)] if batch else [find_run_folder(reference, output_dir)]


class RecordedBatch(Struct, frozen=True, kw_only=True):
    """The runs of a batch, read as one; its cases are called `NAME/CASE`."""

    run_dir: Path
    runs: tuple[tuple[str, RecordedRun], ...]

    @property
    def asked(self) -> RunFile:
        """What its runs were asked, as far as one word fits all."""
        digests = "".join(str(run.asked.suite_digest) for _, run in self.runs)
        digest = hashlib.sha256(digests.encode()).hexdigest()
        return RunFile(suite=count(len(self.runs), "suite"), suite_digest=digest)

    def refuse_empty(self) -> None:
        """Refuse a batch in which no trial has ended."""
        if not any(run.lines for _, run in self.runs):
            self.runs[0][1].refuse_empty()

    def samples(self) -> RunSamples:
        """Return what the trials of all its runs say in a comparison; runs without arms have no part in it."""
        samples = [(name, run.samples()) for name, run in self.runs if run.lines]
        parts = [(name, part) for name, part in samples if len(part.names) > 1] or samples
        trials: dict[tuple[str, str], list[Sampled]] = {}
        for name, part in parts:
            for arm in part.arms:
                own = (replace(trial, case=f"{name}/{trial.case}") for trial in arm.trials)
                trials.setdefault((arm.arm, arm.runner), []).extend(own)
        first = parts[0][1]
        return RunSamples(
            name=self.run_dir.name,
            arms=tuple(ArmSamples(arm=arm, runner=runner, trials=tuple(own)) for (arm, runner), own in trials.items()),
            weights={f"{name}/{case}": weight for name, part in parts for case, weight in part.weights.items()},
            digests={f"{name}/{case}": digest for name, part in parts for case, digest in part.digests.items()},
            splits={f"{name}/{case}": split for name, part in parts for case, split in part.splits.items()},
            edited=tuple(f"{name}/{case}" for name, part in parts for case in part.edited),
            grown_from=tuple(sorted({size for _, part in parts for size in part.grown_from})),
            interleaved=all(part.interleaved for _, part in parts),
            # One setting for all of its runs.
            judge_error=first.judge_error,
            runs=tuple(run for _, part in parts for run in part.runs),
            selected_from=tuple(run for _, part in parts for run in part.selected_from),
            alike=first.alike,
            unfinished=(self.run_dir.name,) if any(run.missing > 0 for _, run in self.runs) else (),
            notes=tuple(dict.fromkeys((*(note for _, part in parts for note in part.notes), *self._unbegun()))),
        )

    def _unbegun(self) -> Iterator[str]:
        for name, run in self.runs:
            if not run.lines:
                yield f"the batch is not finished: no trial of {name} has ended"


def read_recorded(reference: str, output_dir: Path) -> RecordedRun | RecordedBatch:
    """Read the run or the batch that *reference* names."""
    batch = find_batch(reference, output_dir)
    if batch is None:
        return read_run(find_run_folder(reference, output_dir))
    return RecordedBatch(run_dir=batch, runs=tuple((name, read_run(run)) for name, run in read_batch(batch)))
