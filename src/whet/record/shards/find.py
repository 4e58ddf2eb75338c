"""Shards of a run: find and read their records, and say whether they belong together and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import RecordChanged, StoreError, UsageError
from whet.model import codec
from whet.model.run import TrialKey
from whet.reading.text import count, path_for_people, quoted
from whet.record.batches import find_batch, read_batch
from whet.record.folder import (
    BATCH_FILE,
    JOURNAL_FILE,
    RUN_FILE,
    SOURCES_FILE,
    file_hash,
    find_run_folder,
    is_locked,
)
from whet.record.journal.chain import is_done
from whet.record.results_file import ResultsFile
from whet.record.run_file import RunFile, ShardFacts, read_run_file, remove_places
from whet.record.sources import SourceFile
from whet.record.verify.recompute import Heads
from whet.record.verify.verify import check_each_line, verify

# How deep runs lie in a folder of artifacts: JOB/.whet/runs/RUN.
_DEEPEST = 5
_AUDIT = "audit"
_TAR = "if it was uploaded, pack it with tar: archives of other kinds lose modes and links"
_PARTIAL = "or merge what there is with --partial, and go on with it by --resume"


class ShardRun(Struct, frozen=True, kw_only=True, dict=True):
    """The record of a shard, whole as far as it goes."""

    folder: Path
    asked: RunFile
    shard: ShardFacts
    # How many lines its journal has, and the hash of the last.
    lines: int
    link: str | None
    done: int
    # By how many trials per case and arm it was made longer, each time.
    grown: tuple[int, ...]

    @property
    def title(self) -> str:
        """What it is called in messages."""
        place = path_for_people(self.folder, Path.cwd())
        return f"shard {self.typed_number(self.shard.number)}/{self.shard.of} ({place})"

    def typed_number(self, number: int) -> int:
        """Return the number that was typed for a shard of this suite; one of several suites has another of its own."""
        pile = self.asked.pile
        return number if pile is None else (number - self.shard.number + pile.number - 1) % self.shard.of + 1

    @property
    def missing(self) -> int:
        """How many of its trials have not ended."""
        return (self.asked.trials or 0) + sum(self.grown) * len(self.asked.plan) - self.done

    @cached_property
    def heads(self) -> Heads | None:
        """What its results say and the journal does not; None if they are not of all lines."""
        heads = None if self.missing > 0 else ResultsFile(self.folder).read(Heads)
        return heads if heads is not None and heads.record.lines == self.lines else None

    def of_all(self, value: Any) -> str:
        """Return *value* of its record as text that is the same on every machine."""
        return remove_places(codec.encode(value).decode(), self.shard.places)


def find_records(references: Iterable[str], output_dir: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders of runs that *references* name: runs, batches, or folders in which they lie.

    The second are those in such folders that are no shards, and that you did not name.
    """
    records: dict[Path, None] = {}
    skipped_records: dict[Path, None] = {}
    for reference in references:
        if not reference.strip():
            # An unset shell variable does not mean the current folder.
            raise UsageError("the name of a run must not be empty", hint="name a run folder, or a run id")
        batch = find_batch(reference, output_dir)
        if batch is not None:
            folders = [run for _, run in read_batch(batch)]
        elif Path(reference).is_dir() and not (Path(reference) / RUN_FILE).is_file():
            folders, runs = _shards_below(reference)
            skipped_records |= dict.fromkeys(runs)
        else:
            folders = [find_run_folder(reference, output_dir)]
        records |= dict.fromkeys(folders)
    return list(records), [path for path in skipped_records if path not in records]


def _shards_below(reference: str) -> tuple[list[Path], list[Path]]:
    """Return the shards below a folder, and the runs that are none; raises if there is no shard."""
    runs = dict(_below(Path(reference).resolve()))
    shards = [path for path, run_file in runs.items() if _is_shard(run_file)]
    non_shards = [path for path, run_file in runs.items() if not _is_shard(run_file) and not run_file.merged]
    if shards:
        return shards, non_shards
    if non_shards:
        raise UsageError(
            f"there is no shard in {reference}, only {count(len(non_shards), 'run')} of another kind",
            hint="name runs that were started with --shard",
        )
    if runs:
        raise UsageError(f"all that is in {reference} is merged already", hint="name the shards that were merged")
    raise UsageError(f"there is no run in {reference}", hint="name the folders of runs, or one above them")


def _is_shard(run_file: RunFile) -> bool:
    """Return whether it was run as a shard, by any version of whet."""
    dealt = run_file.shard is not None or run_file.selection.shard is not None
    return dealt and not run_file.merged and not run_file.regraded_from


