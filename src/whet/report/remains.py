"""What a trial left in the record that helps to see why: what its check printed, and what its agent did last."""

from __future__ import annotations

import os
from pathlib import Path

from whet.errors import AgentTimedOut, BudgetSpent, StepLimitReached
from whet.grade.report import events_path
from whet.model.run import UNHELD, TrialResult
from whet.report.session import said_of
from whet.report.text import clean, count, middle, one_line
from whet.wire import WireError, decode_event

# Agents that were stopped in the middle of something.
_STOPPED = frozenset({AgentTimedOut.code, StepLimitReached.code, BudgetSpent.code})
_CHECK_LOG = "check.log"
_TEXT = "transcript.txt"
_TAIL_BYTES = 1 << 16
_WIDEST = 200
_MOST_NOTES = 5


def notes_of(result: TrialResult) -> tuple[str, ...]:
    """What a person should know of a trial besides; that a budget was not held is told once for all of them."""
    told = dict.fromkeys(one_line(note, 500) for note in result.notes if not note.startswith(UNHELD))
    notes = tuple(told)
    hidden = len(notes) - _MOST_NOTES
    return (*notes[:_MOST_NOTES], f"and {count(hidden, 'more note')} in the record") if hidden > 0 else notes


def last_printed(folder: Path, lines: int) -> tuple[str, ...]:
    """The last *lines* that the check of an attempt printed, harmless; a line before them says where the rest is."""
    text = clean(_tail(folder / _CHECK_LOG)).strip("\n")
    found = [middle(line.rstrip(), _WIDEST) for line in text.split("\n")] if text.strip() else []
    if len(found) <= lines:
        return tuple(found)
    return (f"… more in {_CHECK_LOG} …", *found[-lines:])


def last_seen(result: TrialResult, folder: Path) -> str | None:
    """What the agent of the attempt in *folder* did last before it was stopped, where that is known."""
    if result.failure is None or result.failure.code not in _STOPPED:
        return None
    events = events_path(folder)
    if events is None:
        words = [line for line in clean(_tail(folder / _TEXT)).split("\n") if line.strip()]
        return f"printed: {one_line(words[-1], _WIDEST)}" if words else None
    said = (_said_in(line) for line in reversed(_tail(events).split("\n")))
    return next((one_line(text, _WIDEST) for text in said if text), None)


def _said_in(line: str) -> str | None:
    """What the event in *line* tells; the first one of a tail may be half of a line."""
    try:
        return said_of(decode_event(line.encode())) if line.strip() else None
    except WireError:
        return None


def _tail(path: Path) -> str:
    """The end of the file at *path*; nothing where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
