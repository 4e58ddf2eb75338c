"""One attempt: ready the ground, run the agent, read what it printed, look at what it changed, grade, clear away."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from whet.agents.agent import Agent, AgentCommand, Resume, Signs, Task
from whet.agents.observing import Observer, Watch
from whet.agents.turns import Sieve, Turn
from whet.dataclass import dataclass
from whet.errors import (
    AgentError,
    AttemptError,
    ContextExhausted,
    ModelRejected,
    PromptTooLong,
    Vacuous,
    WorkspaceError,
    WorkspaceSpoiled,
)
from whet.grade.grader import QUESTIONS_FILE
from whet.ground.ceilings import suspected
from whet.ground.changes import note_folders, record_changes
from whet.ground.packages import in_package
from whet.ground.sandbox import Boundary, Command, Ended
from whet.ground.workspace import SHORTAGES
from whet.ground.workspaces import skills_in
from whet.model import plugins, wire
from whet.model.run import UNHELD, Trial
from whet.model.seen import Event
from whet.model.session import SessionSummary
from whet.model.suite import Limits
from whet.run import ground as grounds
from whet.run.attempt_record import AttemptRecord, recording
from whet.run.ending import judge_ending, refuse_contaminated, silence_at_limit
from whet.run.grading import evidence_of, grade, inform, survey
from whet.run.ground import Ground, SharedGround
from whet.run.parts import Parts
from whet.run.scratch import Capture
from whet.run.session_state import Resumable, collected, furnish, keep_state, login_secrets


async def run_attempt(parts: Parts, shared: SharedGround, trial: Trial, number: int) -> AttemptRecord:
    """Carry out one attempt; every failure of it is data in the record."""

    async def work(record: AttemptRecord) -> None:
        _refuse_rejected(parts, trial)
        os.makedirs(parts.run_dir / record.artifact_dir, exist_ok=True)  # noqa: PTH103 - twice as fast as Path.mkdir
        await _on_ground(parts, shared, trial, record)

    return await recording(parts, trial, number, work)


def _refuse_rejected(parts: Parts, trial: Trial) -> None:
    """A model that the provider rejected once is not asked for again."""
    if trial.key.runner in parts.rejected:
        raise ModelRejected(parts.rejected[trial.key.runner])


async def _on_ground(parts: Parts, shared: SharedGround, trial: Trial, record: AttemptRecord) -> None:
    artifact_dir = parts.run_dir / record.artifact_dir
    ground = await grounds.lay(parts, shared, trial, artifact_dir)
    try:
        try:
            await _survey(parts, ground, trial, record)
            await run_agent(parts, ground, trial, record)
            refuse_contaminated(parts, trial, record)
            await _look(parts, ground, record)
            await grade(parts, trial, record, await evidence_of(parts, trial, record, ground.workspace.path))
        except AttemptError as error:
            record.fail(parts, error)
            await _look_back(parts, ground, record)
            await _inform(parts, ground, trial, record)
        await _keep(parts, ground, trial, record)
    finally:
        with anyio.CancelScope(shield=True):
            record.notes += await grounds.leave(ground)


async def _survey(parts: Parts, ground: Ground, trial: Trial, record: AttemptRecord) -> None:
    """Let graders look at the workspace as the agent will find it."""
    record.baseline = await survey(parts, trial, ground.workspace.path, ground.aside)
    if record.baseline is not None and record.baseline.folders:
        note_folders(parts.run_dir / record.artifact_dir, record.baseline.folders)
    if not record.vacuous:
        return
    if parts.plan.strict:
        raise Vacuous("every expectation held before the agent began", hint="expect something that the agent must do")
    record.notes.append("every expectation held before the agent began: the case is vacuous")


async def _inform(parts: Parts, ground: Ground, trial: Trial, record: AttemptRecord) -> None:
    """See what holds although the agent came to no good end; failing at that must not hide why."""
    checks = [check for check in trial.execution.case.checks if parts.graders[check.grader].informs]
    if record.unfinished is None or record.grades or not checks:
        return
    try:
        await inform(parts, checks, record, await evidence_of(parts, trial, record, ground.workspace.path))
    except AttemptError as error:
        record.notes.append(f"what holds nevertheless could not be seen: {error.message}")


async def _keep(parts: Parts, ground: Ground, trial: Trial, record: AttemptRecord) -> None:
    """Keep what somebody wants to look at or to ask about; failing at that must not hide why."""
    artifact_dir = parts.run_dir / record.artifact_dir
    as_expected = _went_as_expected(trial, record)
    if record.resumable is not None and (not as_expected or (artifact_dir / QUESTIONS_FILE).exists()):
        record.notes += await anyio.to_thread.run_sync(keep_state, ground, record.resumable, artifact_dir, parts.masker)
    if as_expected or (record.failure is not None and record.failure.phase == "start"):
        return
    try:
        record.workspace_dir, not_kept = await grounds.keep(parts, ground, trial, record.number)
        record.notes += not_kept
    except (AttemptError, OSError, RecursionError, ValueError) as error:
        # An agent may leave anything there, and the verdict stands.
        record.notes.append(f"the workspace could not be kept: {error}")


def _went_as_expected(trial: Trial, record: AttemptRecord) -> bool:
    if trial.execution.case.expected_fail:
        return record.failure is not None and record.failure.code == "assertion"
    return record.passed


EVENTS = "events.jsonl"
_PIECE = 1024 * 1024
# How a session that is stopped on the way can still be read to its end.
_TELLING = (ContextExhausted, PromptTooLong)


@dataclass(frozen=True, slots=True)
class _Conversation:
    """An agent on one task: how it is started, who reads along, and where its words are kept."""

    task: Task
    agent: Agent
    asked: AgentCommand
    observer: Observer
    watch: Watch
    transcript: Path


async def run_agent(
    parts: Parts, ground: Ground, trial: Trial, record: AttemptRecord, resume: Resume | None = None
) -> None:
    """Start the agent, or let it go on with an earlier session, and note its session once it has ended well."""
    artifact_dir = parts.run_dir / record.artifact_dir
    talk = _converse(artifact_dir, _task(parts, ground, trial, resume), trial.execution.limits, parts.listener(trial))
    talk = replace(talk, asked=await parts.unpacked.given_to(talk.asked))
    parts.masker.learn(login_secrets(talk.asked))
    if talk.asked.home_files or talk.asked.home_copies:
        await anyio.to_thread.run_sync(furnish, ground.home, talk.asked)
    ended: Ended | None = None
    try:
        try:
            ended, tail = await _stream(parts, ground, trial, talk)
            ended = suspected(ended, parts.ceilings, tail)
        finally:
            _note_figures(trial, record, talk)
        judge_ending(
            ended,
            talk.observer,
            talk.asked,
            timeout_s=trial.execution.limits.timeout_s or 0,
            silence_s=parts.model_silence_s,
            tail=tail,
        )
        if ended.reached is not None:
            record.notes.append(f"ran into its ceiling of {ended.reached} on the way")
    except AgentError as error:
        record.unfinished = replace(_session(trial, record, talk, ended), complete=False)
        if ended is not None or isinstance(error, _TELLING):
            # No check sees it, but whoever looks for the reason does.
            _write_session(parts, artifact_dir, record.unfinished)
        raise
    record.session = _session(trial, record, talk, ended)
    _write_session(parts, artifact_dir, record.session)
    if talk.observer.unreadable is not None:
        raise talk.observer.unreadable


def _note_figures(trial: Trial, record: AttemptRecord, talk: _Conversation) -> None:
    """What the session took and used, however it ended."""
    record.usage, record.steps = talk.observer.usage_or_guess(talk.transcript), talk.observer.steps
    record.detected_skills, record.trusted = talk.observer.detected_skills(), talk.asked.trusted
    record.resumable = _resumable(talk)
    _note_unheld(trial, record)


def _note_unheld(trial: Trial, record: AttemptRecord) -> None:
    """Unknown is not nothing: an agent of which no cost is known may have spent any."""
    budget = trial.execution.limits.budget_usd
    if budget is not None and record.usage.cost_usd is None:
        record.notes.append(f"{UNHELD}: it is ${budget:g}, and what the agent spent is not known")


def _converse(
    artifact_dir: Path, task: Task, limits: Limits, then: Callable[[Event], None] | None = None
) -> _Conversation:
    agent: Agent = plugins.find("agents", task.runner.agent)()
    asked = agent.command(task)
    watch = Watch(
        max_steps=limits.max_steps,
        budget_usd=limits.budget_usd,
        model=task.runner.model or asked.model,
        prompt=task.prompt,
        placed_skills=tuple(skill.name for skill in task.runner.skills) or asked.placed_skills,
    )
    observer = Observer(asked.output, agent.events, events_path=artifact_dir / EVENTS, watch=watch, then=then)
    transcript = artifact_dir / ("transcript.txt" if asked.output == "text" else "transcript.jsonl")
    return _Conversation(task, agent, asked, observer, watch, transcript)


def _resumable(talk: _Conversation) -> Resumable | None:
    """The session, where its agent can resume one and has told its id."""
    told = talk.observer.started.session_id
    return Resumable(session_id=told, names=talk.agent.state, asked=talk.asked) if told and talk.agent.state else None


def _session(trial: Trial, record: AttemptRecord, talk: _Conversation, ended: Ended | None) -> SessionSummary:
    runner, observer = trial.execution.runner, talk.observer
    return SessionSummary(
        runner=runner.id,
        agent=runner.agent,
        model=observer.started.model or talk.watch.model,
        session_id=observer.started.session_id,
        version=observer.started.version,
        prompt=trial.execution.case.prompt,
        final_output=observer.final_output(talk.transcript),
        exit_code=ended.exit_code if ended else None,
        complete=ended is not None,
        steps=record.steps,
        usage=record.usage,
        placed_skills=talk.watch.placed_skills,
        started_at=record.started_at,
        duration_s=ended.duration_s if ended else None,
    )


def _write_session(parts: Parts, artifact_dir: Path, session: SessionSummary) -> None:
    # The answer was masked with the transcript that it was read from; the prompt is as the author wrote it.
    kept = replace(session, prompt=parts.masker.text(session.prompt)) if parts.masker else session
    (artifact_dir / "session.json").write_bytes(wire.encode_pretty(kept))


def _task(parts: Parts, ground: Ground, trial: Trial, resume: Resume | None) -> Task:
    return Task(
        prompt=trial.execution.case.prompt,
        case=trial.key.case,
        runner=trial.execution.runner,
        workspace=ground.workspace.path,
        home=ground.home,
        temporary=ground.temporary,
        suite_dir=parts.plan.suite.source.parent,
        settings_dir=parts.settings_dir,
        environ=parts.environ,
        variant=trial.key.variant,
        trial=trial.key.number,
        resume=resume,
        skill=trial.execution.skill,
        workspace_skills=skills_in(ground.workspace.path),
    )


async def _stream(parts: Parts, ground: Ground, trial: Trial, talk: _Conversation) -> tuple[Ended, bytes]:
    """Run the agent's process, its output on the way to disk and to the observer; how it ended, and its last words."""
    asked, observer = talk.asked, talk.observer
    cwd, shown_at = in_package(trial.execution.workspace.package, ground.workspace.path)
    timeout_s = trial.execution.limits.timeout_s or 0
    most = parts.max_output_bytes
    stdout = Capture(talk.transcript, masker=parts.masker, most_bytes=most, then=observer.feed)
    stderr = Capture(talk.transcript.with_name("stderr.log"), masker=parts.masker, most_bytes=most)
    env = {**asked.env, **trial.execution.case.env, "WHET_RUN": parts.run_id}
    command = Command(argv=asked.argv, env=env, cwd=cwd, stdin=asked.stdin)
    boundary = replace(_boundary(parts, ground, trial, asked), shown_at=shown_at)
    observer.turn = Turn(timeout_s)
    out, log = (
        _sifted(parts, observer, signs, kept) for signs, kept in ((asked.signs, stdout), (asked.log_signs, stderr))
    )
    try:
        try:
            ended = await parts.sandbox.run(command, boundary, timeout_s=timeout_s, stdout=out, stderr=log)
        finally:
            for sink in (out, log):
                if isinstance(sink, Sieve):
                    sink.finish()
            stdout.close()
            observer.finish()
            stderr.close()
        found = collected(ground.home, asked, parts.masker)
        for event in talk.agent.ending(found):
            observer.take(event)
        silent = silence_at_limit(observer, asked, timeout_s, parts.model_silence_s) if ended.timed_out else None
        if silent is not None:
            # For whoever reads the session, or plays it again.
            observer.take(silent)
    finally:
        # Also where the agent was stopped for going beyond its limits.
        observer.close()
    await anyio.to_thread.run_sync(_read_again, talk, found, silent)
    return ended, stderr.tail or stdout.tail


