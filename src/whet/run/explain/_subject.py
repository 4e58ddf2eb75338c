"""Find what to explain: the attempt in a folder, and the session of its agent, if it can be resumed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whet import plugins
from whet.errors import StoreError, UsageError
from whet.grade.evidence import QUESTIONS_FILE, load_report
from whet.model import codec
from whet.model.grade import ExplainQuestion
from whet.model.request import Settings
from whet.model.run import STATE_FILE, AttemptResult, Execution, Runner, TrialResult
from whet.model.session import SessionSummary
from whet.model.suite import Case, Limits, WorkspaceSpec
from whet.plan.skill_copies import given_runner
from whet.reading.paths import why_no_folder
from whet.reading.text import count
from whet.record.folder import RUN_FILE
from whet.record.read.run import RecordedRun, read_run
from whet.run.attempt.home import SessionState, read_state
from whet.run.readiness import look_at_runner
from whet.run.scratch import names_scratch

_HINT = "name the folder of a trial, such as .whet/runs/latest/trials/CASE/RUNNER/default/1"


class ExplainedAttempt(Struct, frozen=True, kw_only=True):
    """One attempt of a recorded run; the folders in `result` are those of this attempt."""

    record: RecordedRun
    result: TrialResult
    attempt: AttemptResult

    @property
    def folder(self) -> Path:
        """The folder of its artifacts."""
        return self.record.run_dir / self.attempt.artifact_dir

    @property
    def name(self) -> str:
        """The name of the attempt in messages."""
        key = self.result.key
        which = f", attempt {self.attempt.number}" if len(self.result.attempts) > 1 else ""
        return f"{key.case} @ {key.runner} #{key.number}{which}"


def find_subject(folder: Path) -> ExplainedAttempt:
    """Return the attempt of *folder*, or the one that decided its trial, or the only one below with questions."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: {why_no_folder(folder)}", hint=_HINT)
    place = folder.resolve()
    run_dir = next((subject for subject in (place, *place.parents) if (subject / RUN_FILE).is_file()), None)
    if run_dir is None:
        raise UsageError(f"{folder} is not the folder of a trial: it belongs to no run", hint=_HINT)
    record = read_run(run_dir)
    record.refuse_empty()
    below = str(place.relative_to(run_dir))
    subjects = list(_subjects(record, below))
    if len(subjects) > 1:
        subjects = [subject for subject in subjects if (subject.folder / QUESTIONS_FILE).is_file()]
        if len(subjects) != 1:
            raise UsageError(f"{folder} holds {count(len(subjects), 'trial')} with questions, not one", hint=_HINT)
    if not subjects:
        raise UsageError(f"{folder} is not the folder of a trial that has ended", hint=_HINT)
    record.check_files(subjects[0].result.key)
    return subjects[0]


def _subjects(record: RecordedRun, below: str) -> Iterator[ExplainedAttempt]:
    """Yield the attempt whose folder is *below*, or else the deciding attempt of each trial in that folder."""
    for result in record.results.values():
        exact = [attempt for attempt in result.attempts if attempt.artifact_dir == below]
        for attempt in exact or result.attempts[-1:]:
            if exact or below == "." or attempt.artifact_dir.startswith(f"{below}/"):
                at = replace(result, artifact_dir=attempt.artifact_dir, workspace_dir=attempt.workspace_dir)
                yield ExplainedAttempt(record=record, result=at, attempt=attempt)


def session_of(subject: ExplainedAttempt) -> SessionSummary:
    """Return the session of the attempt, however it ended."""
    if not (subject.folder / "session.json").is_file():
        raise UsageError(f"{subject.name} has no session: its agent never started one")
    return load_report(subject.folder)


