"""Shards of a run: find and read their records, and say whether they belong together and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import RecordChanged, StoreError, UsageError
from whet.model import wire
from whet.model.run import TrialKey
from whet.reading.text import count, path_for_people, quoted
from whet.record.batches import find_batch, read_batch
from whet.record.chain import is_done
from whet.record.folder import (
    BATCH_FILE,
    JOURNAL_FILE,
    RESULTS_FILE,
    RUN_FILE,
    SOURCES_FILE,
    file_hash,
    find_run_folder,
    is_locked,
)
from whet.record.recomputing import Heads
from whet.record.run_file import RunFile, ShardFacts, placeless, read_run_file
from whet.record.sources import Source
from whet.record.verifying import check_each_line, verify

# How deep runs lie in a folder of artifacts: JOB/.whet/runs/RUN.
_DEEPEST = 5
_AUDIT = "audit"
_TAR = "if it was uploaded, pack it with tar: archives of other kinds lose modes and links"
_PARTIAL = "or merge what there is with --partial, and go on with it by --resume"


@dataclass(frozen=True, kw_only=True)
class ShardRun:
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
        path = self.folder / RESULTS_FILE
        if self.missing > 0 or not path.exists():
            return None
        heads = wire.decode_file(path, Heads)
        return heads if heads.record.lines == self.lines else None

    def of_all(self, value: Any) -> str:
        """Return *value* of its record as text that is the same on every machine."""
        return placeless(wire.encode(value).decode(), self.shard.places)


def find_records(references: Iterable[str], output_dir: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders of runs that *references* name: runs, batches, or folders in which they lie.

    The second are those in such folders that are no shards, and that you did not name.
    """
    found: dict[Path, None] = {}
    passed: dict[Path, None] = {}
    for reference in references:
        if not reference.strip():
            # An unset shell variable does not mean the current folder.
            raise UsageError("the name of a run must not be empty", hint="name a run folder, or a run id")
        batch = find_batch(reference, output_dir)
        if batch is not None:
            folders = [run for _, run in read_batch(batch)]
        elif Path(reference).is_dir() and not (Path(reference) / RUN_FILE).is_file():
            folders, others = _shards_below(reference)
            passed |= dict.fromkeys(others)
        else:
            folders = [find_run_folder(reference, output_dir)]
        found |= dict.fromkeys(folders)
    return list(found), [path for path in passed if path not in found]


def _shards_below(reference: str) -> tuple[list[Path], list[Path]]:
    """Return the shards below a folder, and the runs that are none; raises if there is no shard."""
    runs = dict(_below(Path(reference).resolve()))
    shards = [path for path, asked in runs.items() if _is_shard(asked)]
    others = [path for path, asked in runs.items() if not _is_shard(asked) and not asked.merged]
    if shards:
        return shards, others
    if others:
        raise UsageError(
            f"there is no shard in {reference}, only {count(len(others), 'run')} of another kind",
            hint="name runs that were started with --shard",
        )
    if runs:
        raise UsageError(f"all that is in {reference} is merged already", hint="name the shards that were merged")
    raise UsageError(f"there is no run in {reference}", hint="name the folders of runs, or one above them")


def _is_shard(asked: RunFile) -> bool:
    """Return whether it was run as a shard, by any version of whet."""
    dealt = asked.shard is not None or asked.selection.shard is not None
    return dealt and not asked.merged and not asked.regraded_from


def _below(folder: Path, depth: int = _DEEPEST) -> Iterator[tuple[Path, RunFile]]:
    """Yield the runs below *folder*; passes over links, such as `latest`, and controls."""
    for path in sorted(folder.iterdir()) if depth else ():
        if path.is_symlink() or not path.is_dir():
            continue
        if (path / RUN_FILE).is_file():
            asked = read_run_file(path)
            if asked.command != _AUDIT:
                yield path, asked
        elif not (path / BATCH_FILE).is_file():
            yield from _below(path, depth - 1)


