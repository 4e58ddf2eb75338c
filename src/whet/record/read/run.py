"""Read the folder of a run: what was asked, how each trial ended, and which runs there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.dataclass import dataclass
from whet.errors import NothingSelected, StoreError, UsageError
from whet.grade.comparison import sampled
from whet.model import wire
from whet.model.arm import baseline_of
from whet.model.comparison import ArmSamples, RunSamples, Sampled, notes_on
from whet.model.run import ExecutionKey, TrialKey, TrialResult
from whet.model.session import SessionSummary
from whet.reading.files import LONGEST_LINE, next_line, open_file
from whet.record.chain import Line, Rounds, counted, is_done
from whet.record.folder import RESULTS_FILE, RUN_FILE
from whet.record.run_file import RunFile, read_run_file
from whet.record.trial_lines import TrialLines
from whet.record.verifying import check_each_line, check_files, check_journal

_SESSION = "session.json"


@dataclass(frozen=True, kw_only=True)
class BegunRun:
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


@dataclass(frozen=True, kw_only=True)
class ResumableRun(BegunRun):
    """One to go on with; `journal` knows which trials have ended, and no more of them than that takes."""

    journal: TrialLines


@dataclass(frozen=True, kw_only=True)
class RecordedRun(BegunRun):
    """One to look at; `lines` has one line for each ended trial, and `rounds` says how far it has come."""

    lines: tuple[Line, ...]
    rounds: Rounds

    @cached_property
    def results(self) -> Mapping[tuple[str, str, str, int], TrialResult]:
        """How trials ended, by case, runner, arm and number; the suite may have another name by now."""
        return {_name(line.result.key): line.result for line in self.lines}

    @property
    def missing(self) -> int:
        """How many of its trials have not ended; those after a look that stopped it were never due."""
        if self.rounds.stop:
            return 0
        done = sum(is_done(line.result) for line in self.lines)
        return (self.asked.trials or 0) + self.rounds.added * len(self.asked.plan) - done

    def samples(self) -> RunSamples:
        """Return what its trials say in a comparison; an older whet recorded no arms."""
        names = tuple(self.asked.arm_facts) or tuple(dict.fromkeys(line.result.key.arm for line in self.lines))
        first = self.asked.baseline or baseline_of(names)
        trials: dict[tuple[str, str], list[Sampled]] = {}
        places = {case: number for number, case in enumerate(self.asked.weights)}
        looks = self.rounds.looks
        last = looks[-1].round if looks else self.rounds.last
        for line in sorted(self.lines, key=lambda each: (places.get(each.result.key.case, 0), each.result.key.number)):
            key = line.result.key
            found = trials.setdefault((key.arm, key.runner), [])
            # A round that is not complete was not looked at, and does not count.
            if key.number <= last and key.case not in self.asked.voided:
                found.append(sampled(line.result))
        return RunSamples(
            name=self.run_dir.name,
            arms=tuple(
                ArmSamples(arm=arm, runner=runner, trials=tuple(found))
                for (arm, runner), found in sorted(
                    trials.items(), key=lambda each: (each[0][0] != first, names.index(each[0][0]), each[0][1])
                )
            ),
            weights=self.asked.weights,
            digests=self.asked.case_digests,
            grown_from=self.rounds.grown_from,
            rounds_planned=self.asked.until.rounds if self.asked.until else None,
            interleaved=self.asked.seed is not None,
            command=self.asked.command or "run",
            judge_error=self._judge_error,
            runs=self.asked.own_runs(self.run_dir.name),
            selected_from=self.asked.selected_from,
            alike=self._alike(),
            unfinished=(self.run_dir.name,) if self.missing > 0 else (),
            notes=tuple(notes_on(voided=self.asked.voided, missing=self.missing, mistaken=tuple(self._mistaken()))),
        )

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

    def _alike(self) -> tuple[tuple[str, ...], ...]:
        """The arms that do not differ in anything, in groups."""
        if self.asked.alike is not None:
            return self.asked.alike
        facts = self.asked.arm_facts
        groups = (tuple(name for name in facts if facts[name] == each) for each in facts.values())
        return tuple(dict.fromkeys(group for group in groups if len(group) > 1))

    def result(self, key: TrialKey) -> TrialResult | None:
        """Return how that trial ended."""
        return self.results.get(_name(key))

    def session(self, result: TrialResult) -> SessionSummary | None:
        """Return the session that checks looked at, if the trial got that far."""
        decided = result.failure is None or result.failure.phase == "check"
        session = read_session(self.run_dir / result.artifact_dir) if decided else None
        return session if session and session.complete else None

    def failed(self) -> frozenset[tuple[str, str, str]]:
        """Return the executions with a trial that did not go as expected, or a usage snapshot that does not hold.

        If the run compared arms, those of the same case in its other arms as well: one arm alone compares nothing.
        """
        failed = frozenset(
            (case, runner, arm)
            for (case, runner, arm, _), result in self.results.items()
            if not result.passed and case not in self.asked.voided
        ) | _not_held(self.run_dir / RESULTS_FILE)
        if not failed:
            raise NothingSelected(
                f"nothing failed in the last run ({self.run_dir.name})", hint="leave out --last-failed"
            )
        return failed if self.asked.baseline is None else failed | frozenset(self._beside(failed))

    def selected_again(self) -> tuple[str, ...]:
        """Return the runs that decided what is in a run of its failures: itself, and those that selected its own."""
        return (*self.asked.own_runs(self.run_dir.name), *self.asked.selected_from)

    def _beside(self, failed: frozenset[ExecutionKey]) -> Iterator[ExecutionKey]:
        """Yield the executions that are compared with *failed* ones: on the same runner, or in an arm with its own."""
        ran = {(case, runner, arm) for case, runner, arm, _ in self.results}
        runners = {arm: {runner for _, runner, other in ran if other == arm} for _, _, arm in ran}
        for case, runner, _ in failed:
            yield from (
                each for each in ran if each[0] == case and (each[1] == runner or runner not in runners[each[2]])
            )

    def refuse_empty(self) -> None:
        """Refuse a run of which no trial has ended."""
        if not self.lines:
            raise UsageError(f"no trial of {self.run_dir.name} has ended, so it holds nothing yet")

    def check_files(self, key: TrialKey | None = None) -> None:
        """Refuse a record if a file has changed since its trial ended; with *key*, look at that trial only."""
        check_files(self.run_dir, [line for line in self.lines if key is None or line.result.key == key])


def read_run(run_dir: Path) -> RecordedRun:
    """Read the run in *run_dir*; raises `RecordChanged` if its record does not fit together."""
    lines: list[Line] = []
    rounds = check_journal(run_dir, lines.append).rounds
    return RecordedRun(run_dir=run_dir, asked=read_run_file(run_dir), lines=tuple(counted(lines)), rounds=rounds)


def read_resumable(run_dir: Path) -> ResumableRun:
    """Read a run to go on with it; raises as `read_run` does."""
    journal = check_journal(run_dir)
    return ResumableRun(run_dir=run_dir, asked=read_run_file(run_dir), journal=journal)


def read_trials(run_dir: Path) -> RecordedRun:
    """Read a run as `read_run` does, but hold its results to their hash only, which takes a quarter of the time."""
    lines, rounds = list(check_each_line(run_dir)), Rounds()
    for line in lines:
        rounds.note(line)
    return RecordedRun(run_dir=run_dir, asked=read_run_file(run_dir), lines=tuple(counted(lines)), rounds=rounds)


def read_session(folder: Path) -> SessionSummary | None:
    """Return the session of the attempt in *folder*, if its agent was started."""
    file = folder / _SESSION
    if not file.is_file():
        return None
    try:
        return wire.decode_file(file, SessionSummary)
    except (OSError, wire.WireError) as error:
        raise StoreError(f"{file} cannot be read: {error}") from error


def run_folders(output_dir: Path) -> list[Path]:
    """Return the run folders in *output_dir*, the oldest first: their names sort by time."""
    found = sorted(path.parent for path in output_dir.glob(f"*/{RUN_FILE}"))
    # "latest" is a link to one of them.
    return [folder for folder in found if not folder.is_symlink()]


def newest_run(output_dir: Path, suite: Path, *, of_failed: bool = True) -> RecordedRun:
    """Read the newest run of *suite*; without *of_failed*, the newest that is not of what failed last time only."""
    for folder in reversed(run_folders(output_dir)):
        try:
            asked = read_run_file(folder)
        except StoreError:
            # A folder that cannot be read is not one of our runs.
            continue
        if asked.suite_path == str(suite) and (of_failed or asked.selection.only is None):
            return read_run(folder)
    raise NothingSelected(f"{suite} has not been run into {output_dir} before", hint="leave out --last-failed")


def journal_lines(journal: Path, offset: int, most: int | None = None) -> tuple[list[bytes], int]:
    """Return the whole lines from *offset* on, at most so many, and where they end.

    This follows a run while it is under way: a line that is being written is left alone, and nothing is checked.
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


class _Execution(Struct):
    runner: str
    arm: str
    passed: bool
    snapshot: dict[str, Any] | None = None


class _Case(Struct):
    id: str
    executions: tuple[_Execution, ...]


class _Results(Struct):
    cases: tuple[_Case, ...]


def _not_held(results: Path) -> frozenset[tuple[str, str, str]]:
    """Return the executions whose usage snapshot does not hold; a run that was killed has no results that say so."""
    if not results.exists():
        return frozenset()
    try:
        document = wire.decode_file(results, _Results)
    except (OSError, wire.WireError) as error:
        raise StoreError(f"{results} cannot be read: {error}", hint="leave out --last-failed") from error
    return frozenset(
        (case.id, execution.runner, execution.arm)
        for case in document.cases
        for execution in case.executions
        if execution.snapshot is not None and not execution.passed
    )
