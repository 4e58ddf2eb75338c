"""Questions and explanations: those that an attempt left, and the file that answers are kept in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from whet import wire
from whet.errors import StoreError, UsageError
from whet.expectations.failure import Asked
from whet.grade.base import QUESTIONS_FILE
from whet.model.grade import Failure, Location
from whet.model.session import Usage
from whet.store.folder import write_atomically

EXPLANATIONS_FILE = "explanations.json"
EXPLANATIONS_DIR = "explanations"
SCHEMA = "whet/explanations/1"
ExplanationStatus = Literal["answered", "failed", "errored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What came of asking a question once; `workspace` says what the agent did not find as it had left it, if so."""

    number: int
    question: str
    expectation: str | None
    location: Location | None
    status: ExplanationStatus
    answer: str
    failure: Failure | None
    session_id: str | None
    model: str | None
    usage: Usage
    cost_usd: float | None
    steps: int
    started_at: str
    duration_s: float
    workspace: str | None
    artifact_dir: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """All that was ever asked of one session, in order; nothing is taken out again."""

    schema: str = SCHEMA
    trial: str
    attempt: int
    runner: str
    agent: str
    session_id: str | None
    explanations: tuple[Explanation, ...] = ()

    def answer(self, question: str) -> Explanation | None:
        """The last answer to *question*, if there is one."""
        found = [each for each in self.explanations if each.question == question and each.status == "answered"]
        return found[-1] if found else None

    @property
    def next_number(self) -> int:
        """The number of the next question."""
        return max((each.number for each in self.explanations), default=0) + 1

    def adding(self, more: Explanation) -> Explanations:
        """The same and *more*."""
        return replace(self, explanations=(*self.explanations, more))


@dataclass(frozen=True, slots=True)
class _Kept:
    questions: tuple[Asked, ...] = ()


def questions_for(folder: Path, typed: Iterable[str]) -> tuple[Asked, ...]:
    """The questions to ask: those *typed*, or else those that the attempt in *folder* left; each of them once."""
    given = tuple(Asked(question=text) for text in typed)
    if any(not asked.question.strip() for asked in given):
        raise UsageError("--ask needs a question")
    found = given or _kept(folder)
    if not found:
        raise UsageError(
            f"{folder}: no question was left for its agent",
            hint='ask one with --ask "...", or give expectations an explain="..."',
        )
    return tuple({asked.question: asked for asked in reversed(found)}.values())[::-1]


def _kept(folder: Path) -> tuple[Asked, ...]:
    file = folder / QUESTIONS_FILE
    if not file.is_file():
        return ()
    try:
        return wire.decode(file.read_bytes(), _Kept).questions
    except (OSError, wire.WireError) as error:
        raise StoreError(f"{file} cannot be read: {error}") from error


def read_explanations(folder: Path, fresh: Explanations) -> Explanations:
    """What was asked before, or *fresh*."""
    file = folder / EXPLANATIONS_FILE
    if not file.is_file():
        return fresh
    try:
        return wire.decode(file.read_bytes(), Explanations)
    except (OSError, wire.WireError) as error:
        raise StoreError(f"{file} cannot be read: {error}", hint="move it away to begin anew") from error


def write_explanations(folder: Path, explanations: Explanations) -> None:
    """Keep them, in one step."""
    try:
        write_atomically(folder / EXPLANATIONS_FILE, wire.encode_pretty(explanations))
    except OSError as error:
        raise StoreError(f"{folder / EXPLANATIONS_FILE} cannot be written: {error.strerror}") from error