def read_shard(folder: Path) -> ShardRun:
    """Read the record of a shard; refuses one that was changed, and one that is none."""
    asked, shard = read_run_file(folder), None
    if asked.merged:
        raise UsageError(f"{folder} is merged already", hint="name the shards that it was merged from")
    if asked.regraded_from:
        raise UsageError(
            f"{folder} regrades {asked.regraded_from}", hint="merge the shards, and regrade what they are merged into"
        )
    shard = asked.shard
    if shard is None:
        old = asked.selection.shard is not None
        raise UsageError(
            f"{folder} is a run of an older whet, which did not say what its shards are parts of"
            if old
            else f"{folder} is not a shard",
            hint="run the shards again" if old else "name runs that were started with --shard",
        )
    if is_locked(folder):
        raise UsageError(f"{folder} is in use by another whet", hint="wait until it has ended")
    verified = verify(folder)
    if verified.problems:
        path, _, what = verified.problems[0].partition(": ")
        more = f", and {len(verified.problems) - 1} more" if len(verified.problems) > 1 else ""
        raise RecordChanged(
            f"{folder / path}: {what}{more}", hint=f"{_TAR}\nwhet verify {folder} lists all that does not fit"
        )
    done: set[TrialKey] = set()
    grown: list[int] = []
    for line in check_each_line(folder):
        done |= {line.result.key} if is_done(line.result) else set()
        grown += [line.grown] if line.grown else []
    return ShardRun(
        folder=folder,
        asked=asked,
        shard=shard,
        lines=verified.lines,
        link=verified.link,
        done=len(done),
        grown=tuple(grown),
    )


def grouped(runs: Sequence[ShardRun], free: Collection[str], *, partial: bool) -> dict[str, list[ShardRun]]:
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
    found: dict[int, ShardRun] = {}
    for run in runs:
        if run.shard.of != runs[0].shard.of:
            raise _apart(runs[0], run, f"the suite was dealt in {runs[0].shard.of} and in {run.shard.of} shards")
        other = found.setdefault(run.shard.number, run)
        if other is run:
            continue
        shorter, longer = sorted((other, run), key=lambda each: (each.lines, each.heads is not None))
        if not _goes_on(shorter.folder, longer.folder):
            raise _apart(
                other,
                run,
                "it is there twice, with different results",
                hint="name the one that counts, and leave the other out",
            )
        found[run.shard.number] = longer
    return [found[number] for number in sorted(found)]


def _goes_on(shorter: Path, longer: Path) -> bool:
    """Return whether one record is a copy of the beginning of the other."""
    if file_hash(shorter / RUN_FILE) != file_hash(longer / RUN_FILE):
        return False
    journal = shorter / JOURNAL_FILE
    lines = [line.raw for line in check_each_line(shorter)] if journal.exists() else []
    return all(one == other.raw for one, other in zip(lines, check_each_line(longer), strict=False))


def _apart(one: ShardRun, other: ShardRun, why: str, hint: str | None = None) -> UsageError:
    return UsageError(
        f"{other.title} cannot be merged with {one.title}: {why}", hint=hint or "name the shards of one run"
    )


_Fact = Callable[[RunFile], Any]
# What shards of one run have in common, and what to say if they do not.
_COMMON: dict[str, _Fact] = {
    "their suites differ": lambda asked: (asked.suite, asked.suite_digest, asked.case_digests, asked.weights),
    "their skills differ": lambda asked: asked.skill_digest,
    "their arms differ": lambda asked: (asked.arm_facts, asked.baseline, asked.commits),
    "their selections differ": lambda asked: replace(asked.selection, shard=None),
    "their options differ": lambda asked: (asked.command, asked.model, asked.in_place, asked.fail_fast, asked.strict),
}