def _read_again(talk: _Conversation, found: Mapping[str, bytes], silent: Event | None) -> None:
    """Read the transcript once more where files of the home say more about it, such as what sub-agents did."""
    if not found:
        return
    agent: Agent = plugins.find("agents", talk.task.runner.agent)()
    agent.command(talk.task)
    if not agent.learn(found):
        return
    again = Observer(
        talk.asked.output,
        agent.events,
        events_path=talk.transcript.with_name(EVENTS),
        watch=replace(talk.watch, max_steps=None, budget_usd=None),
    )
    try:
        with talk.transcript.open("rb") as file:
            while data := file.read(_PIECE):
                again.feed(data)
        again.finish()
        for event in (*agent.ending(found), *((silent,) if silent else ())):
            again.take(event)
    finally:
        again.close()
    talk.observer.adopt(again)


def _sifted(parts: Parts, observer: Observer, signs: Signs | None, kept: Capture) -> Capture | Sieve:
    """A stream with its signs looked at, where the agent has any there."""
    if signs is None:
        return kept
    return Sieve(signs, kept, masker=parts.masker, sign=observer.turn.sign, trouble=observer.take)


def _boundary(parts: Parts, ground: Ground, trial: Trial, asked: AgentCommand) -> Boundary:
    # The user's own home, where a runner asks for it by `inherit_home`.
    homes = {ground.home, Path(asked.env.get("HOME", ground.home))}
    return Boundary(
        writable=(ground.workspace.path, ground.temporary, *homes),
        readable=(*asked.readable, *asked.named, *parts.mounts),
        hidden=(*parts.hidden_from(trial), *parts.plan.suite.held_out),
        network=asked.network,
        ceilings=parts.ceilings,
    )


async def _look(parts: Parts, ground: Ground, record: AttemptRecord) -> None:
    """Take note of what changed in the workspace."""
    try:
        record.changes = await grounds.changes_of(ground)
    except WorkspaceError as error:
        raise _spoiled(error) from error
    keep = partial(
        record_changes, ground.workspace.path, record.changes, parts.run_dir / record.artifact_dir, parts.masker
    )
    record.notes += await anyio.to_thread.run_sync(keep) if record.changes else keep()
    if record.changes.diff:
        parts.keep_text(parts.run_dir / record.artifact_dir / "diff.patch", record.changes.diff)


def _spoiled(error: WorkspaceError) -> WorkspaceError:
    """The same look succeeded before the agent began: unless the machine ran out of something, it is its doing."""
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in SHORTAGES:
        return error
    return WorkspaceSpoiled(error.message, hint=error.hint)


async def _look_back(parts: Parts, ground: Ground, record: AttemptRecord) -> None:
    """The same after a failure, for whoever wants to know why; a second failure must not hide the first."""
    if record.changes:
        return
    try:
        await _look(parts, ground, record)
    except AttemptError as error:
        record.notes.append(f"what changed could not be seen: {error.message}")
