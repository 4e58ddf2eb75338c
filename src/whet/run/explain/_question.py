"""Ask one question: restore the session as a copy at its old paths, resume it, and keep the answer."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from whet.agents.contract import Resume
from whet.errors import AttemptError, StoreError, UsageError, WorkspaceError
from whet.grade.evidence import QUESTIONS_FILE
from whet.model import codec
from whet.model.grade import ExplainQuestion, Failure, Location
from whet.model.run import Execution, Trial
from whet.model.session import SessionSummary, Usage
from whet.record.folder import write_atomically
from whet.run.attempt.attempt import Attempt
from whet.run.attempt.folders import AttemptFolders
from whet.run.attempt.home import SessionState, restore_state
from whet.run.attempt.record import AttemptRecord
from whet.run.attempt.session import run_agent
from whet.run.attempt.trial import verdict
from whet.run.context import RunContext
from whet.run.explain._subject import ExplainedAttempt
from whet.run.other.regrade import restore_workspace
from whet.run.scratch import noted_scratch
from whet.workspace.contract import SharedWorkspace, Workspace
from whet.workspace.copy import remove_tree

if TYPE_CHECKING:
    pass

EXPLANATIONS_FILE = "explanations.json"
EXPLANATIONS_DIR = "explanations"
SCHEMA = "whet/explanations/1"
ExplanationStatus = Literal["answered", "failed", "errored"]


class Explanation(Struct, frozen=True, kw_only=True):
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
    # The part of the usage that no provider was asked for, and whether a part of the cost is unknown.
    unpaid_usage: Usage = field(default_factory=Usage)
    unpriced: bool = False
    steps: int
    started_at: str
    duration_s: float
    workspace: str | None
    artifact_dir: str
    notes: tuple[str, ...] = ()


class Explanations(Struct, frozen=True, kw_only=True):
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
        answers = [
            explanation
            for explanation in self.explanations
            if explanation.question == question and explanation.status == "answered"
        ]
        return answers[-1] if answers else None

    @property
    def next_number(self) -> int:
        """The number of the next question."""
        return max((explanation.number for explanation in self.explanations), default=0) + 1

    def adding(self, more: Explanation) -> Explanations:
        """Return the explanations with one *more*."""
        return replace(self, explanations=(*self.explanations, more))


class Interview(Struct, frozen=True, kw_only=True):
    """A session to ask; each question gets a copy of its own, so that no answer depends on another."""

    context: RunContext
    subject: ExplainedAttempt
    session: SessionSummary
    state: SessionState
    execution: Execution

    async def ask(self, question: ExplainQuestion, number: int) -> Explanation:
        """Ask one question; errors become data, as in an attempt."""
        where = f"{EXPLANATIONS_DIR}/{number}"
        runner, artifacts = self.execution.runner.id, f"{self.subject.attempt.artifact_dir}/{where}"
        record = AttemptRecord(runner=runner, number=number, artifact_dir=artifacts)
        lacking = None
        try:
            _make_anew(self.context.run_dir / artifacts)
            make_scratch(self.context.scratch)
            with noted_scratch(self.context.run_dir, self.context.scratch):
                folders, lacking = await anyio.to_thread.run_sync(self._restore)
                resume = Resume(session_id=self.state.session_id, usage=self.session.usage)
                trial = self._trial(question.question)
                context = await self._in_container(trial, artifacts)
                await run_agent(Attempt(context=context, folders=folders, trial=trial, record=record), resume)
        except AttemptError as error:
            record.fail(self.context, error)
        record.duration_s = time.monotonic() - record.began
        return self._explanation(question, record, where, lacking)

    async def _in_container(self, trial: Trial, attempt: str) -> RunContext:
        """Return the context with a container for this question, if the agent runs in one."""
        if self.context.container_pool is None:
            return self.context
        sandbox, _ = await self.context.container_pool.sandbox(trial, attempt)
        return replace(self.context, sandbox=sandbox)

    def _trial(self, question: str) -> Trial:
        """Return the trial with the question as its prompt."""
        case = replace(self.execution.case, prompt=question)
        return Trial(key=self.subject.result.key, execution=replace(self.execution, case=case))

    def _restore(self) -> tuple[AttemptFolders, str | None]:
        """Restore workspace and home as the session left them; return what the workspace lacks."""
        home, temporary = Path(self.state.home), Path(self.state.temporary)
        try:
            home.mkdir()
            temporary.mkdir()
            restore_state(self.subject.folder, home)
        except OSError as error:
            raise WorkspaceError(f"the session cannot be restored: {error}") from error
        workspace, lacking = self._workspace(Path(self.state.workspace))
        return AttemptFolders(workspace=workspace, home=home, temporary=temporary, shared=False), lacking

    def _workspace(self, path: Path) -> tuple[Workspace, str | None]:
        if not path.is_relative_to(self.context.scratch):
            if not path.is_dir():
                raise WorkspaceError(f"the folder that it worked in is gone: {path}", hint="make it again")
            return SharedWorkspace(path, method="given"), f"it worked in {path} as it is now"
        gaps, _ = restore_workspace(self.subject.record, self.subject.result, path)
        return SharedWorkspace(path, method="copy"), gaps.workspace

    def _explanation(
        self, question: ExplainQuestion, record: AttemptRecord, where: str, lacking: str | None
    ) -> Explanation:
        outcome = verdict(record, expected_fail=False)
        status: ExplanationStatus
        if outcome == "passed":
            status = "answered"
        elif outcome == "failed":
            status = "failed"
        else:
            status = "errored"
        session = record.session
        session_id = session.session_id if session else None
        if session_id is not None and session_id != self.state.session_id:
            record.notes.append(f"it continued as another session: {session_id}")
        return Explanation(
            number=record.number,
            question=self.context.masker.text(question.question),
            expectation=question.expectation,
            location=question.location,
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
            notes=tuple(record.masked_notes(self.context.masker)),
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


class _QuestionsFile(Struct, frozen=True):
    questions: tuple[ExplainQuestion, ...] = ()


def questions_for(folder: Path, texts: Iterable[str]) -> tuple[ExplainQuestion, ...]:
    """Return the questions to ask: those *texts*, or else those that the attempt in *folder* left, without repeats."""
    typed_questions = tuple(ExplainQuestion(question=text) for text in texts)
    if any(not question.question.strip() for question in typed_questions):
        raise UsageError("--ask needs a question")
    questions = typed_questions or _read_questions(folder)
    if not questions:
        raise UsageError(
            f"{folder}: no question was left for its agent",
            hint='ask one with --ask "...", or give expectations an explain="..."',
        )
    return tuple({question.question: question for question in reversed(questions)}.values())[::-1]


def _read_questions(folder: Path) -> tuple[ExplainQuestion, ...]:
    file = folder / QUESTIONS_FILE
    if not file.is_file():
        return ()
    try:
        return codec.decode_file(file, _QuestionsFile).questions
    except (OSError, codec.WireError) as error:
        raise StoreError(f"{file} cannot be read: {error}") from error


def read_explanations(folder: Path, fresh: Explanations) -> Explanations:
    """What was asked before, or *fresh*."""
    file = folder / EXPLANATIONS_FILE
    if not file.is_file():
        return fresh
    try:
        return codec.decode_file(file, Explanations)
    except (OSError, codec.WireError) as error:
        raise StoreError(f"{file} cannot be read: {error}", hint="move it away to start again") from error


def write_explanations(folder: Path, explanations: Explanations) -> None:
    """Write the explanations in one step."""
    try:
        write_atomically(folder / EXPLANATIONS_FILE, codec.encode_pretty(explanations))
    except OSError as error:
        raise StoreError(f"{folder / EXPLANATIONS_FILE} cannot be written: {error.strerror}") from error
