"""Ask one question: restore the session as a copy at its old paths, resume it, and keep the answer."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio.to_thread

from whet.agents.agent import Resume
from whet.dataclass import dataclass
from whet.errors import AttemptError, StoreError, UsageError, WorkspaceError
from whet.grade.evidence import QUESTIONS_FILE
from whet.ground.copying import remove_tree
from whet.ground.workspace import SharedWorkspace, Workspace
from whet.model import wire
from whet.model.grade import Asked, Failure, Location
from whet.model.run import Execution, Trial
from whet.model.session import SessionSummary, Usage
from whet.record.folder import write_atomically
from whet.run.agent_session import run_agent
from whet.run.attempt_record import AttemptRecord
from whet.run.explain_subject import Subject
from whet.run.ground import Ground
from whet.run.parts import AttemptParts
from whet.run.regrade import restore_workspace
from whet.run.scratch import noted_scratch
from whet.run.session_state import SessionState, restore_state
from whet.run.trial import verdict

if TYPE_CHECKING:
    from whet.run.housing import Housing

EXPLANATIONS_FILE = "explanations.json"
EXPLANATIONS_DIR = "explanations"
SCHEMA = "whet/explanations/1"
ExplanationStatus = Literal["answered", "failed", "errored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A question and its answer; `workspace` says what the agent did not find as it had left it."""

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
    # The part of the usage that no provider was asked for, and whether somebody was paid what nobody knows.
    unpaid_usage: Usage = field(default_factory=Usage)
    unpriced: bool = False
    steps: int
    started_at: str
    duration_s: float
    workspace: str | None
    artifact_dir: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """All questions that one session was asked, in order; none is ever removed."""

    schema: str = SCHEMA
    trial: str
    attempt: int
    runner: str
    agent: str
    session_id: str | None
    explanations: tuple[Explanation, ...] = ()

    def answer(self, question: str) -> Explanation | None:
        """Return the last answer to *question*, if there is one."""
        found = [each for each in self.explanations if each.question == question and each.status == "answered"]
        return found[-1] if found else None

    @property
    def next_number(self) -> int:
        """The number of the next question."""
        return max((each.number for each in self.explanations), default=0) + 1

    def adding(self, more: Explanation) -> Explanations:
        """Return the same with *more*."""
        return replace(self, explanations=(*self.explanations, more))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interview:
    """A session to ask; each question gets a copy of its own, so that no answer depends on another."""

    parts: AttemptParts
    subject: Subject
    session: SessionSummary
    state: SessionState
    execution: Execution
    # If the agent runs in containers.
    housing: Housing | None = None

    async def ask(self, asked: Asked, number: int) -> Explanation:
        """Ask one question; errors become data, as in an attempt."""
        where = f"{EXPLANATIONS_DIR}/{number}"
        runner, artifacts = self.execution.runner.id, f"{self.subject.attempt.artifact_dir}/{where}"
        record = AttemptRecord(runner=runner, number=number, artifact_dir=artifacts)
        lacking = None
        try:
            _make_anew(self.parts.run_dir / artifacts)
            make_scratch(self.parts.scratch)
            with noted_scratch(self.parts.run_dir, self.parts.scratch):
                ground, lacking = await anyio.to_thread.run_sync(self._restore)
                resume = Resume(session_id=self.state.session_id, usage=self.session.usage)
                trial = self._trial(asked.question)
                await run_agent(await self._housed(trial, artifacts), ground, trial, record, resume)
        except AttemptError as error:
            record.fail(self.parts, error)
        record.duration_s = time.monotonic() - record.began
        return self._explanation(asked, record, where, lacking)

    async def _housed(self, trial: Trial, attempt: str) -> AttemptParts:
        """Return the parts with a container for this question, if the agent runs in one."""
        if self.housing is None:
            return self.parts
        sandbox = await self.housing.sandbox(trial, attempt)
        if isinstance(sandbox, AttemptError):
            raise sandbox
        return replace(self.parts, sandbox=sandbox)

    def _trial(self, question: str) -> Trial:
        """Return the trial with the question as its prompt."""
        case = replace(self.execution.case, prompt=question)
        return Trial(key=self.subject.result.key, execution=replace(self.execution, case=case))

    def _restore(self) -> tuple[Ground, str | None]:
        """Restore workspace and home as the session left them; return what the workspace lacks."""
        home, temporary = Path(self.state.home), Path(self.state.temporary)
        try:
            home.mkdir()
            temporary.mkdir()
            restore_state(self.subject.folder, home)
        except OSError as error:
            raise WorkspaceError(f"the session cannot be restored: {error}") from error
        workspace, lacking = self._workspace(Path(self.state.workspace))
        return Ground(workspace=workspace, home=home, temporary=temporary, shared=False), lacking

    def _workspace(self, path: Path) -> tuple[Workspace, str | None]:
        if not path.is_relative_to(self.parts.scratch):
            if not path.is_dir():
                raise WorkspaceError(f"the folder that it worked in is gone: {path}", hint="make it again")
            return SharedWorkspace(path, method="given"), f"it worked in {path} as it is now"
        gaps, _ = restore_workspace(self.subject.record, self.subject.result, path)
        return SharedWorkspace(path, method="copy"), gaps.workspace

    def _explanation(self, asked: Asked, record: AttemptRecord, where: str, lacking: str | None) -> Explanation:
        found = verdict(record, expected_fail=False)
        status: ExplanationStatus = "answered" if found == "passed" else "failed" if found == "failed" else "errored"
        session = record.session
        session_id = session.session_id if session else None
        if session_id is not None and session_id != self.state.session_id:
            record.notes.append(f"it continued as another session: {session_id}")
        return Explanation(
            number=record.number,
            question=self.parts.masker.text(asked.question),
            expectation=asked.expectation,
            location=asked.location,
            status=status,
            answer=session.final_output if session and status == "answered" else "",
            failure=record.failure,
            session_id=session_id,
            model=session.model if session else None,
            usage=record.usage,
            cost_usd=record.usage.cost_usd,
            unpaid_usage=record.unpaid_usage,
            unpriced=record.unpriced,
            steps=record.steps,
            started_at=record.started_at,
            duration_s=record.duration_s,
            workspace=lacking,
            artifact_dir=where,
            notes=tuple(record.notes),
        )


