"""The earlier runs of a suite: which of them tested the same, and what they say about its checks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from whet.errors import StoreError
from whet.model import codec
from whet.model.grade import PASSED
from whet.model.run import TrialResult
from whet.model.suite import Case, Suite
from whet.record.folder import JOURNAL_FILE, SOURCES_FILE
from whet.record.read.run import RecordedRun, read_run, run_folders
from whet.record.run_file import RunFile, read_run_file
from whet.record.safe_open import read_inside

# Older runs are of less interest, and reading them takes long.
_MOST_RUNS = 20
_LARGEST_SOURCES = 64 << 20


class PastTrials(Struct, frozen=True, kw_only=True):
    """The trials of one case in the last runs that did not error."""

    case: Case
    trials: tuple[TrialResult, ...]

    @property
    def passed(self) -> int:
        """In how many of them the checks held."""
        return sum(trial.status in PASSED for trial in self.trials)

    @property
    def constant(self) -> bool:
        """Whether all of them ended alike."""
        return bool(self.trials) and self.passed in (0, len(self.trials))

    @property
    def idle(self) -> tuple[str, ...]:
        """The checks of which each could go without changing a verdict; a case with one check needs it."""
        graded_trials = [trial for trial in self.trials if trial.grades]
        if len(self.case.checks) == 1 or not graded_trials:
            return ()
        return tuple(
            check.label
            for number, check in enumerate(self.case.checks)
            if not any(_decides(trial, number, len(self.case.checks)) for trial in graded_trials)
        )


class PastRuns(Struct, frozen=True, kw_only=True):
    """The last runs of a suite as it is now; `unread` are those whose record cannot be read."""

    runs: tuple[str, ...]
    cases: tuple[PastTrials, ...]
    unread: tuple[str, ...] = ()


def past_runs(suite: Suite, cases: Sequence[Case], output_dir: Path) -> PastRuns:
    """Read the last runs of *suite*, with the same content, in *output_dir*."""
    runs: list[str] = []
    unread: list[str] = []
    trials: dict[str, list[TrialResult]] = {}
    for folder in _folders(suite, output_dir):
        try:
            run = read_run(folder)
        except StoreError as error:
            unread.append(f"{folder.name}: {error.message}")
            continue
        runs.append(folder.name)
        for line in run.lines:
            if line.result.status != "errored":
                trials.setdefault(line.result.key.case, []).append(line.result)
    past_trials = tuple(PastTrials(case=case, trials=tuple(trials.get(case.id, ()))) for case in cases)
    return PastRuns(runs=tuple(runs), cases=past_trials, unread=tuple(unread))


def _folders(suite: Suite, output_dir: Path) -> list[Path]:
    """Return the folders of the last runs, the newest first; a regraded or merged run replaces what it is made of."""
    folders: dict[str, Path] = {}
    parts: set[str] = set()
    for folder, run_file in _run_files(output_dir):
        parts |= {part.run for part in run_file.merged}
        if run_file.suite_digest == suite.digest and folder.name not in parts:
            folders.setdefault(run_file.regraded_from or folder.name, folder)
        if len(folders) == _MOST_RUNS:
            break
    return list(folders.values())


def runs_before(run: RecordedRun) -> tuple[str, ...]:
    """Return the runs before *run* that tried some of the same: the same content, executions and runners."""
    content, executions = content_of(run.run_dir, run.asked), _executions(run.asked)
    # What is regraded, and what was merged, is counted once.
    skipped_names = set(run.asked.own_runs(run.run_dir.name))
    names: list[str] = []
    for folder, run_file in _run_files(run.run_dir.parent):
        skipped_names |= {part.run for part in run_file.merged}
        if folder.name >= run.run_dir.name or folder.name in skipped_names or run_file.regraded_from:
            continue
        is_alike = run_file.suite_path == run.asked.suite_path and not executions.isdisjoint(_executions(run_file))
        if is_alike and _has_begun(folder) and content_of(folder, run_file) == content:
            names.append(folder.name)
    return tuple(reversed(names))


def _executions(run_file: RunFile) -> set[str]:
    return {line.rpartition(" x")[0] for line in run_file.plan}


def _has_begun(folder: Path) -> bool:
    journal = folder / JOURNAL_FILE
    return journal.is_file() and journal.stat().st_size > 0


class _SourceDigest(Struct):
    size: int
    digest: str | None = None


def content_of(run_dir: Path, run_file: RunFile) -> str:
    """Return a hash of what was tested: the suite, the arms, the runners, and all files that agents start from."""
    settings = sorted((row.key, row.value) for row in run_file.settings if row.key.startswith("runners."))
    facts = [
        run_file.suite_digest,
        sorted(run_file.arm_facts.items()),
        settings,
        run_file.model,
        run_file.skill_digest,
        _sources(run_dir),
    ]
    return hashlib.sha256(codec.encode(facts)).hexdigest()[:16]


def _sources(run_dir: Path) -> list[str]:
    """Return the hashes of the files that agents start from; their places may be others each time."""
    content = read_inside(run_dir, SOURCES_FILE, _LARGEST_SOURCES)
    try:
        files = codec.decode(content[0], dict[str, _SourceDigest]) if content else {}
    except codec.WireError:
        return []
    return sorted(source.digest or str(source.size) for source in files.values())


def _run_files(output_dir: Path) -> Iterator[tuple[Path, RunFile]]:
    for folder in reversed(run_folders(output_dir)):
        try:
            yield folder, read_run_file(folder)
        except StoreError:
            # As in `newest_run`: not one of our runs.
            continue


def _decides(trial: TrialResult, number: int, checks: int) -> bool:
    """Return whether only the check with that *number* did not hold, or nothing is known of those after it."""
    misses = [place for place, grade in enumerate(trial.grades) if not grade.passed]
    return misses == [number] or (misses[-1:] == [number] and len(trial.grades) < checks)
