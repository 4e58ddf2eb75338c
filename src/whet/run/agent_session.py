"""The session of an agent: start it in the sandbox, read what it prints on the way to disk, and note how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from whet.agents.agent import Agent, AgentCommand, Resume, Signs, Task
from whet.agents.observing import Observer, Watch
from whet.agents.turns import Sieve, Turn
from whet.dataclass import dataclass
from whet.errors import AgentError, ContextExhausted, PromptTooLong
from whet.ground.ceilings import suspected
from whet.ground.packages import in_package
from whet.ground.sandbox import Boundary, Command, Ended
from whet.ground.workspaces import skills_in
from whet.model import plugins, wire
from whet.model.run import UNHELD, Trial
from whet.model.seen import Event
from whet.model.session import SessionSummary
from whet.model.suite import Limits
from whet.run.attempt_record import AttemptRecord
from whet.run.ending import judge_ending, silence_at_limit
from whet.run.ground import Ground
from whet.run.parts import AttemptParts
from whet.run.scratch import Capture
from whet.run.session_state import Resumable, collected, fill_home, login_secrets

EVENTS = "events.jsonl"
_PIECE = 1024 * 1024
# Errors that stop a session on the way, and leave it readable to its end.
_READABLE = (ContextExhausted, PromptTooLong)


@dataclass(frozen=True, slots=True)
class _Conversation:
    """An agent on one task: the command that starts it, the observer of its output, and its transcript."""

    task: Task
    agent: Agent
    asked: AgentCommand
    observer: Observer
    watch: Watch
    transcript: Path


async def run_agent(
    parts: AttemptParts, ground: Ground, trial: Trial, record: AttemptRecord, resume: Resume | None = None
) -> None:
    """Start the agent, or resume an earlier session, and note its session if it ended well; raises if not."""
    artifact_dir = parts.run_dir / record.artifact_dir
    talk = _converse(artifact_dir, _task(parts, ground, trial, resume), trial.execution.limits, parts.listener(trial))
    talk = replace(talk, asked=await parts.unpacked.given_to(talk.asked))
    parts.masker.learn(login_secrets(talk.asked))
    if talk.asked.home_files or talk.asked.home_copies:
        await anyio.to_thread.run_sync(fill_home, ground.home, talk.asked)
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
        if ended is not None or isinstance(error, _READABLE):
            # No check sees it, but people who look for the reason do.
            _write_session(parts, artifact_dir, record.unfinished)
        raise
    record.session = _session(trial, record, talk, ended)
    _write_session(parts, artifact_dir, record.session)
    if talk.observer.unreadable is not None:
        raise talk.observer.unreadable


def _note_figures(trial: Trial, record: AttemptRecord, talk: _Conversation) -> None:
    """Note what the session used, however it ended."""
    record.usage, record.steps = talk.observer.usage_or_guess(talk.transcript), talk.observer.steps
    record.detected_skills, record.trusted = talk.observer.detected_skills(), talk.asked.trusted
    record.resumable = _resumable(talk)
    _note_unheld(trial, record)


def _note_unheld(trial: Trial, record: AttemptRecord) -> None:
    """Note that a budget was not held if the cost is unknown; unknown is not zero."""
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
    """Return what resumes the session, if the agent can and its id is known."""
    session_id, names = talk.observer.started.session_id, talk.agent.state
    return Resumable(session_id=session_id, names=names, asked=talk.asked) if session_id and names else None


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


def _write_session(parts: AttemptParts, artifact_dir: Path, session: SessionSummary) -> None:
    # The answer was masked with the transcript that it was read from; the prompt is as the author wrote it.
    kept = replace(session, prompt=parts.masker.text(session.prompt)) if parts.masker else session
    (artifact_dir / "session.json").write_bytes(wire.encode_pretty(kept))


def _task(parts: AttemptParts, ground: Ground, trial: Trial, resume: Resume | None) -> Task:
    return Task(
        prompt=trial.execution.case.prompt,
        case=trial.key.case,
        runner=trial.execution.runner,
        workspace=ground.workspace.path,
        home=ground.home,
        temporary=ground.temporary,
        suite_dir=parts.suite.source.parent,
        settings_dir=parts.settings_dir,
        environ=parts.environ,
        arm=trial.key.arm,
        trial=trial.key.number,
        resume=resume,
        skill=trial.execution.skill,
        workspace_skills=skills_in(ground.workspace.path),
    )


async def _stream(parts: AttemptParts, ground: Ground, trial: Trial, talk: _Conversation) -> tuple[Ended, bytes]:
    """Run the agent's process, with its output to disk and to the observer; return how it ended, and its last words."""
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
            # For people who read the session, and for replays.
            observer.take(silent)
    finally:
        # Also if the agent was stopped at one of its limits.
        observer.close()
    await anyio.to_thread.run_sync(_read_again, talk, found, silent)
    return ended, stderr.tail or stdout.tail


def _read_again(talk: _Conversation, found: Mapping[str, bytes], silent: Event | None) -> None:
    """Read the transcript once more if files of the home add to it, such as what sub-agents did."""
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


def _sifted(parts: AttemptParts, observer: Observer, signs: Signs | None, kept: Capture) -> Capture | Sieve:
    """Look for signs of the model in a stream, if the agent has any there."""
    if signs is None:
        return kept
    return Sieve(signs, kept, masker=parts.masker, sign=observer.turn.sign, trouble=observer.take)


def _boundary(parts: AttemptParts, ground: Ground, trial: Trial, asked: AgentCommand) -> Boundary:
    # The user's own home, if a runner has `inherit_home`.
    homes = {ground.home, Path(asked.env.get("HOME", ground.home))}
    return Boundary(
        writable=(ground.workspace.path, ground.temporary, *homes),
        readable=(*asked.readable, *asked.named, *parts.mounts),
        hidden=(*parts.hidden_from(trial), *parts.suite.held_out),
        network=asked.network,
        ceilings=parts.ceilings,
    )