def make_scratch(folder: Path) -> None:
    """Make the scratch folder of the session again: an agent finds a session only at its old path."""
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise WorkspaceError(
            f"its session can only be resumed in {folder}, and that cannot be made: {error.strerror}",
            hint="move away what is there, or make its parent folder",
        ) from error


def _make_anew(folder: Path) -> None:
    """Make an empty folder; one that is not in the list yet is left of a question that was interrupted."""
    remove_tree(folder)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be made: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Kept:
    questions: tuple[Asked, ...] = ()


def questions_for(folder: Path, typed: Iterable[str]) -> tuple[Asked, ...]:
    """Return the questions to ask: those *typed*, or else those that the attempt in *folder* left, without repeats."""
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
        return wire.decode_file(file, _Kept).questions
    except (OSError, wire.WireError) as error:
        raise StoreError(f"{file} cannot be read: {error}") from error


def read_explanations(folder: Path, fresh: Explanations) -> Explanations:
    """What was asked before, or *fresh*."""
    file = folder / EXPLANATIONS_FILE
    if not file.is_file():
        return fresh
    try:
        return wire.decode_file(file, Explanations)
    except (OSError, wire.WireError) as error:
        raise StoreError(f"{file} cannot be read: {error}", hint="move it away to start again") from error


def write_explanations(folder: Path, explanations: Explanations) -> None:
    """Write them in one step."""
    try:
        write_atomically(folder / EXPLANATIONS_FILE, wire.encode_pretty(explanations))
    except OSError as error:
        raise StoreError(f"{folder / EXPLANATIONS_FILE} cannot be written: {error.strerror}") from error