def _below(folder: Path, depth: int = _DEEPEST) -> Iterator[tuple[Path, RunFile]]:
    """Yield the runs below *folder*; passes over links, such as `latest`, and controls."""
    for path in sorted(folder.iterdir()) if depth else ():
        if path.is_symlink() or not path.is_dir():
            continue
        if (path / RUN_FILE).is_file():
            run_file = read_run_file(path)
            if run_file.command != _AUDIT:
                yield path, run_file
        elif not (path / BATCH_FILE).is_file():
            yield from _below(path, depth - 1)


def read_shard(folder: Path) -> ShardRun:
    """Read the record of a shard; refuses one that was changed, and one that is none."""
    run_file, shard = read_run_file(folder), None
    if run_file.merged:
        raise UsageError(f"{folder} is merged already", hint="name the shards that it was merged from")
    if run_file.regraded_from:
        raise UsageError(
            f"{folder} regrades {run_file.regraded_from}",
            hint="merge the shards, and regrade what they are merged into",
        )
    shard = run_file.shard
    if shard is None:
        raise UsageError(f"{folder} is not a shard", hint="name runs that were started with --shard")
    if is_locked(folder):
        raise UsageError(f"{folder} is in use by another whet", hint="wait until it has ended")
    verification = verify(folder)
    if verification.problems:
        path, _, what = verification.problems[0].partition(": ")
        more = f", and {len(verification.problems) - 1} more" if len(verification.problems) > 1 else ""
        raise RecordChanged(
            f"{folder / path}: {what}{more}", hint=f"{_TAR}\nwhet verify {folder} lists all that does not fit"
        )
    keys: set[TrialKey] = set()
    extensions: list[int] = []
    for line in check_each_line(folder):
        keys |= {line.result.key} if is_done(line.result) else set()
        extensions += [line.grown] if line.grown else []
    return ShardRun(
        folder=folder,
        asked=run_file,
        shard=shard,
        lines=verification.lines,
        link=verification.link,
        done=len(keys),
        grown=tuple(extensions),
    )


def group_shards(runs: Sequence[ShardRun], free: Collection[str], *, partial: bool) -> dict[str, list[ShardRun]]:
    """Return the shards of each suite, in order, each once; refuses what does not belong together, or is missing.

    *free* are the settings that change no result.
    """
    first = runs[0]
    groups: dict[str, list[ShardRun]] = {}
    for run in runs:
        if run.asked.pile is None or first.asked.pile is None:
            if run.asked.pile is not first.asked.pile or run.asked.suite_digest != first.asked.suite_digest:
                raise _apart(first, run, f"they are runs of {first.asked.suite_path} and {run.asked.suite_path}")
        elif run.asked.pile.suites != first.asked.pile.suites:
            raise _apart(first, run, "they are shards of different suites")
        groups.setdefault(run.asked.pile.suite if run.asked.pile else "", []).append(run)
    names = first.asked.pile.suites if first.asked.pile else ("",)
    once = {name: _each_once(groups[name]) for name in names if name in groups}
    for group in once.values():
        for run in group[1:]:
            _refuse_other(group[0], run, free)
    if not partial:
        _refuse_missing(once, [name for name in names if name not in groups])
    return once


def _each_once(runs: Sequence[ShardRun]) -> list[ShardRun]:
    """Return each shard once, in order; of two copies of one record, the one that goes further."""
    shards: dict[int, ShardRun] = {}
    for run in runs:
        if run.shard.of != runs[0].shard.of:
            raise _apart(runs[0], run, f"the suite was dealt in {runs[0].shard.of} and in {run.shard.of} shards")
        twin = shards.setdefault(run.shard.number, run)
        if twin is run:
            continue
        shorter, longer = sorted((twin, run), key=lambda shard: (shard.lines, shard.heads is not None))
        if not _goes_on(shorter.folder, longer.folder):
            raise _apart(
                twin,
                run,
                "it is there twice, with different results",
                hint="name the one that counts, and leave the other out",
            )
        shards[run.shard.number] = longer
    return [shards[number] for number in sorted(shards)]


def _goes_on(shorter: Path, longer: Path) -> bool:
    """Return whether one record is a copy of the beginning of the other."""
    if file_hash(shorter / RUN_FILE) != file_hash(longer / RUN_FILE):
        return False
    journal = shorter / JOURNAL_FILE
    beginning = [line.raw for line in check_each_line(shorter)] if journal.exists() else []
    return all(raw == line.raw for raw, line in zip(beginning, check_each_line(longer), strict=False))


def _apart(first: ShardRun, second: ShardRun, why: str, hint: str | None = None) -> UsageError:
    return UsageError(
        f"{second.title} cannot be merged with {first.title}: {why}", hint=hint or "name the shards of one run"
    )


