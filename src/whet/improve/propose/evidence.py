"""What happened in practice: the trials of each case that failed and that passed, and what people say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from whet.decide.judging.units import LabelLine
from whet.improve.propose.task import PracticeRun, ProposalTask
from whet.model.events import CommandRun, FileEdit
from whet.model.grade import PASSED
from whet.model.run import TrialResult
from whet.model.suite import Case
from whet.reading.text import middle, one_line
from whet.record.judging.labels_file import labels_path, read_labels
from whet.record.notes import Note, read_notes
from whet.record.read.rows import RowKey
from whet.record.read.run import read_session, read_trials
from whet.record.read.stream import RecordedAttempt

_LONGEST_ANSWER, _LONGEST_REASON, _LONGEST_LINE = 4_000, 1_500, 300
_MOST_COMMANDS, _MOST_FILES = 40, 40
_OPINIONS = {"true": "holds", "false": "does not hold", "unsure": "may hold"}


class TrialStory(Struct, frozen=True, kw_only=True):
    """One trial in words: the checks that failed with what was seen instead, what the agent did, what people say."""

    passed: bool
    failed_checks: tuple[tuple[str, str], ...]
    failure: str | None
    commands: tuple[str, ...]
    files: tuple[str, ...]
    answer: str
    opinions: tuple[str, ...]


class CaseStory(Struct, frozen=True, kw_only=True):
    """The trials of one practice case."""

    case: Case
    trials: tuple[TrialStory, ...]

    @property
    def failures(self) -> tuple[TrialStory, ...]:
        """The trials that failed."""
        return tuple(trial for trial in self.trials if not trial.passed)

    @property
    def has_failed(self) -> bool:
        """Whether a trial failed, or a person says that one should have."""
        return any(not trial.passed for trial in self.trials)


def tell_practice(task: ProposalTask) -> tuple[CaseStory, ...]:
    """Return what happened in the practice cases of *task*, in the order of the suite; errored trials say nothing."""
    labels = _labels_of_cases(task)
    trials: dict[str, list[TrialStory]] = {}
    for run in task.evidence:
        for case, story in _stories(run, frozenset(task.practice), labels):
            trials.setdefault(case, []).append(story)
    return tuple(CaseStory(case=case, trials=tuple(trials.get(case.id, ()))) for case in task.practice_cases)


def _labels_of_cases(task: ProposalTask) -> dict[tuple[str, str], list[LabelLine]]:
    """Return the labels of people by run and case."""
    labels: dict[tuple[str, str], list[LabelLine]] = {}
    for line in read_labels(labels_path(task.suite.source)):
        if line.label.case in task.practice:
            labels.setdefault((line.label.run, line.label.case), []).append(line)
    return labels


def _stories(
    run: PracticeRun, practice: frozenset[str], labels: Mapping[tuple[str, str], Sequence[LabelLine]]
) -> Iterator[tuple[str, TrialStory]]:
    recorded_run = read_trials(run.folder)
    notes = read_notes(run.folder)
    has_arm = run.arm in recorded_run.asked.arm_facts
    for result in recorded_run.results.values():
        key = result.key
        if key.case not in practice or result.status == "errored" or (has_arm and key.arm != run.arm):
            continue
        row = RowKey(key.case, key.runner, key.arm, key.number)
        lines = [
            line
            for line in labels.get((run.folder.name, key.case), ())
            if (line.label.runner, line.label.arm, line.label.trial) == (key.runner, key.arm, key.number)
        ]
        yield key.case, _story(run.folder, result, notes.get(row, ()), lines)


def _story(run_dir: Path, result: TrialResult, notes: Sequence[Note], labels: Sequence[LabelLine]) -> TrialStory:
    commands, files = _actions(run_dir, result)
    verdicts = [note.verdict for note in notes if note.verdict is not None]
    passed = result.status in PASSED
    return TrialStory(
        # Whoever looked at it knows better than the checks.
        passed=verdicts[-1] == "passed" if verdicts else passed,
        failed_checks=tuple(
            (one_line(grade.check, _LONGEST_LINE), middle(grade.reason, _LONGEST_REASON))
            for grade in result.grades
            if not grade.passed
        ),
        failure=None if passed or result.failure is None else middle(result.failure.message, _LONGEST_REASON),
        commands=commands,
        files=files,
        answer=middle(result.final_output.strip(), _LONGEST_ANSWER),
        opinions=tuple(_opinions(notes, labels)),
    )


def _actions(run_dir: Path, result: TrialResult) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands that the agent ran and the files that it wrote; the first ones of many."""
    commands: list[str] = []
    files: dict[str, None] = {}
    for attempt in result.attempts[-1:]:
        folder = run_dir / attempt.artifact_dir
        for event in RecordedAttempt(attempt=attempt, folder=folder, session=read_session(folder)).events():
            if isinstance(event, CommandRun):
                ending = "" if event.exit_code in (None, 0) else f"  (exit code {event.exit_code})"
                commands.append(one_line(event.command, _LONGEST_LINE) + ending)
            elif isinstance(event, FileEdit):
                files.setdefault(one_line(event.path, _LONGEST_LINE))
    return tuple(commands[:_MOST_COMMANDS]), tuple(files)[:_MOST_FILES]


def _opinions(notes: Sequence[Note], labels: Sequence[LabelLine]) -> Iterator[str]:
    for note in notes:
        verdict = f"this {note.verdict}" if note.verdict else ""
        yield ": ".join(filter(None, (verdict, middle(note.text.strip(), _LONGEST_REASON))))
    for line in labels:
        label = line.label
        statement = one_line(label.item or label.check, _LONGEST_LINE)
        note_text = f": {middle(label.note.strip(), _LONGEST_REASON)}" if label.note else ""
        yield f'"{statement}" {_OPINIONS[label.label]}{note_text}'