def _refuse_other(first: ShardRun, run: ShardRun, free: Collection[str]) -> None:
    """Refuse a shard whose results would mix two different things with those of the *first*."""
    for what, fact in _COMMON.items():
        if first.of_all(fact(first.asked)) != run.of_all(fact(run.asked)):
            raise _apart(first, run, what)
    for key, one, other in _settings(first, run):
        if one != other and key not in free:
            raise _apart(first, run, f"the setting {key} is {one} in one, and {other} in the other")
    if first.shard.content != run.shard.content:
        raise _apart(first, run, "they are parts of different plans")
    if source := next(_other_sources(first, run), None):
        raise _apart(first, run, f"agents did not start from the same {source}")
    if first.grown != run.grown:
        more = [f"by {count(sum(each.grown), 'trial')}" if each.grown else "by none" for each in (first, run)]
        raise _apart(
            first,
            run,
            f"one was made longer {more[0]} per case and arm, the other {more[1]}",
            hint="make the other longer too: whet run --resume RUN --add-trials N",
        )
    if first.heads and run.heads and first.heads.sandbox != run.heads.sandbox:
        raise _apart(first, run, f"agents ran in the sandboxes {first.heads.sandbox} and {run.heads.sandbox}")


def _settings(first: ShardRun, run: ShardRun) -> Iterator[tuple[str, str, str]]:
    """Yield each setting of either, with its value in both."""
    one, other = (
        {row.key: placeless(row.value, each.shard.places) for row in each.asked.settings} for each in (first, run)
    )
    for key in one | other:
        yield key, one.get(key, "not set"), other.get(key, "not set")


def _other_sources(first: ShardRun, run: ShardRun) -> Iterator[str]:
    """Yield the files that agents of the two started from and that are not the same."""
    one, other = _sources(first), _sources(run)
    return (path for path in sorted({*one, *other}) if one.get(path) != other.get(path))


def _sources(run: ShardRun) -> dict[str, tuple[object, ...]]:
    if run.asked.sources is None:
        return {}
    try:
        found = wire.decode_file(run.folder / SOURCES_FILE, dict[str, Source])
    except (OSError, wire.WireError) as error:
        raise StoreError(f"{run.folder / SOURCES_FILE} cannot be read: {error}") from error
    # A checkout gives new times to files, and its umask decides who else may read them.
    return {
        placeless(path, run.shard.places): (each.mode & 0o100, each.size, each.digest) for path, each in found.items()
    }


def _refuse_missing(groups: dict[str, list[ShardRun]], unseen: Sequence[str]) -> None:
    """Refuse a merge of which something is missing: a whole shard, or trials of one."""
    first = next(iter(groups.values()))[0]
    given = {run.typed_number(run.shard.number) for group in groups.values() for run in group}
    missing = {
        group[0].typed_number(number)
        for group in groups.values()
        for number in range(1, min(group[0].shard.of, group[0].shard.pieces) + 1)
        if number not in {run.shard.number for run in group}
    }
    # Of a suite of which nothing is there, any of the others may have a part.
    missing |= set(range(1, first.shard.of + 1)) - given if unseen else set()
    if missing:
        named = quoted([f"{number}/{first.shard.of}" for number in sorted(missing)])
        of = f" (of {quoted(unseen)} there is none)" if unseen else ""
        raise UsageError(
            f"not all shards are there: {named} {'is' if len(missing) == 1 else 'are'} missing{of}",
            hint=f"run what is missing as the others, with --shard {min(missing)}/{first.shard.of}; {_PARTIAL}",
        )
    for run in (run for group in groups.values() for run in group if run.heads is None):
        left = f"{count(run.missing, 'trial')} of it {'is' if run.missing == 1 else 'are'} missing"
        raise UsageError(
            f"{run.title} is not finished: {left if run.missing > 0 else 'its results were not written'}",
            hint=f"finish it where it ran: whet {run.asked.command or 'run'} --resume {run.folder.name}; {_PARTIAL}",
        )