_Fact = Callable[[RunFile], Any]
# What shards of one run have in common, and what to say if they do not.
_COMMON: dict[str, _Fact] = {
    "their suites differ": lambda asked: (asked.suite, asked.suite_digest, asked.case_digests, asked.weights),
    "their skills differ": lambda asked: asked.skill_digest,
    "their arms differ": lambda asked: (asked.arm_facts, asked.baseline, asked.commits),
    "their selections differ": lambda asked: replace(asked.selection, shard=None),
    "their options differ": lambda asked: (
        *(asked.command, asked.model, asked.in_place, asked.fail_fast, asked.strict),
        asked.reading,
    ),
}


def _refuse_other(first: ShardRun, run: ShardRun, free: Collection[str]) -> None:
    """Refuse a shard whose results would mix two different things with those of the *first*."""
    for what, fact in _COMMON.items():
        if first.of_all(fact(first.asked)) != run.of_all(fact(run.asked)):
            raise _apart(first, run, what)
    for key, value, second_value in _settings(first, run):
        if value != second_value and key not in free:
            raise _apart(first, run, f"the setting {key} is {value} in one, and {second_value} in the other")
    if first.shard.content != run.shard.content:
        raise _apart(first, run, "they are parts of different plans")
    if source := next(_other_sources(first, run), None):
        raise _apart(first, run, f"agents did not start from the same {source}")
    if first.grown != run.grown:
        more = [f"by {count(sum(shard.grown), 'trial')}" if shard.grown else "by none" for shard in (first, run)]
        raise _apart(
            first,
            run,
            f"one was made longer {more[0]} per case and arm, the other {more[1]}",
            hint="make the other longer too: whet run --resume RUN --add-trials N",
        )
    if first.heads and run.heads and first.heads.sandbox != run.heads.sandbox:
        raise _apart(first, run, f"agents ran in the sandboxes {first.heads.sandbox} and {run.heads.sandbox}")


def _settings(first: ShardRun, run: ShardRun) -> Iterator[tuple[str, str, str]]:
    """Yield each setting of either shard, with its value in both."""
    values, second_values = (
        {row.key: remove_places(row.value, shard.shard.places) for row in shard.asked.settings}
        for shard in (first, run)
    )
    for key in values | second_values:
        yield key, values.get(key, "not set"), second_values.get(key, "not set")


def _other_sources(first: ShardRun, run: ShardRun) -> Iterator[str]:
    """Yield the files that agents of the two started from and that are not the same."""
    sources, second_sources = _sources(first), _sources(run)
    return (path for path in sorted({*sources, *second_sources}) if sources.get(path) != second_sources.get(path))


def _sources(run: ShardRun) -> dict[str, tuple[object, ...]]:
    if run.asked.sources is None:
        return {}
    try:
        files = codec.decode_file(run.folder / SOURCES_FILE, dict[str, SourceFile])
    except (OSError, codec.WireError) as error:
        raise StoreError(f"{run.folder / SOURCES_FILE} cannot be read: {error}") from error
    # A checkout gives new times to files, and its umask decides who else may read them.
    return {
        remove_places(path, run.shard.places): (source.mode & 0o100, source.size, source.digest)
        for path, source in files.items()
    }


def _refuse_missing(groups: dict[str, list[ShardRun]], unseen: Sequence[str]) -> None:
    """Refuse a merge of which something is missing: a whole shard, or trials of one."""
    first = next(iter(groups.values()))[0]
    numbers = {run.typed_number(run.shard.number) for group in groups.values() for run in group}
    missing: set[int] = set()
    for group in groups.values():
        shard = group[0].shard
        due = set(range(1, min(shard.of, shard.pieces) + 1))
        missing |= {group[0].typed_number(number) for number in due - {run.shard.number for run in group}}
    # Of a suite of which nothing is there, any of the others may have a part.
    missing |= set(range(1, first.shard.of + 1)) - numbers if unseen else set()
    if missing:
        names = quoted([f"{number}/{first.shard.of}" for number in sorted(missing)])
        of = f" (of {quoted(unseen)} there is none)" if unseen else ""
        raise UsageError(
            f"not all shards are there: {names} {'is' if len(missing) == 1 else 'are'} missing{of}",
            hint=f"run what is missing as the others, with --shard {min(missing)}/{first.shard.of}; {_PARTIAL}",
        )
    for run in (run for group in groups.values() for run in group if run.heads is None):
        left = f"{count(run.missing, 'trial')} of it {'is' if run.missing == 1 else 'are'} missing"
        raise UsageError(
            f"{run.title} is not finished: {left if run.missing > 0 else 'its results were not written'}",
            hint=f"finish it where it ran: whet {run.asked.command or 'run'} --resume {run.folder.name}; {_PARTIAL}",
        )