def state_of(subject: ExplainedAttempt, session: SessionSummary) -> SessionState:
    """Return what resumes that session; raises if it cannot be resumed."""
    try:
        state = read_state(subject.folder)
    except (OSError, codec.WireError) as error:
        raise StoreError(f"{subject.folder}: the state of its session cannot be read: {error}") from error
    if state is not None:
        _refuse_strange(subject, state)
        return state
    if not plugins.find("agents", session.agent)().state:
        raise UsageError(
            f'{subject.name}: an agent of type "{session.agent}" has no session that could be resumed',
            hint="questions are for agents that remember what they did, such as claude-code or codex",
        )
    if subject.attempt.failure is None:
        raise UsageError(
            f"{subject.name} passed, and the sessions of trials that passed are not kept",
            hint="ask about one that failed",
        )
    if session.session_id is None:
        raise UsageError(f"{subject.name} cannot be resumed: it ended before its agent gave the id of its session")
    notes = "; ".join(note for note in subject.result.notes if "session" in note)
    raise UsageError(f"{subject.name} cannot be resumed: its session was not kept" + (f": {notes}" if notes else ""))


def _refuse_strange(subject: ExplainedAttempt, state: SessionState) -> None:
    """Raise if the record names a folder that no run makes, or an option of a program: it may come from anywhere."""
    file = subject.folder / STATE_FILE
    strange = _strange_folder(subject.record, state)
    if strange is not None:
        raise StoreError(
            f"{file}: no run makes a folder at {strange}",
            hint="the file was changed or comes from elsewhere, so nothing is asked",
        )
    if state.session_id.startswith("-"):
        raise StoreError(f"{file}: {state.session_id} is not the id of a session")


def _strange_folder(record: RecordedRun, state: SessionState) -> str | None:
    """Return the first folder outside of the scratch folder, except the one that the run worked in."""
    scratch = Path(state.home).parent
    if not names_scratch(scratch):
        return state.home
    working_folder = (record.asked.workspace or {}).get("cwd")
    folders = [state.home, state.temporary, *([state.workspace] if state.workspace != working_folder else [])]
    return next((path for path in folders if Path(path).parent != scratch or Path(path).name == ".."), None)


def find_runner(subject: ExplainedAttempt, session: SessionSummary, state: SessionState, settings: Settings) -> Runner:
    """Return the runner of the attempt; raises if it is gone, or has another agent or home by now."""
    name = subject.result.key.runner
    where = str(settings.file) if settings.file else "the settings"
    runner = next((candidate for candidate in settings.runners if candidate.id == name), None)
    if runner is None:
        raise UsageError(
            f'{subject.name} is of runner "{name}", which is not in {where}',
            hint="put it back, or name the settings file that has it with --config",
        )
    if runner.agent != session.agent:
        raise UsageError(
            f'runner "{name}" is of type "{runner.agent}" in {where}, and the session is one of "{session.agent}"',
            hint="only the same agent can resume its session: undo the change, or name another file with --config",
        )
    if bool(runner.options.get("inherit_home")) == state.own_home:
        home = "a home of its own" if state.own_home else "your own home"
        raise UsageError(
            f'the session is in {home}, and inherit_home of runner "{name}" in {where} says otherwise',
            hint="undo the change, or name another settings file with --config",
        )
    return runner


def execution_of(subject: ExplainedAttempt, runner: Runner, settings: Settings) -> Execution:
    """Return what a question runs as, with the limits of the settings; those of the case are for its task."""
    limits = Limits(timeout_s=settings.timeout_s, budget_usd=settings.budget_usd, max_steps=settings.max_steps)
    key = subject.result.key
    case = Case(id=key.case, prompt="", checks=())
    runner = given_runner(runner, settings)
    return Execution(case=case, runner=runner, arm=key.arm, limits=limits, workspace=WorkspaceSpec(), trials=1)


def doubts(subject: ExplainedAttempt, runner: Runner, questions: Iterable[ExplainQuestion]) -> Iterator[str]:
    """Yield what may make the answers less reliable; raises if there can be none."""
    cases = tuple(Case(id=subject.result.key.case, prompt=question.question, checks=()) for question in questions)
    for finding in look_at_runner(runner, cases, {}, os.environ):
        if finding.state == "problem":
            raise UsageError(f'runner "{runner.id}": {finding.message}', hint=finding.hint)
        if finding.state == "warning":
            yield f"{finding.message}: {finding.hint}" if finding.hint else finding.message
    before = subject.record.asked.setting(f"runners.{runner.id}.agent.model")
    if before != runner.model:
        now, then = (f"model {name}" if name else "no model" for name in (runner.model, before))
        yield f'runner "{runner.id}" names {now}, and named {then} when it was run'
