"""Read the folder of a run: what was asked, how each trial ended, and which runs there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.decide.comparison import sample_trial
from whet.errors import NothingSelected, StoreError, UsageError
from whet.model import codec
from whet.model.arm import baseline_of
from whet.model.comparison import USUAL_ERROR, ArmSamples, RunSamples, Sampled, notes_on
from whet.model.run import ExecutionKey, TrialKey, TrialResult
from whet.model.session import SessionSummary
from whet.reading.files import LONGEST_LINE, next_line, open_file
from whet.record.document import ResultsPart
from whet.record.folder import RUN_FILE
from whet.record.journal.chain import JournalLine, RoundProgress, is_done, select_lines
from whet.record.journal.index import JournalIndex
from whet.record.results_file import ResultsFile
from whet.record.run_file import RunFile, read_run_file
from whet.record.verify.verify import check_each_line, check_files, check_journal

_SESSION = "session.json"


class RunRecord(Struct, frozen=True, kw_only=True):
    """A run folder whose journal, run.json and results fit together, and what it was asked."""

    run_dir: Path
    asked: RunFile

    @property
    def suite(self) -> Path:
        """Where the suite was."""
        if self.asked.suite_path is None:
            raise StoreError(f"{self.run_dir}: run.json is not the record of a run: it names no suite")
        return Path(self.asked.suite_path)

    @property
    def config_file(self) -> Path | None:
        """The settings file that the run was given by name."""
        return Path(self.asked.config_file) if self.asked.config_file else None

    @property
    def skill(self) -> Path | None:
        """The skill under test."""
        return Path(self.asked.skill) if self.asked.skill else None


class ResumableRun(RunRecord, frozen=True, kw_only=True):
    """A run to resume; `journal` knows which of its trials have ended, and keeps no more of them."""

    journal: JournalIndex


class RecordedRun(RunRecord, frozen=True, kw_only=True, dict=True):
    """A run to look at; `lines` has one line for each ended trial, and `rounds` says how far it has come."""

    lines: tuple[JournalLine, ...]
    rounds: RoundProgress

    @cached_property
    def results(self) -> Mapping[tuple[str, str, str, int], TrialResult]:
        """How trials ended, by case, runner, arm and number; the suite may have another name by now."""
        return {_name(line.result.key): line.result for line in self.lines}

    @property
    def missing(self) -> int:
        """How many of its trials have not ended; those after a look that stopped it were never due."""
        if self.rounds.stop:
            return 0
        count = sum(is_done(line.result) for line in self.lines)
        return (self.asked.trials or 0) + self.rounds.added * len(self.asked.plan) - count

    def samples(self) -> RunSamples:
        """Return what its trials say in a comparison."""
        names = tuple(self.asked.arm_facts)
        first = self.asked.baseline or baseline_of(names)
        trials: dict[tuple[str, str], list[Sampled]] = {}
        places = {case: number for number, case in enumerate(self.asked.weights)}
        for line in sorted(
            self.lines, key=lambda entry: (places.get(entry.result.key.case, 0), entry.result.key.number)
        ):
            key = line.result.key
            arm_trials = trials.setdefault((key.arm, key.runner), [])
            if self._counts(key):
                arm_trials.append(sample_trial(line.result))
        return RunSamples(
            name=self.run_dir.name,
            arms=tuple(
                ArmSamples(arm=arm, runner=runner, trials=tuple(arm_trials))
                for (arm, runner), arm_trials in sorted(
                    trials.items(), key=lambda entry: (entry[0][0] != first, names.index(entry[0][0]), entry[0][1])
                )
            ),
            weights=self.asked.weights,
            digests=self.asked.case_digests,
            splits=self.asked.splits,
            edited=self.asked.edited,
            grown_from=self.rounds.grown_from,
            rounds_planned=self.asked.until.rounds if self.asked.until else None,
            error=self.asked.until.error if self.asked.until else USUAL_ERROR,
            interleaved=self.asked.seed is not None,
            command=self.asked.command or "run",
            judge_error=self._judge_error,
            runs=self.asked.own_runs(self.run_dir.name),
            selected_from=self.asked.selected_from,
            alike=self._equal_arms(),
            unfinished=(self.run_dir.name,) if self.missing > 0 else (),
            notes=(
                *notes_on(
                    voided=self.asked.voided,
                    missing=self.missing,
                    mistaken=tuple(self._mistaken()),
                    selected_from=self.asked.selected_from,
                ),
                *(warning.message for warning in self.asked.warnings),
            ),
        )

    def counting_results(self) -> Iterator[TrialResult]:
        """Yield how the trials ended that count in comparisons."""
        return (line.result for line in self.lines if self._counts(line.result.key))

    def _counts(self, key: TrialKey) -> bool:
        """Return whether a trial counts: no incomplete round does, which was not looked at, and no void case."""
        looks = self.rounds.looks
        last = looks[-1].round if looks else self.rounds.last
        return key.number <= last and key.case not in self.asked.voided

    def _mistaken(self) -> Iterator[tuple[str, str]]:
        """Yield the case and the arm of each trial that failed by a mistake in a check."""
        for line in self.lines:
            if line.result.mistaken and line.result.key.case not in self.asked.voided:
                yield line.result.key.case, line.result.key.arm

    @property
    def _judge_error(self) -> float | None:
        """The share of verdicts that its judge has wrong, as its settings said."""
        percent = self.asked.setting("judge.error")
        try:
            return None if percent is None else float(percent) / 100
        except ValueError:
            return None

    def _equal_arms(self) -> tuple[tuple[str, ...], ...]:
        """The arms that do not differ in anything, in groups."""
        if self.asked.alike is not None:
            return self.asked.alike
        facts = self.asked.arm_facts
        groups = (tuple(name for name in facts if facts[name] == arm) for arm in facts.values())
        return tuple(dict.fromkeys(group for group in groups if len(group) > 1))

    def result(self, key: TrialKey) -> TrialResult | None:
        """Return how that trial ended."""
        return self.results.get(_name(key))

    def session(self, result: TrialResult) -> SessionSummary | None:
        """Return the session that checks looked at, if the trial got that far."""
        is_graded = result.failure is None or result.failure.phase == "check"
        session = read_session(self.run_dir / result.artifact_dir) if is_graded else None
        return session if session and session.complete else None

    def failed_executions(self) -> frozenset[tuple[str, str, str]]:
        """Return the executions with a trial that did not go as expected, or a usage snapshot that does not hold.

        If the run compared arms, those of the same case in its other arms as well: one arm alone compares nothing.
        """
        failures = frozenset(
            (case, runner, arm)
            for (case, runner, arm, _), result in self.results.items()
            if not result.passed and case not in self.asked.voided
        ) | _broken_snapshots(ResultsFile(self.run_dir))
        if not failures:
            raise NothingSelected(
                f"nothing failed in the last run ({self.run_dir.name})", hint="leave out --last-failed"
            )
        return failures if self.asked.baseline is None else failures | frozenset(self._beside(failures))

    def selected_again(self) -> tuple[str, ...]:
        """Return the runs that decided what is in a run of its failures: itself, and those that selected its own."""
        return (*self.asked.own_runs(self.run_dir.name), *self.asked.selected_from)

    def _beside(self, failures: frozenset[ExecutionKey]) -> Iterator[ExecutionKey]:
        """Yield the executions that are compared with *failures*: on the same runner, or in an arm with its own."""
        keys = {(case, runner, arm) for case, runner, arm, _ in self.results}
        runners = {arm: {runner for _, runner, own_arm in keys if own_arm == arm} for _, _, arm in keys}
        for case, runner, _ in failures:
            yield from (key for key in keys if key[0] == case and (key[1] == runner or runner not in runners[key[2]]))

    def refuse_empty(self) -> None:
        """Refuse a run of which no trial has ended."""
        if not self.lines:
            raise UsageError(f"no trial of {self.run_dir.name} has ended, so it holds nothing yet")

    def check_files(self, key: TrialKey | None = None) -> None:
        """Refuse a record if a file has changed since its trial ended; with *key*, look at that trial only."""
        check_files(self.run_dir, [line for line in self.lines if key is None or line.result.key == key])


def read_run(run_dir: Path) -> RecordedRun:
    """Read the run in *run_dir*; raises `RecordChanged` if its record does not fit together."""
    lines: list[JournalLine] = []
    rounds = check_journal(run_dir, lines.append).rounds
    return RecordedRun(run_dir=run_dir, asked=read_run_file(run_dir), lines=tuple(select_lines(lines)), rounds=rounds)


def read_resumable(run_dir: Path) -> ResumableRun:
    """Read a run to go on with it; raises as `read_run` does."""
    journal = check_journal(run_dir)
    return ResumableRun(run_dir=run_dir, asked=read_run_file(run_dir), journal=journal)


def read_trials(run_dir: Path) -> RecordedRun:
    """Read a run as `read_run` does, but hold its results to their hash only, which takes a quarter of the time."""
    lines, rounds = list(check_each_line(run_dir)), RoundProgress()
    for line in lines:
        rounds.note(line)
    return RecordedRun(run_dir=run_dir, asked=read_run_file(run_dir), lines=tuple(select_lines(lines)), rounds=rounds)


def read_session(folder: Path) -> SessionSummary | None:
    """Return the session of the attempt in *folder*, if its agent was started."""
    file = folder / _SESSION
    if not file.is_file():
        return None
    try:
        return codec.decode_file(file, SessionSummary)
    except (OSError, codec.WireError) as error:
        raise StoreError(f"{file} cannot be read: {error}") from error


def run_folders(output_dir: Path) -> list[Path]:
    """Return the run folders in *output_dir*, the oldest first: their names sort by time."""
    folders = sorted(path.parent for path in output_dir.glob(f"*/{RUN_FILE}"))
    # "latest" is a link to one of them.
    return [folder for folder in folders if not folder.is_symlink()]


def newest_run(output_dir: Path, suite: Path, *, of_failed: bool = True) -> RecordedRun:
    """Read the newest run of *suite*; without *of_failed*, the newest that is not of what failed last time only."""
    for folder in reversed(run_folders(output_dir)):
        try:
            run_file = read_run_file(folder)
        except StoreError:
            # A folder that cannot be read is not one of our runs.
            continue
        if run_file.suite_path == str(suite) and (of_failed or run_file.selection.only is None):
            return read_run(folder)
    raise NothingSelected(f"{suite} has not been run into {output_dir} before", hint="leave out --last-failed")


def journal_lines(journal: Path, offset: int, most: int | None = None) -> tuple[list[bytes], int]:
    """Return the whole lines from *offset* on, at most so many, and where they end.

    The reader follows a run while it is under way: a line that is being written is left alone, and nothing is checked.
    """
    lines: list[bytes] = []
    with open_file(journal) as file:
        file.seek(offset)
        while line := next_line(file, LONGEST_LINE):
            if not line.endswith(b"\n") or len(lines) == most:
                break
            lines.append(line)
            offset += len(line)
    return lines, offset


def _name(key: TrialKey) -> tuple[str, str, str, int]:
    return key.case, key.runner, key.arm, key.number


class _ExecutionOutcome(Struct):
    runner: str
    arm: str
    passed: bool
    snapshot: dict[str, Any] | None = None


class _CaseOutcome(Struct):
    id: str
    executions: tuple[_ExecutionOutcome, ...]


class _ResultsDocument(ResultsPart):
    cases: tuple[_CaseOutcome, ...]


def _broken_snapshots(results: ResultsFile) -> frozenset[tuple[str, str, str]]:
    """Return the executions whose usage snapshot does not hold; a run that was killed has no results that say so."""
    try:
        document = results.read(_ResultsDocument)
    except StoreError as error:
        raise StoreError(error.message, hint="leave out --last-failed") from error
    if document is None:
        return frozenset()
    return frozenset(
        (case.id, execution.runner, execution.arm)
        for case in document.cases
        for execution in case.executions
        if execution.snapshot is not None and not execution.passed
    )
