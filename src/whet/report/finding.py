"""Describe one trial: its name, its failure class, and what is known if it did not go as expected."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from os.path import normpath
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from whet.errors import AgentTimedOut, BudgetSpent, StepLimitReached
from whet.grade.evidence import QUESTIONS_FILE, events_path
from whet.model.codec import WireError, decode_event
from whet.model.events import (
    CommandRun,
    Event,
    FileEdit,
    FileRead,
    FinalOutput,
    Message,
    Permission,
    SkillSignal,
    ToolCall,
    Trouble,
    TurnStarted,
)
from whet.model.grade import CHECKS_FAILED, PASSED_UNEXPECTEDLY, Status
from whet.model.run import STATE_FILE, RunInfo, TrialKey, TrialResult, turn_folder
from whet.model.run_events import ExecutionSummary, Results
from whet.model.spending import BUDGET_NOT_ENFORCED
from whet.reading.text import clean, count, excerpt, middle, one_line, path_for_people
from whet.report.reason import parted_reason

_WIDEST = 200


def describe(event: Event) -> str | None:  # noqa: C901, PLR0911 - a table of kinds
    """Describe *event* in a few words; None if there is nothing to show."""
    match event:
        case Message(role="assistant", phase="thinking", text=text):
            return f"(thinks) {text}"
        case Message(role="assistant", text=text) | FinalOutput(text=text):
            return text or None
        case CommandRun(command=command, exit_code=code):
            return f"$ {command}" + (f"  (exit code {code})" if code else "")
        case FileRead(path=path):
            return f"reads {path}"
        case FileEdit(path=path):
            return f"writes {path}"
        case SkillSignal(skill=skill, loaded=loaded):
            return f"{'loads' if loaded else 'fails to load'} skill {skill}"
        case Permission(tool=tool, allowed=allowed):
            return f"asks for {tool}: {'allowed' if allowed else 'refused'}"
        case ToolCall(tool=tool):
            return f"calls {tool}"
        case Trouble(message=message):
            return f"trouble: {message}"
        case TurnStarted(turn=turn, prompt=prompt):
            return f"turn {turn}: {prompt}"
        case _:
            return None


# Codes of agents that were stopped while they worked.
_STOPPED = frozenset({AgentTimedOut.code, StepLimitReached.code, BudgetSpent.code})
_CHECK_LOG = "check.log"
_TEXT = "transcript.txt"
_TAIL_BYTES = 1 << 16
_MOST_NOTES = 5


def _notes(result: TrialResult) -> tuple[str, ...]:
    """Return the notes of a trial, but not that a budget was not enforced: a notice says that once for all trials."""
    candidates = (*_conversation(result), *(note for note in result.notes if not note.startswith(BUDGET_NOT_ENFORCED)))
    notes = tuple(dict.fromkeys(one_line(note, 500) for note in candidates))
    omissions = len(notes) - _MOST_NOTES
    return (*notes[:_MOST_NOTES], f"and {count(omissions, 'more note')} in the record") if omissions > 0 else notes


def _conversation(result: TrialResult) -> Iterator[str]:
    """Yield how many turns were taken, and how the user found it, if there was one."""
    if result.turns:
        user = result.user
        reason = f": {user.reason}" if user and user.reason else ""
        ending = f", and its user ended {user.outcome or 'in the middle'}{reason}" if user else ""
        yield f"a conversation of {count(result.turns, 'turn')}{ending}"


def _last_printed(folder: Path, lines: int) -> tuple[str, ...]:
    """Return the last *lines* that the check of an attempt printed, after a line that says where the rest is."""
    text = clean(_tail(folder / _CHECK_LOG)).strip("\n")
    shortened_lines = [middle(line.rstrip(), _WIDEST) for line in text.split("\n")] if text.strip() else []
    if len(shortened_lines) <= lines:
        return tuple(shortened_lines)
    return (f"… more in {_CHECK_LOG} …", *shortened_lines[-lines:])


def _last_seen(result: TrialResult, folder: Path) -> str | None:
    """Return what the agent of the attempt in *folder* did last before it was stopped, if it is known."""
    if result.failure is None or result.failure.code not in _STOPPED:
        return None
    events = events_path(folder)
    if events is None:
        words = [line for line in clean(_tail(folder / _TEXT)).split("\n") if line.strip()]
        return f"printed: {one_line(words[-1], _WIDEST)}" if words else None
    texts = (_describe_line(line) for line in reversed(_tail(events).split("\n")))
    return next((one_line(text, _WIDEST) for text in texts if text), None)


def _describe_line(line: str) -> str | None:
    """Describe the event in *line*; None for half a line, as at the start of a tail."""
    try:
        return describe(decode_event(line.encode())) if line.strip() else None
    except WireError:
        return None


def _tail(path: Path) -> str:
    """Return the end of the file at *path*; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


