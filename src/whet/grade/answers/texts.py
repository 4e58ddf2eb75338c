"""The texts of a session that assertions and judges look at, by name: answer, trace, paths, and files by path."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whet.grade.evidence import EventLog, Evidence
from whet.model.eval_cases import CREATED_FILES, FILE_PREFIX, LAST_MESSAGE, TRACE
from whet.model.events import Message
from whet.model.session import Session
from whet.workspace.protected import find
from whet.workspace.walk import open_file

_TRANSCRIPT = "transcript.jsonl"
_LARGEST = 10 * 1024 * 1024
# What a judge sees of a long trace, and of an empty list of files.
_SHOWN_LINES = 12
_NO_FILES = "(no file changes)"


class NoText(Exception):
    """There is no such text, and why."""


class AssertionSubject(Struct, frozen=True, kw_only=True):
    """A session, the workspace it left with what it made there, and the names of the skill under test."""

    session: Session
    workspace: Path
    skill_names: frozenset[str] = frozenset()
    created: tuple[str, ...] = ()
    transcript: Path | None = None

    @classmethod
    def of(cls, evidence: Evidence) -> AssertionSubject:
        """Return what *evidence* shows."""
        log = EventLog(evidence.events_path, len(evidence.session.turns))
        return cls(
            session=Session.of(evidence.session, log),
            workspace=evidence.workspace,
            created=evidence.changes.created,
            transcript=transcript_of(evidence),
        )

    def in_turn(self, turn: int) -> AssertionSubject:
        """Return what one turn of a conversation shows; raises `NoText` if it was not taken."""
        turns = self.session.turns
        if turn > len(turns):
            raise NoText(f"turn {turn} was not taken")
        return replace(self, session=turns[turn - 1])

    @property
    def output(self) -> str:
        """The agent's answer."""
        return self.session.final_output


def transcript_of(evidence: Evidence) -> Path:
    """Return where the record holds what the agent printed, if that was records."""
    folder = evidence.artifact_dir if evidence.events_path is None else evidence.events_path.parent
    return folder / _TRANSCRIPT


def text_of(name: str | None, subject: AssertionSubject) -> str:
    """Return the text called *name*, the answer without a name; raises `NoText`."""
    if name is not None and name.startswith(FILE_PREFIX):
        return _text_in_file(name.removeprefix(FILE_PREFIX), subject.workspace)
    return _TEXTS.get(name or "", _answer)(subject)


def text_for_judge(name: str, subject: AssertionSubject) -> str:
    """Return the text called *name* as a judge sees it: of a long trace only the ends; raises `NoText`."""
    text = text_of(name, subject)
    if name == CREATED_FILES:
        return text or _NO_FILES
    if name.startswith(FILE_PREFIX) and ("\0" in text or "\ufffd" in text):
        raise NoText(f"{name.removeprefix(FILE_PREFIX)} is not a text file")
    lines = text.split("\n")
    if name != TRACE or len(lines) <= 2 * _SHOWN_LINES:
        return text
    left_out = f"[... {len(lines) - 2 * _SHOWN_LINES} more messages]"
    return "\n".join((*lines[:_SHOWN_LINES], left_out, *lines[-_SHOWN_LINES:]))


def _answer(subject: AssertionSubject) -> str:
    return subject.output


def _commands(subject: AssertionSubject) -> str:
    return "\n".join(subject.session.commands())


def _last_message(subject: AssertionSubject) -> str:
    """Return what the agent said last; of an agent that shows no messages, its answer."""
    messages = (
        event.text
        for event in reversed(subject.session.events)
        if isinstance(event, Message) and event.role == "assistant" and event.phase != "thinking" and event.text
    )
    return next(messages, subject.output)


def _trace(subject: AssertionSubject) -> str:
    transcript = subject.transcript
    if transcript is None or not transcript.is_file():
        raise NoText("the agent printed no records")
    return transcript.read_text("utf-8", "replace").rstrip("\n")


def _created_files(subject: AssertionSubject) -> str:
    return "\n".join(subject.created)


_TEXTS: Mapping[str, Callable[[AssertionSubject], str]] = {
    "commands": _commands,
    LAST_MESSAGE: _last_message,
    TRACE: _trace,
    CREATED_FILES: _created_files,
}


def _text_in_file(path: str, workspace: Path) -> str:
    entry = find(workspace, path)
    if entry.kind != "file" or entry.real is None:
        raise NoText(f"there is no file {path}")
    with io.BufferedReader(open_file(entry.real)) as file:
        if os.fstat(file.fileno()).st_nlink > 1:
            raise NoText(f"{path} has a second name, so it may be a file from elsewhere")
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise NoText(f"{path} is larger than {_LARGEST // 1024 // 1024} MiB")
    return data.decode("utf-8", "replace")