# The path of a workspace while its agent runs, such as /tmp/whet-1a2b3c/w7, which differs for every attempt.
_LIVE_PLACE = re.compile(r"/whet-\w+/\w+")

_CLASSES_OF_WHET = frozenset({CHECKS_FAILED, "grader", PASSED_UNEXPECTEDLY, "wrong-answer"})

# How many lines of what a check printed are shown.
PRINTED_LINES = 5

# The facts of a finding that are paths.
PLACES = frozenset({"at", "artifacts", "workspace"})

ShownStatus = Status | Literal["not-run", "void"]


class Finding(Struct, frozen=True, kw_only=True):
    """A trial that did not go as expected: everything that is shown of it, without control characters."""

    key: str
    status: Status
    message: tuple[str, ...]
    where: str | None
    # None if the trial never started.
    artifacts: str | None
    workspace: str | None
    cause: str | None
    attempts: int
    # The command that asks its agent the recorded questions, if there are any.
    ask: str | None
    # Notes, the last lines that its check printed, and what its agent did last.
    notes: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    seen: str | None = None

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what is known besides the message, each fact with its label."""
        facts = (
            ("at", self.where),
            ("last seen", self.seen),
            ("cause", self.cause if self.status == "errored" else None),
            *(("note", note) for note in self.notes),
            ("attempts", str(self.attempts) if self.attempts > 1 else None),
            ("artifacts", self.artifacts),
            ("workspace", self.workspace),
        )
        yield from ((label, fact) for label, fact in facts if fact)


def execution_name(case: str, arm: str) -> str:
    """Return the name of a case, with its arm if it has more than the default."""
    return one_line(case if arm == "default" else f"{case} / {arm}", 120)


def trial_name(key: TrialKey, *, trials: int | None = None) -> str:
    """Return the name of a trial, such as `case @ runner #2`, without the number if there is only one."""
    number = "" if trials == 1 else f" #{key.number}"
    return f"{execution_name(key.case, key.arm)} @ {one_line(key.runner, 80)}{number}"


def class_of(result: TrialResult) -> tuple[str, str]:
    """Return the id and title of the failure class of a trial."""
    if result.failure_class is not None:
        return result.failure_class.id, one_line(result.failure_class.title, 120)
    if result.status == "unexpected-passed":
        return PASSED_UNEXPECTEDLY, "Unexpected pass"
    if result.failure is not None:
        return result.failure.code, one_line(result.failure.code, 120)
    return "check", "Check not met"


def _within(info: RunInfo, place: str) -> Path:
    """Return a path of the record; in a batch, it leads to another folder first."""
    return Path(normpath(info.run_dir / place))


def finding_of(result: TrialResult, info: RunInfo, cwd: Path, *, printed_lines: int = PRINTED_LINES) -> Finding:
    """Return what is shown of a trial; of one that went as expected, not what its check printed."""
    failure = result.failure
    location = failure.location if failure else None
    workspace = result.workspace_dir
    folder = _within(info, result.artifact_dir)
    # A trial that never started has no folder in the record.
    never_started = info.run_dir.is_dir() and not folder.is_dir()
    return Finding(
        key=one_line(str(result.key), 300),
        status=result.status,
        message=excerpt(message_of(result)),
        where=f"{path_for_people(Path(location.file), cwd)}:{location.line}" if location else None,
        artifacts=None if never_started else path_for_people(folder, cwd),
        workspace=path_for_people(_within(info, workspace), cwd) if workspace else None,
        cause=one_line(f"{failure.cause}, in phase {failure.phase}", 120) if failure else None,
        attempts=len(result.attempts),
        ask=None if result.passed else _ask(folder, cwd),
        notes=_notes(result),
        printed=() if result.passed else _last_printed(folder / turn_folder(_turn_of_check(result)), printed_lines),
        seen=None if result.passed else _last_seen(result, folder / turn_folder(result.turns)),
    )


def _turn_of_check(result: TrialResult) -> int | None:
    """Return the turn of the check that failed, if it is that of a turn."""
    return next((grade.turn for grade in result.grades if not grade.passed), None)


def snapshot_finding(summary: ExecutionSummary, results: Results, info: RunInfo, cwd: Path) -> Finding | None:
    """Return the finding of an execution whose usage snapshot does not hold; None if it holds."""
    outcome = summary.snapshot
    if outcome is None or outcome.verdict is None:
        return None
    first = next(iter(results.trials(summary.execution)))
    return Finding(
        key=one_line(outcome.key, 300),
        status=outcome.verdict,
        message=(one_line(f"snapshot {outcome.status}: {outcome.message}", 500),),
        where=None,
        artifacts=path_for_people(_within(info, first.artifact_dir), cwd),
        workspace=None,
        cause="its usage snapshot",
        attempts=1,
        ask=None,
    )


def _ask(folder: Path, cwd: Path) -> str | None:
    askable = all((folder / name).is_file() for name in (QUESTIONS_FILE, STATE_FILE))
    return f"whet explain {shlex.quote(path_for_people(folder, cwd))}" if askable else None


def likeness(result: TrialResult, finding: Finding) -> str:
    """Return what *finding* says without the names of its trial: equal texts say the same.

    Only the line that says most counts: what was seen often differs between trials of one cause.
    """
    text = parted_reason(message_of(result))[0]
    for name in (str(result.key), result.artifact_dir, result.workspace_dir):
        text = text.replace(name, "") if name else text
    text = re.sub(rf"(?<![\w-]){re.escape(result.key.runner)}(?![\w-])", "", text)
    return "\n".join((_LIVE_PLACE.sub("", text), finding.cause or "", finding.status))


class _FailureText(Protocol):
    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...


class _GradeText(Protocol):
    @property
    def check(self) -> str: ...
    @property
    def passed(self) -> bool: ...
    @property
    def reason(self) -> str: ...


class _ClassText(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def label(self) -> str | None: ...


class EndedTrial(Protocol):
    """What a trial that has ended says of why; a `TrialResult` does, and a row of a table."""

    @property
    def status(self) -> Status:
        """The verdict of the trial."""

    @property
    def failure(self) -> _FailureText | None:
        """What happened."""

    @property
    def failure_class(self) -> _ClassText | None:
        """What the failure is called."""

    @property
    def grades(self) -> Sequence[_GradeText]:
        """The grades of the trial."""


def own_label(result: EndedTrial) -> str | None:
    """Return what the author of the suite calls a failure; a class of whet itself says less than the reason."""
    failure, failure_class = result.failure, result.failure_class
    if failure is None or failure_class is None or failure_class.id in _CLASSES_OF_WHET:
        return None
    # Any other failure is one that whet names, such as a crash.
    if failure.code != CHECKS_FAILED:
        return None
    return one_line(failure_class.label or failure_class.id, 120)


def message_of(result: EndedTrial) -> str:
    """Return why a trial did not go as expected."""
    if result.failure is not None and result.failure.message.strip():
        return result.failure.message
    unmet = "\n".join(_unmet(result))
    if unmet:
        return unmet
    if result.status == "unexpected-passed":
        return "It passed, but the case expects it to fail. If passing is right, remove expected_fail."
    return result.failure.code if result.failure else "No check gave a reason."


def _unmet(result: EndedTrial) -> Iterator[str]:
    for grade in result.grades:
        if not grade.passed:
            yield f"{grade.check}: {grade.reason}" if grade.reason else f"{grade.check}: not met"
